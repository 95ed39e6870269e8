"""Kernels of shell-quartet classes as programs: the Boys function, vertical and horizontal recurrences, contraction.

class -> recurrence graph -> schedule -> straight-line code or loops over columns -> quartet function
"""
