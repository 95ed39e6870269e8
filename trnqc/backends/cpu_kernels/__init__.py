"""The parts of the CPU backend: number formats of B, the plan of blocks, NumPy's BLAS, and the compiled energy pass."""
