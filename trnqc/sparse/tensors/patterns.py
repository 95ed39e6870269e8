"""Sparse tensors with fixed coordinates and variable values, which derivatives are taken by and evaluated at."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np

from trnqc.sparse.network.nest import Kind
from trnqc.sparse.tensors.levels import join
from trnqc.sparse.tensors.storage import SparseTensor, from_coo


@dataclass(frozen=True, eq=False)
class Pattern:
    """The distinct coordinates of a sparse tensor, int64 [modes, n], in the order of the values [n]."""

    shape: tuple[int, ...]
    coordinates: np.ndarray

    @cached_property
    def map(self) -> SparseTensor:
        """The 0/1 map that is 1 at the coordinates."""
        return from_coo(self.shape, self.coordinates)

    @cached_property
    def _order(self) -> np.ndarray | None:
        """The permutation that sorts the coordinates; None if they are sorted already."""
        if self.coordinates.shape[1] < 2:
            return None
        keys, _ = join(self.coordinates, self.shape)
        return np.argsort(keys) if (np.diff(keys) < 0).any() else None

    def tensor(self, values: np.ndarray) -> SparseTensor:
        """Return the tensor with values, float64 [n], at the coordinates."""
        ordered = values if self._order is None else values[self._order]
        return replace(self.map, values=np.ascontiguousarray(ordered))

    def sampled(self, tensor: SparseTensor) -> np.ndarray:
        """Return the elements of a tensor at the coordinates, float64 [n]; 0 where none is stored."""
        compressed: list[Kind] = ["compressed"] * len(self.shape)
        at, elements = tensor.repack(range(len(self.shape)), compressed).elements()
        mine = self.coordinates if self._order is None else self.coordinates[:, self._order]
        if not np.array_equal(at, mine):
            elements = self._chosen(at, elements, mine)
        if self._order is None:
            return elements
        values = np.empty(len(elements))
        values[self._order] = elements
        return values

    def _chosen(self, at: np.ndarray, elements: np.ndarray, mine: np.ndarray) -> np.ndarray:
        """Return those of the elements at sorted coordinates `at` that are at the sorted coordinates `mine`, else 0."""
        keys, _ = join(np.concatenate([at, mine], axis=1), self.shape)
        there, wanted = np.split(keys, [at.shape[1]])
        values = np.zeros(len(wanted))
        _, source, place = np.intersect1d(there, wanted, assume_unique=True, return_indices=True)
        values[place] = elements[source]
        return values

    def batched(self, count: int) -> Pattern:
        """Return the coordinates repeated `count` times under a new first mode, for flattened values [count, n]."""
        stacked = np.tile(self.coordinates, count)
        first = np.repeat(np.arange(count), self.coordinates.shape[1])
        return Pattern((count, *self.shape), np.concatenate([first[None], stacked]))


def pattern_of(tensor: SparseTensor) -> tuple[Pattern, np.ndarray]:
    """Return the coordinates and the values of the stored elements of a tensor, sorted."""
    compressed: Sequence[Kind] = ["compressed"] * tensor.ndim
    coordinates, values = tensor.repack(range(tensor.ndim), compressed).elements()
    return Pattern(tensor.shape, coordinates), values
