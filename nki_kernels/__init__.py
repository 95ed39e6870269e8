"""NKI kernels, one a file, each with a plain NumPy reference of the same signature beside it."""
