"""NKI kernels of density-fitted J and K, and the planner of their launches."""
