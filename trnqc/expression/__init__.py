"""The language of tensor expressions, shared by dense contractions and sparse networks.

    einsum subscripts ─ subscripts.parse_subscripts ─► Subscripts: labels of operands and result, extents
    text              ─ text.parse                  ─► Program: statements over declared spaces and tensors
    Python objects    ─ program.Program.of          ─► Program

`spaces` defines ranges of indices, `symmetry` the effect of exchanges of axes, `terms` tensors, products and sums. No
module of this folder holds arrays.
"""
