"""Execution of kernels on one or two simulated cores.

kernel (`jit`) -> target of the environment (`targets`) -> launch of each core (`launch`) -> run with counts (`machine`)
"""
