"""Weights of edges by the radial networks of a model.

radial functions of a block of edges -> products, normalisation, silu -> weights, and their derivatives by the length
"""
