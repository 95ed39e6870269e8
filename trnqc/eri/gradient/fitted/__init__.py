"""Weights of derivatives of (pq|P) and (P|Q) in the gradient of a fitted two-electron energy.

densities (densities.py) -> (iq|P), half-transformed (half_transform.py) -> weights (weights.py) -> blocks (products.py)
"""
