"""Make wheels that contain compiled kernels.

kernels.py   compile the kernels of common basis sets for one level of the instruction set
jobs.py      jobs and libraries in C++ that it compiles, each in a process of its own
wheel.py     add compiled kernels to the pure wheel
"""
