"""Compiled integral kernels, and compiling them beside a running job.

recipe -> C (gen) -> shared library (jit) -> functions
"""
