"""The CPU backend: the MP2 pair step as compiled C, and matrix products by the BLAS of NumPy."""
