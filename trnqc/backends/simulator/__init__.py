"""NKI kernels on this machine, for correctness and not for speed: NumPy executes and checks every instruction."""
