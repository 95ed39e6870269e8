"""Sampled coordinates of products of sparse operands, because those of real operands are seldom independent.

a few values of one index -> coordinates of the operands there -> joined one operand after the other, without indices
that are no longer needed -> number of distinct coordinates, scaled to all values of the index
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import numpy as np

from trnqc.sparse.network.network import Network

# Number of values of the index that are sampled.
VALUES = 6
# Most coordinates of a join, and most elements of an operand. Products that exceed them are not sampled.
ROWS, ELEMENTS = 2**19, 2**23

# Index -> coordinates in it, int64 [n].
Coordinates = dict[str, np.ndarray]


class StoredOperand(Protocol):
    """An operand, such as a `SparseTensor`."""

    def to_coo(self) -> tuple[np.ndarray, np.ndarray]:
        """(coordinates int64 [ndim, n], values [n])."""


class Samples:
    """Samples of the coordinates of products of a network's operands."""

    def __init__(self, network: Network, operands: Sequence[StoredOperand]) -> None:
        self._network, self._extents, self._operands = network, network.extents, operands
        self._rows: dict[int, Coordinates] = {}

    def count(self, operands: Mapping[int, float], indices: frozenset[str]) -> float | None:
        """Estimate the number of distinct coordinates in some indices of a product of operands (number -> elements).

        Returns None if none of the indices is one of the largest operand, or if too many coordinates would be joined.
        """
        largest = max(operands, key=lambda t: (operands[t], -t))
        sampled = [x for x in self._network.inputs[largest] if x in indices]
        if not sampled or max(operands.values()) > ELEMENTS:
            return None
        index = max(sampled, key=lambda x: self._extents[x])
        extent = self._extents[index]
        values = sorted({(2 * n + 1) * extent // (2 * VALUES) for n in range(VALUES)})
        distinct = 0
        for value in values:
            rows = self._joined(sorted(operands, key=lambda t: (t != largest, t)), index, value, indices)
            if rows is None:
                return None
            distinct += len(next(iter(rows.values())))
        return distinct * extent / len(values)

    def _joined(self, operands: Sequence[int], index: str, value: int, indices: frozenset[str]) -> Coordinates | None:
        """Return the distinct coordinates over `indices` of the product, at one value of an index."""
        rest = list(operands)
        rows: Coordinates | None = None
        while rest:
            near = [t for t in rest if rows is None or set(self._network.inputs[t]) & set(rows)] or rest
            chosen = near[0]
            rest.remove(chosen)
            part = self._at(chosen, index, value)
            rows = part if rows is None else self._product(rows, part)
            if rows is None:
                return None
            needed = indices.union(*(self._network.inputs[t] for t in rest))
            rows = self._distinct({x: column for x, column in rows.items() if x in needed})
        return rows

    def _at(self, operand: int, index: str, value: int) -> Coordinates:
        """Return the coordinates of an operand at one value of an index; all of them if it lacks the index."""
        if operand not in self._rows:
            self._rows[operand] = dict(zip(self._network.inputs[operand], self._operands[operand].to_coo()[0]))
        rows = self._rows[operand]
        if index not in rows:
            return rows
        there = np.flatnonzero(rows[index] == value)
        return {x: column[there] for x, column in rows.items()}

    def _product(self, left: Coordinates, right: Coordinates) -> Coordinates | None:
        """Return the pairs of coordinates that agree in the common indices; None if they are more than ROWS."""
        common = [x for x in left if x in right]
        keys = self._keys(left, common), self._keys(right, common)
        order = np.argsort(keys[1], kind="stable")
        first, last = (np.searchsorted(keys[1][order], keys[0], side=side) for side in ("left", "right"))
        many = last - first
        if int(many.sum()) > ROWS:
            return None
        mine = np.repeat(np.arange(len(many)), many)
        theirs = order[np.arange(len(mine)) - np.repeat(np.cumsum(many) - many, many) + first[mine]]
        return {x: column[mine] for x, column in left.items()} | {x: column[theirs] for x, column in right.items()}

    def _distinct(self, rows: Coordinates) -> Coordinates:
        _, kept = np.unique(self._keys(rows, list(rows)), return_index=True)
        return {x: column[kept] for x, column in rows.items()}

    def _keys(self, rows: Coordinates, labels: Sequence[str]) -> np.ndarray:
        """Return a number for each element; two are equal if the coordinates in these indices are."""
        keys, bound = np.zeros(len(next(iter(rows.values()))), np.int64), 1
        for index in labels:
            if bound > 2**62 // max(self._extents[index], 1):
                distinct, keys = np.unique(keys, return_inverse=True)
                bound = len(distinct)
            keys, bound = keys * self._extents[index] + rows[index], bound * self._extents[index]
        return keys
