"""The program that adds the lanes of vectors, by transposing those of as many edges at once as there are lanes."""

from __future__ import annotations

from functools import reduce
from operator import add

from trnqc.gen import Array, Var, const
from trnqc.gen import statements as st
from trnqc.gen.build import Builder
from trnqc.gen.values import lane, minimum


def lane_sums_program(size: int, dtype: str, lanes: int, edges: int, listed: bool = False) -> st.Function:
    """Return the program that adds the lanes of the sums of the edges of a block to their gradients.

    An edge has `size` sums, one for each harmonic but the first and one for the length; a block has at most `edges`
    edges, a multiple of the lanes. Its parameters are ``count`` (of the edges), ``kept`` [size, edges, lanes], the
    scratch ``part`` [size, lanes], ``g_harmonics`` [count, size] and ``g_lengths`` [count], to which it adds, and if
    `listed` the table ``edges`` [count] of numbers, which otherwise follow one another.
    """
    b, count = Builder(), Var("count", "i64")
    kept, part, g_r = Array("kept", dtype), Array("part", dtype), Array("g_lengths", dtype)
    g_y, table = Array("g_harmonics", dtype, (None, size)), Array("edges", "i64")
    with b.loop("row", count, step=lanes) as row:
        with b.loop("n", size) as n:
            vectors = b.array("vectors", dtype, (lanes,), lanes=True)
            b.add(st.GatherRows(vectors, kept, (n * edges + row + lane()) * lanes, const(lanes, "i64")))
            total = b.array("total", dtype, (1,), lanes=True)
            b.store(total[0], reduce(add, [vectors[i] for i in range(lanes)]))
            b.add(st.Pack(part, n * lanes, total, const(0, "i64"), 1, 1, lanes))
        with b.loop("edge", minimum(count - row, lanes)) as edge:
            at = b.let("at", table[row + edge] if listed else row + edge)
            for j in range(1, size):
                b.accumulate(g_y[at, j], part[(j - 1) * lanes + edge])
            b.accumulate(g_r[at], part[(size - 1) * lanes + edge])
    return b.function("sum_lanes", (count, kept, part, g_y, g_r, *([table] if listed else [])))
