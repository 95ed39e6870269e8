"""The scratch memory of a layer's programs: for each share of the nodes an array of vectors and one of numbers."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from trnqc.gen import Array, Value
from trnqc.gen import statements as st
from trnqc.mace.edges.block import Weights
from trnqc.mace.edges.paths import Layout

# Names of the two arrays.
VECTORS, NUMBERS = "scratch_vectors", "scratch_numbers"


@dataclass(frozen=True)
class Scratch:
    """Where the arrays of a share are in its scratch memory: one array of vectors, and one of numbers.

    Parameters
    ----------
    layout : Layout
    source : Weights
    copies : int
        1 for the program `forward`, 2 for `reverse`.
    """

    layout: Layout
    source: Weights
    copies: int

    @cached_property
    def vectors(self) -> dict[str, int]:
        """Sizes of the arrays of vectors: weights of a block, sums of a hidden layer, and sums of an edge."""
        rows = self.copies * self.source.edges
        weights = len(self.layout.paths) * self.layout.vectors * rows
        return {"weights": weights, "sums": self.source.hidden * rows, "edge": self.layout.dims[1]}

    @cached_property
    def numbers(self) -> dict[str, int]:
        """Sizes of the arrays of numbers: a hidden layer, couplings, sums before and after their lanes are added."""
        rows, lanes, d2 = self.source.edges, self.layout.lanes, self.layout.dims[1]
        hidden = self.copies * rows * self.source.hidden * lanes
        couplings = rows * len(self.layout.couplings)
        return {"hidden": hidden, "couplings": couplings, "kept": rows * d2 * lanes, "part": d2 * lanes}

    def views(self, share: Value) -> dict[str, st.View]:
        """The arrays of a share by name."""
        views = {}
        for array, sizes in ((VECTORS, self.vectors), (NUMBERS, self.numbers)):
            place = share * sum(sizes.values())
            for name, size in sizes.items():
                views[name] = st.View(Array(array, self.source.dtype, lanes=array == VECTORS), place)
                place = place + size
        return views

    @property
    def params(self) -> tuple[Array, Array]:
        """The parameters of a program."""
        return Array(VECTORS, self.source.dtype, lanes=True), Array(NUMBERS, self.source.dtype)
