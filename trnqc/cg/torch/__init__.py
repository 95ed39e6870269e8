"""Tensor products as PyTorch modules and operators, with derivatives of every order."""
