"""Generated programs of the quadrature.

angular momentum, order of derivatives -> polynomials.py -> program of a class of shells (ao_program.py)
kind of functional -> programs over functions and points (point_programs.py), forces on functions (force_program.py)
atoms -> weights of points in the partition of space (partition.py)
"""
