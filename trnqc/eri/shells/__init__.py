"""Pairs of shells of a molecule, as the records that kernels read."""
