"""The gated non-linearity of a block of atoms, and its reverse."""

from __future__ import annotations

from collections.abc import Iterator

from trnqc.gen.build import dot
from trnqc.mace.model import Gate
from trnqc.mace.nodes.layout import FeatureLayout
from trnqc.mace.nodes.stage import AtomRows, NodeStage


def forward(stage: NodeStage, gate: Gate, layout: FeatureLayout, source: AtomRows, target: AtomRows) -> None:
    """target = gate(source); `layout` is the layout of the source."""
    b = stage.b
    with stage.nodes() as node:
        with b.loop("v", layout.vectors[0]) as v:
            b.store(target.at(node, v), gate.scalar_constant * stage.silu(b.let("z", source.at(node, v))))
        for at_gate, ins, outs, count in _gated(gate, layout):
            with b.loop("v", count) as v:
                s = stage.sigmoid(b.let("z", source.at(node, v + at_gate)))
                factor = b.let("factor", gate.gate_constant * s)
                for i, o in zip(ins, outs):
                    b.store(target.at(node, v + o), source.at(node, v + i) * factor)


def reverse(
    stage: NodeStage, gate: Gate, layout: FeatureLayout, source: AtomRows, g_target: AtomRows, g_source: AtomRows
) -> None:
    """Store the gradient with respect to the source, from that with respect to the target."""
    b = stage.b
    with stage.nodes() as node:
        with b.loop("v", layout.vectors[0]) as v:
            slope = stage.silu_slope(b.let("z", source.at(node, v)))
            b.store(g_source.at(node, v), gate.scalar_constant * slope * g_target.at(node, v))
        for at_gate, ins, outs, count in _gated(gate, layout):
            with b.loop("v", count) as v:
                s = stage.sigmoid(b.let("z", source.at(node, v + at_gate)))
                g = [b.let("g", g_target.at(node, v + o)) for o in outs]
                along = b.let("along", dot([(x, source.at(node, v + i)) for x, i in zip(g, ins)]))
                b.store(g_source.at(node, v + at_gate), gate.gate_constant * (s - s * s) * along)
                factor = b.let("factor", gate.gate_constant * s)
                for x, i in zip(g, ins):
                    b.store(g_source.at(node, v + i), x * factor)


def _gated(gate: Gate, layout: FeatureLayout) -> Iterator[tuple[int, list[int], list[int], int]]:
    """Yield for each gated slot the vector of its gates, those of its components in source and target, and a count.

    The count is the number of vectors of a component.
    """
    out = FeatureLayout(gate.irreps_out, layout.lanes)
    number = len(gate.irreps_out) - 1
    for n in range(1, number + 1):
        count, components = out.vectors[n], range(out.irreps[n].ir.dim)
        ins = [layout.starts[number + n] + count * m for m in components]
        yield layout.starts[n], ins, [out.starts[n] + count * m for m in components], count
