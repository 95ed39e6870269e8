"""What programs that compute the weights of a block of edges have in common: their parameters and results.

A block consists of consecutive edges, or of those that a table contains. Weights are stored as [vector of weights, row
of the block], because they are read by channels: the value of vector v of row e at [v * step + e], and its derivative
by the length of the edge at [v * step + rows + e]. The step is the largest number of edges of a block, or twice that if
there are derivatives.
"""

from __future__ import annotations

from typing import Protocol

from trnqc.gen import Array, Value, Var
from trnqc.gen import statements as st
from trnqc.gen.values import minimum
from trnqc.mace.edges.geometry.programs import EDGES, ELEMENTS, INTERVALS, RECEIVERS, SENDERS

# First edge of the block, and number of its rows, a multiple of `WeightsProgram.multiple`.
FIRST, ROWS = Var("first_edge", "i64"), Var("rows", "i64")
# For each pair of elements of receiver and sender, the number of its table of weights.
PAIRS = Array("pairs", "i64")
# The edge of each row, where a table contains the edges.
ROW_EDGES = Array("row_edges", "i64")


class WeightsProgram(Protocol):
    """A way to compute weights."""

    @property
    def dtype(self) -> str:
        """Type of the weights, f32 or f64."""

    @property
    def edges(self) -> int:
        """Largest number of edges of a block."""

    @property
    def multiple(self) -> int:
        """Number of which the rows of a block are a multiple."""

    @property
    def size(self) -> int:
        """Number of radial functions of an edge."""

    @property
    def hidden(self) -> int:
        """Number of vectors of scratch for each row."""

    def program(self, slopes: bool, listed: bool = False) -> st.Function:
        """The program, with derivatives if `slopes` is true. For its parameters see `params`."""


def params(dtype: str, size: int, slopes: bool, listed: bool = False) -> dict[str, Value | Array]:
    """Return the parameters of a program of weights by name.

    ``first_edge, rows, edges`` are those of the block, and the number of all edges. The geometry has written ``radial``
    and ``slopes`` [E, size], ``cutoff`` [E, 2] and ``intervals`` [E]. ``parameters`` are those of a network or a table,
    ``sums`` and ``hidden`` are scratch, and ``weights`` are the result. If `listed` is true, row n is the edge
    ``row_edges[first_edge + n]``.
    """
    arrays = [Array(name, dtype, (None, size)) for name in ("radial", "slopes")[: 1 + slopes]]
    arrays += [Array("cutoff", dtype, (None, 2)), INTERVALS, PAIRS, Array("parameters", dtype, lanes=True)]
    arrays += [SENDERS, RECEIVERS, ELEMENTS]
    arrays += [Array("sums", dtype, lanes=True), Array("hidden", dtype), Array("weights", dtype, lanes=True)]
    named: dict[str, Value | Array] = {"first_edge": FIRST, "rows": ROWS, "edges": EDGES}
    arrays += [ROW_EDGES] if listed else []
    return named | {array.name: array for array in arrays}


def edge_of(row: Value, listed: bool) -> Value:
    """The edge of a row of the block."""
    return ROW_EDGES[FIRST + row] if listed else minimum(FIRST + row, EDGES - 1)
