"""Make wheels that contain compiled kernels.

kernels.py   compile the kernels of common basis sets for one level of the instruction set
wheel.py     add compiled kernels to the pure wheel
"""
