"""What the paths of all modes but uvu add to an edge's rows in memory, direction by direction."""

from __future__ import annotations

from collections.abc import Mapping

from trnqc.cg.programs import channel_pairs, outer, uvw
from trnqc.cg.programs.edges import Row
from trnqc.cg.programs.paths import Body, Paths
from trnqc.gen import statements as st


def part(paths: Paths, direction: str, rows: Mapping[str, Row], weighted: bool = False) -> Body:
    """Calls for an edge, to be run after what they add to is there; nothing for a problem without such paths.

    direction: forward, backward or double_backward. rows: its operands, w and gradients of w as they are shared or not.
    weighted: only the paths with weights, where a direction stands for w.
    """
    kind = next(kind for kind in uvw.OPERANDS if kind.__name__ == direction)
    views = tuple(rows[name][0] for name in uvw.OPERANDS[kind])
    others = (paths.problem, paths.dtype, paths.lanes, weighted)
    functions = [getattr(channel_pairs, direction)(group) for group in channel_pairs.groups(*others)]
    functions += [getattr(outer, direction)(path) for path in outer.paths(*others)]
    return [*uvw.part(paths, kind, rows), *(st.Call(function, views) for function in functions)]
