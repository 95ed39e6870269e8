"""Functions that compute the paths of one edge, for each of e3nn's modes.

uvu.py   mode uvu: the lanes of a vector are channels u
uvv.py   modes uvv and uvuv: uvu paths with x and y exchanged
uvw.py   mode uvw: products of all pairs of channels (pairs.py), mixed by weights (mixing.py)
uuu.py   modes uuu, uuw, uvu<v and u<vw: products of equal channels (elementwise.py), then combining.py

Paths of mode uvu keep their operands in scratch (cpu/edges.py). Paths of the other modes add to the results in memory.
"""

from __future__ import annotations

from collections.abc import Mapping

from trnqc.cg.cpu.modes import uuu, uvv, uvw
from trnqc.cg.cpu.target import ProductTarget
from trnqc.cg.cpu.vectors import index
from trnqc.cg.problem.modes import MODES
from trnqc.cg.programs.directions import Direction
from trnqc.gen import statements as st
from trnqc.gen.build import Builder


def any_in(target: ProductTarget) -> bool:
    """Whether a problem has paths of other modes than uvu."""
    return bool(target.paths(*MODES.keys() - {"uvu"}))


def call(b: Builder, target: ProductTarget, direction: Direction, rows: Mapping[str, st.View]) -> None:
    """Call the functions of an edge's paths of other modes than uvu, which add to z, gx and gy in memory."""
    if target.paths("uvw"):
        b.call(uvw.function(uvw.EdgeGroup(target), direction.of_edge), index(1), *rows.values())
    for group in uuu.groups(target):
        b.call(uuu.function(group, direction.of_edge), *rows.values())
    for path in target.paths("uvv", "uvuv"):
        b.call(uvv.function(uvv.Exchanged(target, path), direction.of_edge), *rows.values())
