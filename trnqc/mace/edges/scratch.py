"""The scratch memory of a layer's programs: for each share of the nodes an array of vectors and one of numbers."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trnqc.gen import Array, Value
from trnqc.gen import statements as st
from trnqc.jit import NUMPY
from trnqc.mace.edges.networks.block import WeightsProgram
from trnqc.mace.edges.paths import PathLayout

# Names of the two arrays.
VECTORS, NUMBERS = "scratch_vectors", "scratch_numbers"


@dataclass(frozen=True, eq=False)
class ShareScratch:
    """Where arrays of vectors and of numbers, with sizes by name, are in the scratch memory of a share."""

    vectors: dict[str, int]
    numbers: dict[str, int]
    dtype: str

    def views(self, share: Value) -> dict[str, st.View]:
        """The arrays of a share by name."""
        views = {}
        for array, sizes in ((VECTORS, self.vectors), (NUMBERS, self.numbers)):
            place = share * sum(sizes.values())
            for name, size in sizes.items():
                views[name] = st.View(Array(array, self.dtype, lanes=array == VECTORS), place)
                place = place + size
        return views

    @property
    def params(self) -> tuple[Array, Array]:
        """The parameters of a program."""
        return Array(VECTORS, self.dtype, lanes=True), Array(NUMBERS, self.dtype)

    def bytes(self, lanes: int) -> dict[str, int]:
        """Sizes of the memory of a share, by the names of the parameters."""
        item = np.dtype(NUMPY[self.dtype]).itemsize
        return {VECTORS: item * lanes * sum(self.vectors.values()), NUMBERS: item * sum(self.numbers.values())}


def weights_scratch(
    source: WeightsProgram, vectors: int, harmonics: int, lanes: int, copies: int, users: int = 1
) -> ShareScratch:
    """Return the scratch memory of programs that compute weights of blocks of edges, with `vectors` of weights an edge.

    `copies` is 1 for a forward program, 2 for a reverse one, whose weights have derivatives; at most `users` edges
    share a row of weights. The vectors are the weights of a block, sums of a hidden layer, and sums of an edge. The
    numbers are a hidden layer, and the sums of a block before and after their lanes are added.
    """
    rows = copies * source.edges
    sizes = {"weights": vectors * rows, "sums": source.hidden * rows, "edge": harmonics}
    numbers = {
        "hidden": rows * source.hidden * lanes,
        "kept": users * source.edges * harmonics * lanes,
        "part": harmonics * lanes,
    }
    return ShareScratch(sizes, numbers, source.dtype)


def scratch_of(layout: PathLayout, source: WeightsProgram, copies: int) -> ShareScratch:
    """The scratch memory of the programs of `layer`, with the couplings of a block."""
    common = weights_scratch(source, len(layout.paths) * layout.vectors, layout.dims[1], layout.lanes, copies, 2)
    couplings = {"couplings": 2 * source.edges * len(layout.couplings)}
    return ShareScratch(common.vectors, common.numbers | couplings, source.dtype)
