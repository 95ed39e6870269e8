"""Checks of a kernel's source against the subset of Python that the vendor's compiler accepts.

kernel -> source of it and of all plain functions that it calls -> syntax tree -> findings
"""
