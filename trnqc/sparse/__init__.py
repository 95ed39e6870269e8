"""Sparse tensor networks: layouts and fused loops chosen by a solver, compiled to C.

network + sparsity -> layouts and loops (Z3) -> index notation -> program (gen) -> compiled kernel (jit) -> tensor
"""
