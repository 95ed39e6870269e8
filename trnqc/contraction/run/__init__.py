"""Running plans on NumPy, PyTorch and HDF5 arrays.

    operands ─ operands, checked ─ dispatch ─► execute: lowered steps | loop_nest: tiles, slices | device | ladder ─►
    array

`disk` holds contractions of arrays in files.
"""
