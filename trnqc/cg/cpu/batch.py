"""Programs over a batch of independent edges: every operand has one row for each edge, shared weights have one row.

Ranges of edges may run at the same time. Each range adds its gradient of shared weights to a row of its own, `share`.
"""

from __future__ import annotations

from trnqc.cg.cpu import modes, stack
from trnqc.cg.cpu.edges import EdgeWriter, edge_writer
from trnqc.cg.cpu.modes import uvw
from trnqc.cg.cpu.slots import store
from trnqc.cg.cpu.target import ProductTarget
from trnqc.cg.cpu.vectors import clear, declare_vectors, view
from trnqc.cg.programs.directions import Direction
from trnqc.gen import Value, Var
from trnqc.gen import statements as st
from trnqc.gen.build import Builder

E, SHARE = Var("e", "i64"), Var("share", "i64")


def batch_program(target: ProductTarget, direction: Direction) -> st.Function:
    """Return the program of a direction.

    Its parameters are the operands and, if gw is written, `share`. If all paths are uvw and edges share their weights,
    it computes several edges at a time, unless their scratch is larger than the stack.
    """
    if uvw.computes_several(target):
        several = uvw.of_several_edges(target, direction, SHARE)
        if stack.needs(several, target.lanes) <= stack.available():
            return several
    b = Builder()
    edge = edge_writer(b, target, direction, dict.fromkeys("xyzw", E), SHARE)
    edge.load_x()
    if direction.gradients:
        size = target.uvu_slots["x"].size
        edge.scratch["gx"] = declare_vectors(b, "gxs", size, target.dtype)
        clear(b, edge.scratch["gx"], size)
        clear(b, edge.scratch["gy"], target.problem.dims[1])
    _write_uvu(edge)
    if direction.gradients:
        edge.store_slots("gx", edge.scratch["gx"])
        edge.store_gy()
    modes.call(b, target, direction, {name: row[0] for name, row in edge.rows.items()})
    shares: tuple[Value, ...] = (SHARE,) if direction.gradients else ()
    return b.function(direction.key, (*(row.array for row in edge.rows.values()), *shares), group=E)


def _write_uvu(edge: EdgeWriter) -> None:
    """Write all uvu paths. If several paths lead to a slot of z, they add to it in scratch."""
    b, target, out = edge.b, edge.target, edge.direction.output
    slots = target.uvu_slots["z"]
    if out:
        edge.clear_unreached(out)
    several = [channels.size for slot, channels in slots.channels.items() if len(target.uvu_paths_to(slot)) > 1]
    zs = declare_vectors(b, "zs", max(several), target.dtype) if out and several else None
    for slot, channels in slots.channels.items():
        if not out or zs is None or len(target.uvu_paths_to(slot)) == 1:
            edge.call_paths(slot, edge.rows[out][slots.start[slot]] if out else None)
            continue
        clear(b, zs, channels.size)
        edge.call_paths(slot, view(zs))
        b.call(store(channels), edge.rows[out][slots.start[slot]], view(zs))
