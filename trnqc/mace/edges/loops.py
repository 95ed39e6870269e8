"""Loops of programs over the edges of a range of nodes, in blocks that may begin and end within the edges of a node."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from trnqc.gen import Array, Value, Var, const
from trnqc.gen.build import Builder
from trnqc.gen.values import le, lt, minimum
from trnqc.mace.edges.geometry.programs import ELEMENTS, RECEIVERS, SENDERS
from trnqc.mace.edges.networks.block import WeightsProgram

# Number of a share, whose nodes are shares[share] .. shares[share + 1], number of all nodes, node whose edges are next.
SHARE, NODES, NODE = (Var(name, "i64") for name in ("share", "nodes", "node"))
SHARES, STARTS = Array("shares", "i64"), Array("starts", "i64")
GRAPH = (SHARES, STARTS, SENDERS, RECEIVERS, ELEMENTS)


@contextmanager
def blocks(b: Builder, source: WeightsProgram, begin: Value, end: Value) -> Iterator[tuple[Value, Value, Value]]:
    """Loop over the blocks of edges of the nodes begin .. end.

    Yields the first edge, the number of edges, and that number up to the multiple that the weights ask for.
    """
    multiple = source.multiple
    b.declare(NODE, begin)
    last = b.let("last", STARTS[end])
    with b.loop("first", last, begin=STARTS[begin], step=source.edges) as first:
        count = b.let("count", minimum(last - first, source.edges))
        yield first, count, b.let("rows", (count + (multiple - 1)) // multiple * multiple)


@contextmanager
def nodes(b: Builder, first: Value, count: Value) -> Iterator[tuple[Value, Value, Value]]:
    """Loop over the nodes with edges in a block: number of the node, its first row, and the row after its last one."""
    place = b.declare("place", const(0, "i64"))
    with b.loop_while(lt(place, count)):
        after = b.let("after", STARTS[NODE + 1] - first)
        end = b.let("end", minimum(after, count))
        yield NODE, place, end
        b.assign(place, end)
        with b.when(le(after, count)):
            b.assign(NODE, NODE + 1)


def clear(b: Builder, array: Array, begin: Value | int, end: Value) -> None:
    """Set the elements begin .. end of an array to zero."""
    with b.loop("n", end, begin=begin) as n:
        b.store(array[n], const(0, array.dtype))
