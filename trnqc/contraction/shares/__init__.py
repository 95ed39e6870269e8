"""How the ranks of a job share a program: the label over which each product is divided, and what they send.

Computation, ranks ─ options: parts divided over each label ─► search ─► Division (run by `contraction.ranks.program`)
"""
