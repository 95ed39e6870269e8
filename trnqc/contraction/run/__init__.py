"""Running plans on NumPy, PyTorch and HDF5 arrays.

    operands ─ operands, checked ─ dispatch ─► execute: lowered steps | loop_nest: tiles, slices | device | ladder ─►
    array

`stored` runs passes over files, `traced` contractions inside ``torch.compile``.
"""
