"""Tensor expressions as values: index spaces, tensors and sums of products.

    R[a,b,i,j] += 1/2 * v[a,b,c,d] * t[c,d,i,j]

is a statement over a target; its terms are products of factors, its factors are tensors at indices. Nothing here
knows an array: extents come with the spaces.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Index:
    """A label that runs over 0 .. extent - 1. symbol: what stands for the extent in symbolic counts."""

    label: str
    extent: int
    symbol: str
