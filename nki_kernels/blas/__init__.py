"""Kernels of `trnqc.blas`: products in blocks, walked by a work list that the host makes."""
