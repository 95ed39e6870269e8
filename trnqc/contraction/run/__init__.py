"""Running plans: lowered steps, loop nests and passes over files, on NumPy, PyTorch and HDF5 arrays.

tree or nest -> steps -> products of slices -> array
"""
