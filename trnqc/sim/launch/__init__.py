"""Execution of kernels on one or two simulated cores.

kernel (`jit`) -> launch of each core (`launch`) -> results and traces

`install` makes these modules importable as ``nki``.
"""
