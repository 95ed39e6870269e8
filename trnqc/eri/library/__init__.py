"""Compiled integral kernels: building them, which of them a molecule needs, and compiling them beside a running job.

class -> recipe -> C (gen) -> shared library (jit) -> functions
"""
