"""Weights as uniform B-splines of the length of an edge: w(r) = sum_k b_k(t) table[n + k], r = (n + t) h.

The b_k are the degree + 1 B-splines that do not vanish on interval n. They are computed once for an edge and serve all
weights of all layers. Weights are computed a few vectors at a time for all edges of a block, so that the part of the
table that belongs to these vectors stays in the first cache. (C. de Boor, A Practical Guide to Splines (2001).)
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trnqc.gen import Array, Value, const
from trnqc.gen import statements as st
from trnqc.gen.build import Builder
from trnqc.gen.values import fma
from trnqc.mace.edges.geometry.knots import DEGREE
from trnqc.mace.edges.geometry.programs import ELEMENTS, INTERVALS, RECEIVERS, SENDERS
from trnqc.mace.edges.networks.block import PAIRS, ROWS, edge_of, params

# Number of vectors that are computed at a time for all edges of a block. Their part of 150 rows takes 38 kB.
WIDTH = 4


@dataclass(frozen=True)
class SplineWeights:
    """Weights by B-splines (`rows` of a table); what their program depends on.

    `elements` is the number of elements of the model if there is a table for each pair of them, else 0; a block has at
    most `edges` edges.
    """

    rows: int
    vectors: int
    elements: int
    dtype: str
    edges: int

    multiple = 1
    size = DEGREE + 1
    hidden = 0

    def program(self, slopes: bool, listed: bool = False) -> st.Function:
        """The program of a block, with the parameters of `block.params`."""
        b = Builder()
        operands = params(self.dtype, self.size, slopes, listed)
        whole = self.vectors // WIDTH * WIDTH
        with b.loop("first", whole, step=WIDTH) as first:
            self._panel(b, operands, first, WIDTH, slopes, listed)
        if self.vectors > whole:
            self._panel(b, operands, const(whole, "i64"), self.vectors - whole, slopes, listed)
        name = f"splines_{self.dtype}_{self.rows}x{self.vectors}{'_slopes' * slopes}{'_listed' * listed}"
        return b.function(name, operands.values())

    def _panel(
        self, b: Builder, operands: dict[str, Value | Array], first: Value, width: int, slopes: bool, listed: bool
    ) -> None:
        """The vectors from `first` on for all rows."""
        functions, table, weights = (_array(operands, name) for name in ("radial", "parameters", "weights"))
        factors = [functions, _array(operands, "slopes")] if slopes else [functions]
        step = self.edges * len(factors)
        with b.loop("row", ROWS) as row:
            edge = b.let("edge", edge_of(row, listed))
            start = b.let("start", self._table(edge) + first * self.rows + INTERVALS[edge] * width)
            sums = [[b.declare("sum", const(0, self.dtype)) for _ in range(width)] for _ in factors]
            for k in range(self.size):
                by = [b.let("b", array[edge, k]) for array in factors]
                for v in range(width):
                    element = b.let("c", table[start + (k * width + v)])
                    for factor, row_sums in zip(by, sums):
                        b.assign(row_sums[v], fma(factor, element, row_sums[v]))
            for n, row_sums in enumerate(sums):
                for v, total in enumerate(row_sums):
                    b.store(weights[(first + v) * step + n * ROWS + row], total)

    def _table(self, edge: Value) -> Value:
        """Where the table of an edge begins."""
        if not self.elements:
            return const(0, "i64")
        pair = ELEMENTS[RECEIVERS[edge]] * self.elements + ELEMENTS[SENDERS[edge]]
        return PAIRS[pair] * (self.rows * self.vectors)


def _array(operands: dict[str, Value | Array], name: str) -> Array:
    array = operands[name]
    assert isinstance(array, Array)
    return array


def pack(table: np.ndarray, lanes: int) -> np.ndarray:
    """Return a table [pairs, rows, columns] in the order in which the program reads it, [vectors, lanes].

    Panels of WIDTH vectors follow one another, and the last one may be narrower. In a panel, rows are the slow index.
    """
    pairs, rows, columns = table.shape
    vectors = -(-columns // lanes)
    padded = np.zeros((pairs, rows, vectors * lanes))
    padded[:, :, :columns] = table
    split = padded.reshape(pairs, rows, vectors, lanes)
    panels = [split[:, :, v : v + WIDTH].reshape(pairs, -1, lanes) for v in range(0, vectors, WIDTH)]
    return np.concatenate(panels, axis=1).reshape(-1, lanes)
