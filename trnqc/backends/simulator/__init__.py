"""NKI kernels on a simulator, which checks every instruction and executes it with NumPy. It is not made for speed."""
