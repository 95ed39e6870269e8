"""Programs over a graph: the tensor product of every edge, fused with the gather of x and the sum over edges.

by receiver:  for each node: z = 0 in scratch; for each of its edges: load x of the sender, z += paths;  store z
by sender:    for each node: load x, gx = 0;   for each of its edges: load gz of the receiver, gx += paths, gy, gw

Messages of edges are never stored. A group of the program is a share of the nodes (graph.py). It writes rows of its own
only, in a fixed order, so results are bitwise equal for any number of threads. Sums over a node's edges can be
compensated: the rounding error of an addition is subtracted from the next term (Kahan 1965).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

from trnqc.cg.cpu import modes
from trnqc.cg.cpu.edges import edge_writer
from trnqc.cg.cpu.target import ProductTarget
from trnqc.cg.cpu.vectors import clear, declare_vectors, vectors, view
from trnqc.cg.programs.directions import Direction
from trnqc.gen import Array, Var
from trnqc.gen import statements as st
from trnqc.gen.build import Builder

# Number of a share, a node, a position among the sorted edges, an edge, and the node at its other end.
SHARE, NODE, PLACE, EDGE, FAR = (Var(name, "i64") for name in ("share", "node", "place", "edge", "other"))
# The arrays of `graph.Order`.
SHARES, STARTS, EDGES, FARS = ORDER = tuple(Array(name, "i64") for name in ("shares", "starts", "edges", "far"))


def convolution_program(target: ProductTarget, direction: Direction, compensated: bool = False) -> st.Function:
    """Return the program of a direction of a convolution; its parameters are ORDER and the operands."""
    b, by_sender = Builder(), direction.by == "sender"
    numbers = {"x": NODE if by_sender else FAR, "z": FAR if by_sender else NODE, "y": EDGE, "w": EDGE}
    out = "gx" if by_sender else direction.output
    slots = target.uvu_slots[out[-1]]
    edge = edge_writer(b, target, direction, numbers, SHARE)
    total = _node_sum(b, slots.size, target.dtype, compensated)
    if by_sender:
        edge.scratch["gx"] = total.target
    with _nodes(b):
        if by_sender:
            edge.load_x()
        total.open_node(b)
        with _edges(b):
            if by_sender:
                clear(b, edge.scratch["gy"], target.problem.dims[1])
            else:
                edge.load_x()
            total.open_edge(b)
            for slot in target.uvu_slots["z"].channels:
                edge.call_paths(slot, None if by_sender else view(total.target, slots.place[slot]))
            total.close_edge(b)
            if by_sender:
                edge.store_gy()
        edge.store_slots(out, total.sum)
    if modes.any_in(target):
        # Paths of the other modes add to the results in memory.
        with _nodes(b), _edges(b):
            modes.call(b, target, direction, {name: row[0] for name, row in edge.rows.items()})
    params = (*ORDER, *(row.array for row in edge.rows.values()))
    return b.function(direction.key + "_kahan" * compensated, params, group=SHARE)


@dataclass(frozen=True)
class _NodeSum:
    """The sum over the edges of a node in scratch.

    A compensated sum has two more arrays: the part of the current edge, and the rounding error of the sum so far.
    """

    size: int
    sum: Array
    part: Array | None = None
    lost: Array | None = None

    @property
    def target(self) -> Array:
        """The array to which the paths of an edge add."""
        return self.part or self.sum

    def open_node(self, b: Builder) -> None:
        for array in (self.sum, self.lost):
            if array:
                clear(b, array, self.size)

    def open_edge(self, b: Builder) -> None:
        if self.part:
            clear(b, self.part, self.size)

    def close_edge(self, b: Builder) -> None:
        """Add the part of an edge to a compensated sum."""
        if self.part and self.lost and self.size:
            b.call(_compensated(self.size, self.sum.dtype), self.part, self.sum, self.lost)


def _node_sum(b: Builder, size: int, dtype: str, compensated: bool) -> _NodeSum:
    names = ("sum", "part", "lost") if compensated else ("sum",)
    return _NodeSum(size, *(declare_vectors(b, name, size, dtype) for name in names))


@cache
def _compensated(size: int, dtype: str) -> st.Function:
    """Return the function that adds `part` to `total`, where `lost` is the amount by which `total` is too large."""
    b = Builder()
    part, total, lost = (vectors(name, size, dtype) for name in ("part", "total", "lost"))
    with b.loop("n", size) as n:
        term = b.let("term", part[n] - lost[n])
        new = b.let("new", total[n] + term)
        b.store(lost[n], (new - total[n]) - term)
        b.store(total[n], new)
    return b.function(f"compensated_{size}", (part, total, lost))


@contextmanager
def _nodes(b: Builder) -> Iterator[None]:
    """Loop over the nodes of a share."""
    with b.loop(NODE, SHARES[SHARE + 1], begin=SHARES[SHARE]):
        yield


@contextmanager
def _edges(b: Builder) -> Iterator[None]:
    """Loop over the edges of a node."""
    with b.loop(PLACE, STARTS[NODE + 1], begin=STARTS[NODE]):
        b.let(EDGE, EDGES[PLACE])
        b.let(FAR, FARS[PLACE])
        yield
