"""Compiled integral kernels: their cache, which of them a molecule needs, and compiling them beside a running job.

class -> program -> C (gen) -> shared library (jit) -> function
"""
