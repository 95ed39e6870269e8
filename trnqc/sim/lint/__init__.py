"""Checks of a kernel's source against the subset of Python that the vendor's compiler accepts.

kernel -> sources of the kernel and of the plain functions that it calls -> syntax trees -> findings
"""
