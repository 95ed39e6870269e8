"""GPUs of NVIDIA, for programs that `trnqc.gen` writes: integrals and tensor products.

There are no matrix products and no pair energies for CUDA, hence no ``pairs.py``.
"""
