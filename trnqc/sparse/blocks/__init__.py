"""Tensors of dense blocks, of which only some are stored.

blocks and their places -> order of pairwise products -> stacks of matrix products -> blocks of the result
"""
