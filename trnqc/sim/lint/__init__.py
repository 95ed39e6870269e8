"""Checks of a kernel's source against the subset of Python that the vendor's compiler accepts."""
