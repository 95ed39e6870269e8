"""NVIDIA GPUs, for the programs that `trnqc.gen` emits: integrals and tensor products.

This backend has neither matrix products nor pair energies, and therefore no ``pairs.py``.
"""
