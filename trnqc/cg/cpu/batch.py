"""Programs over a batch: one group an edge, every operand a row of its own (shared weights: one row for all).

The gradient of shared weights is added to row `share` of gw, so that ranges of edges may run at once.
"""

from __future__ import annotations

from trnqc.cg.cpu import edges, modes, stack
from trnqc.cg.cpu.modes import uvu, uvw
from trnqc.cg.cpu.slots import Paths, clear
from trnqc.cg.programs.directions import Direction
from trnqc.gen import Value, Var
from trnqc.gen import statements as st
from trnqc.gen.build import Builder

E, SHARE = Var("e", "i64"), Var("share", "i64")


def program(paths: Paths, direction: Direction) -> st.Function:
    """The program of a direction; its parameters are the operands and, where gw is written, `share`.

    Problems of uvw paths with shared weights take several edges at a time, if a stack has place for that.
    """
    several = uvw.of_several_edges(paths, direction, SHARE)
    if several is not None and stack.needs(several, paths.lanes) <= stack.available():
        return several
    b, problem = Builder(), paths.problem
    rows = edges.rows_of(paths, direction, dict.fromkeys("xyzw", E), SHARE)
    scratch = edges.scratch_of(b, paths, direction)
    edges.load_x(b, paths, direction.reading("x"), rows, scratch)
    if direction.gradients:
        scratch["gx"] = edges.vectors_of(b, paths, "gxs", paths.slots1.size)
        clear(b, scratch["gx"], paths.slots1.size)
        clear(b, scratch["gy"], problem.dims[1])
    _paths(b, paths, direction, rows, scratch)
    if direction.gradients:
        edges.store_slots(b, paths.slots1, scratch["gx"], rows["gx"])
        edges.clear_unreached(b, rows["gx"], paths.slots1, problem.slices1)
        edges.store_gy(b, paths, scratch["gy"], rows["gy"])
    modes.call(b, paths, direction, {name: row[0] for name, row in rows.items()})
    shares: tuple[Value, ...] = (SHARE,) if direction.gradients else ()
    return b.function(direction.key, (*(row.array for row in rows.values()), *shares), group=E)


def _paths(b: Builder, paths: Paths, direction: Direction, rows: edges.Rows, scratch: edges.Scratch) -> None:
    """All uvu paths. A slot of z is written by its path if it has one, else all its paths add to it in scratch."""
    slots, out = paths.slots3, direction.output
    if out:
        edges.clear_unreached(b, rows[out], slots, paths.problem.slices3)
    several = [channels.size for slot, channels in slots.channels.items() if len(paths.to(slot)) > 1]
    zs = edges.vectors_of(b, paths, "zs", max(several)) if out and several else None
    for slot, channels in slots.channels.items():
        if not out or zs is None or len(paths.to(slot)) == 1:
            z = rows[out][slots.start[slot]] if out else None
            edges.call_paths(b, paths, direction, slot, rows, scratch, z)
            continue
        clear(b, zs, channels.size)
        edges.call_paths(b, paths, direction, slot, rows, scratch, edges.view(zs))
        b.call(uvu.store(channels), rows[out][slots.start[slot]], edges.view(zs))
