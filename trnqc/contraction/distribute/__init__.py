"""Where each array lies on a grid of processors, and what moves between steps.

tree, grid ─ placement ─► placements ─ distribution ─► Distribution of least computation and communication
"""
