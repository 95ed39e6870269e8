"""Paths of each of e3nn's modes as functions of one edge: which channels its lanes run over, and what lies in scratch.

uvu.py: lanes over u          uvv.py: uvv, uvuv, as uvu with x and y in each other's place
uvw.py: channels.py, then mixing.py      uuu.py: uuu, uuw, uvu<v, u<vw by elementwise.py, then combining.py

Paths of mode uvu go through scratch with the edge (cpu/edges.py); those of the other modes add to memory.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from trnqc.cg.cpu.modes import uuu, uvv, uvw
from trnqc.cg.cpu.slots import Paths
from trnqc.cg.programs.directions import Direction
from trnqc.gen import Value, const
from trnqc.gen import statements as st
from trnqc.gen.build import Builder


def any_in(paths: Paths) -> bool:
    """Whether a problem has paths of other modes than uvu."""
    return any(ins.connection_mode != "uvu" and 0 not in ins.path_shape for ins in paths.problem.instructions)


def call(b: Builder, paths: Paths, direction: Direction, rows: Mapping[str, st.View]) -> None:
    """Call the functions of an edge's paths of other modes than uvu; z, gx and gy in memory are added to."""
    for leading, function in _functions(paths, direction.of_edge):
        b.call(function, *leading, *rows.values())


def _functions(paths: Paths, direction: Direction) -> Iterator[tuple[tuple[Value, ...], st.Function]]:
    """The functions, and what their arguments begin with."""
    target = uvw.Target(paths.problem, paths.dtype, paths.lanes)
    if target.paths:
        yield (const(1, "i64"),), uvw.function(target, direction)
    for group in uuu.groups(paths.problem, paths.dtype, paths.lanes):
        yield (), uuu.function(group, direction)
    for path in uvv.paths(paths.problem, paths.dtype, paths.lanes):
        yield (), uvv.function(path, direction)
