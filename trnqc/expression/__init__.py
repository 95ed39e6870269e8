"""The language of tensor expressions, shared by dense contractions and sparse networks.

    einsum subscripts ─ subscripts.parse_subscripts ─► Subscripts: labels of operands and result, extents
    text              ─ text.parse                  ─► Program: statements over declared spaces and tensors
    Python objects    ─ program.Program.of          ─► Program

`spaces` holds what indices run over, `symmetry` what exchanges of axes do, `terms` tensors, products and sums. Nothing
in this folder holds an array.
"""
