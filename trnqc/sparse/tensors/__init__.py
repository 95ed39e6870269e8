"""Sparse tensors: trees of dense and compressed levels, and their conversion from and to other libraries."""
