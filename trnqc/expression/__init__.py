"""The language of tensor expressions that dense and sparse contractions share: subscripts, spaces, symmetries, text.

subscripts or text -> Program: sums of products of tensors over index spaces
"""
