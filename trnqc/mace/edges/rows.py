"""Loops over the rows of weights of a range of atoms, in blocks of rows.

A row serves the two edges of a pair of atoms, whose lengths are equal, or one edge. The edges of a block are listed by
receiver, so that the edges of a receiver are a run in the list (trnqc/mace/driver/rows.h).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from trnqc.gen import Array, Value
from trnqc.gen import statements as st
from trnqc.gen.build import Builder
from trnqc.gen.values import minimum
from trnqc.mace.edges.geometry.programs import RECEIVERS
from trnqc.mace.edges.networks.block import ROW_EDGES, WeightsProgram

# Number of rows of the range, [1].
ROW_COUNT = Array("row_count", "i64")
# The edges of the blocks one after another, and the row of each in its block.
EDGE_LIST, EDGE_ROWS = (Array(name, "i64") for name in ("edge_list", "edge_rows"))
# Where runs begin in the list, and where the runs of blocks begin.
RUNS, BLOCK_RUNS = (Array(name, "i64") for name in ("runs", "block_runs"))
# The parameters of a program.
ROWS_OF_RANGE = (ROW_COUNT, ROW_EDGES, EDGE_LIST, EDGE_ROWS, RUNS, BLOCK_RUNS)


@dataclass(frozen=True)
class RowBlock:
    """A block of rows, with their number up to the multiple that the weights ask for, its edges and its runs.

    `begin` is its first edge in the list, `last_run` the end of its runs (the last one + 1).
    """

    first: Value
    rows: Value
    begin: Value
    count: Value
    first_run: Value
    last_run: Value

    @property
    def edges(self) -> st.View:
        """Its edges."""
        return st.view(EDGE_LIST[self.begin])

    @property
    def edge_rows(self) -> st.View:
        """The rows of its edges."""
        return st.view(EDGE_ROWS[self.begin])


@contextmanager
def blocks(b: Builder, source: WeightsProgram) -> Iterator[RowBlock]:
    """Loop over the blocks of a range."""
    multiple, total = source.multiple, b.let("total", ROW_COUNT[0])
    with b.loop("first", total, step=source.edges) as first:
        count = b.let("count", minimum(total - first, source.edges))
        rows = b.let("rows", (count + (multiple - 1)) // multiple * multiple)
        number = b.let("number", first // source.edges)
        runs = [b.let("run", BLOCK_RUNS[number + n]) for n in range(2)]
        begin, end = (b.let("begin", RUNS[run]) for run in runs)
        yield RowBlock(first, rows, begin, b.let("edges", end - begin), *runs)


@contextmanager
def runs(b: Builder, block: RowBlock) -> Iterator[tuple[Value, Value, Value]]:
    """Loop over the runs of a block: receiver, first edge and last one + 1, counted from the first of the block."""
    with b.loop("run", block.last_run, begin=block.first_run) as run:
        start = b.let("start", RUNS[run])
        node = b.let("node", RECEIVERS[EDGE_LIST[start]])
        yield node, b.let("begin", start - block.begin), b.let("end", RUNS[run + 1] - block.begin)
