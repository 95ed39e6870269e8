"""Programs over a graph: a tensor product for every edge, fused with the gather before and the sum after it.

by receiver:  for every node: z = 0 in scratch; for its edges: x of the sender -> scratch, z += paths;  z -> memory
by sender:    for every node: x -> scratch, gx = 0; for its edges: gz of the receiver -> scratch, gx += paths, gy, gw

No message is ever stored. A group is a share of nodes (graph.py) and writes rows of its own only, in one order, so the
results are the same bits for any number of threads. Compensated sums over a node's edges are Kahan's: what an addition
loses is kept and subtracted from the next term (Kahan 1965).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache

from trnqc.cg.cpu import edges, modes
from trnqc.cg.cpu.slots import Paths, Slots, clear, vectors
from trnqc.cg.programs.directions import Direction
from trnqc.gen import Array, Var
from trnqc.gen import statements as st
from trnqc.gen.build import Builder

SHARE, NODE, PLACE, EDGE, FAR = (Var(name, "i64") for name in ("share", "node", "place", "edge", "other"))
SHARES, STARTS, EDGES, FARS = ORDER = tuple(Array(name, "i64") for name in ("shares", "starts", "edges", "far"))


def program(paths: Paths, direction: Direction, compensated: bool = False) -> st.Function:
    """The program of a direction of a convolution; its parameters are ORDER and the operands."""
    b, by_sender = Builder(), direction.by == "sender"
    numbers = {"x": NODE if by_sender else FAR, "z": FAR if by_sender else NODE, "y": EDGE, "w": EDGE}
    rows = edges.rows_of(paths, direction, numbers, SHARE)
    slots, out = (paths.slots1, "gx") if by_sender else (paths.slots3, direction.output)
    scratch, total = edges.scratch_of(b, paths, direction), _sum(b, paths, slots, compensated)
    if by_sender:
        scratch["gx"] = total.target
    with _nodes(b):
        if by_sender:
            edges.load_x(b, paths, direction.reading("x"), rows, scratch)
        total.open(b)
        with _edges(b):
            if not by_sender:
                edges.load_x(b, paths, direction.reading("x"), rows, scratch)
            else:
                clear(b, scratch["gy"], paths.problem.dims[1])
            total.open_edge(b)
            for slot in paths.slots3.channels:
                z = None if by_sender else edges.view(total.target, slots.place[slot])
                edges.call_paths(b, paths, direction, slot, rows, scratch, z)
            total.close_edge(b)
            if by_sender:
                edges.store_gy(b, paths, scratch["gy"], rows["gy"])
        edges.store_slots(b, slots, total.sum, rows[out])
        problem = paths.problem
        edges.clear_unreached(b, rows[out], slots, problem.slices1 if by_sender else problem.slices3)
    if modes.any_in(paths):
        # These paths add to what is in memory already.
        with _nodes(b), _edges(b):
            modes.call(b, paths, direction, {name: row[0] for name, row in rows.items()})
    params = (*ORDER, *(row.array for row in rows.values()))
    return b.function(direction.key + "_kahan" * compensated, params, group=SHARE)


@dataclass(frozen=True)
class _Sum:
    """A node's sum over its edges in scratch; compensated with an edge's own part and what was lost beside it."""

    slots: Slots
    sum: Array
    part: Array | None = None
    lost: Array | None = None

    @property
    def target(self) -> Array:
        """What the paths of an edge add to."""
        return self.part or self.sum

    def open(self, b: Builder) -> None:
        """Before a node's first edge."""
        for array in (self.sum, self.lost):
            if array:
                clear(b, array, self.slots.size)

    def open_edge(self, b: Builder) -> None:
        if self.part:
            clear(b, self.part, self.slots.size)

    def close_edge(self, b: Builder) -> None:
        """Add an edge's own part to the sum."""
        if self.part and self.lost and self.slots.size:
            b.call(_compensated(self.slots.size, self.sum.dtype), self.part, self.sum, self.lost)


def _sum(b: Builder, paths: Paths, slots: Slots, compensated: bool) -> _Sum:
    names = ("sum", "part", "lost") if compensated else ("sum",)
    return _Sum(slots, *(edges.vectors_of(b, paths, name, slots.size) for name in names))


@cache
def _compensated(size: int, dtype: str) -> st.Function:
    """total += part; lost is what the sum is too large by."""
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
