"""The geometry of edges: lengths, harmonics and radial functions.

functions.py, harmonics.py, basis.py   formulas as values of programs
programs.py                            the programs over edges
kernels.py                             the compiled programs as functions of NumPy arrays
"""
