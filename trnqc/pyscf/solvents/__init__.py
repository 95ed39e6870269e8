"""PySCF's continuum solvents with our integrals and equations.

cavity      the equations of the charges on a surface, and the derivative of their energy
layer       PySCF's PCM and SMD objects that use them
"""
