"""Where the features of a node lie in memory: slot after slot, in each [component][channel], in whole vectors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from trnqc.cg.problem.irreps import Irreps


@dataclass(frozen=True)
class FeatureLayout:
    """Rows of features in these irreps, with vectors of `lanes` channels."""

    irreps: Irreps
    lanes: int

    @cached_property
    def vectors(self) -> tuple[int, ...]:
        """Number of vectors of a component of each slot."""
        return tuple(-(-slot.mul // self.lanes) for slot in self.irreps)

    @cached_property
    def starts(self) -> tuple[int, ...]:
        """The first vector of each slot."""
        sizes = [slot.ir.dim * vectors for slot, vectors in zip(self.irreps, self.vectors)]
        return tuple(int(n) for n in np.cumsum([0, *sizes[:-1]])) if sizes else ()

    @cached_property
    def width(self) -> int:
        """Number of vectors of a node."""
        return sum(slot.ir.dim * vectors for slot, vectors in zip(self.irreps, self.vectors))

    def rows(self, x: np.ndarray, dtype: str | np.dtype) -> np.ndarray:
        """Convert rows in e3nn's order [n, irreps.dim] to vectors [n, width, lanes]."""
        result = np.zeros((len(x), self.width, self.lanes), dtype)
        for slot, part, components in zip(self.irreps, self.irreps.slices, self._components(result)):
            components[:, :, : slot.mul] = x[:, part].reshape(len(x), slot.mul, slot.ir.dim).transpose(0, 2, 1)
        return result

    def flat(self, rows: np.ndarray) -> np.ndarray:
        """Convert vectors [n, width, lanes] to rows in e3nn's order, float64 [n, irreps.dim]."""
        result = np.empty((len(rows), self.irreps.dim))
        for slot, part, components in zip(self.irreps, self.irreps.slices, self.slots(rows)):
            result[:, part] = components.transpose(0, 2, 1).reshape(len(rows), slot.dim)
        return result

    def slots(self, rows: np.ndarray) -> list[np.ndarray]:
        """The views [n, components, channels] of the slots of vectors [n, width, lanes]."""
        return [part[:, :, : slot.mul] for slot, part in zip(self.irreps, self._components(rows))]

    def _components(self, rows: np.ndarray) -> Iterator[np.ndarray]:
        """Yield the view [n, components, channels in whole vectors] of each slot of C-contiguous rows."""
        for slot, start, vectors in zip(self.irreps, self.starts, self.vectors):
            part = rows[:, start : start + slot.ir.dim * vectors]
            yield part.reshape(len(rows), slot.ir.dim, vectors * self.lanes)
