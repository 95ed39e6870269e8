"""The weights of a model packed into one array of vectors."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trnqc.jit import NUMPY
from trnqc.mace.gemm import RegisterTile, pack


@dataclass(frozen=True)
class PackedMatrix:
    """The place of a packed matrix [inputs, outputs]; the matrix of element e begins at vector start + e step."""

    inputs: int
    outputs: int
    start: int
    step: int


class CollectedWeights:
    """Weights under collection: vectors of a type, "f32" or "f64", one array after another."""

    def __init__(self, tile: RegisterTile, dtype: str) -> None:
        self.tile, self.dtype = tile, NUMPY[dtype]
        self._parts: list[np.ndarray] = []
        self._size = 0

    def add(self, vectors: np.ndarray) -> int:
        """Append vectors [.., lanes] and return the position of the first."""
        part = np.ascontiguousarray(vectors, self.dtype).reshape(-1, self.tile.lanes)
        self._parts.append(part)
        self._size += len(part)
        return self._size - len(part)

    def row(self, values: np.ndarray) -> int:
        """Append numbers, filled up with zeros to whole vectors, and return the position of the first vector."""
        row = np.zeros(-(-len(values) // self.tile.lanes) * self.tile.lanes)
        row[: len(values)] = values
        return self.add(row)

    def matrix(self, matrix: np.ndarray) -> PackedMatrix:
        """Append a matrix [inputs, outputs], or one for each element, packed for products."""
        by_element = matrix if matrix.ndim == 3 else matrix[None]
        panels = [pack(np.ascontiguousarray(each, self.dtype), self.tile) for each in by_element]
        start = self.add(np.concatenate(panels))
        inputs, outputs = matrix.shape[-2:]
        return PackedMatrix(inputs, outputs, start, len(panels[0]) if matrix.ndim == 3 else 0)

    def array(self) -> np.ndarray:
        """All vectors, [vectors, lanes]."""
        return np.concatenate([*self._parts, np.zeros((1, self.tile.lanes), self.dtype)])
