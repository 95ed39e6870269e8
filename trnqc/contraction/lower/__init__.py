"""Trees as steps: products, sums over an axis and packings of pairs, each with the order of its axes.

tree ─ lowering ─► steps ─ axis_orders ─► layouts ─ prepared ─► calls of NumPy
"""
