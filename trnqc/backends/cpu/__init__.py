"""The CPU backend: the MP2 pair step in compiled C, and products of matrices by NumPy's BLAS."""
