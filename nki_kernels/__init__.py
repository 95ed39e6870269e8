"""NKI kernels. Each file contains one kernel and its NumPy reference with the same signature."""
