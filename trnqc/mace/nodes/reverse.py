"""Reverse programs of a layer: the gradients of the energy with respect to the arrays of `forward`.

The gradient with respect to an array has a g before its name. ``gs`` is the part of gh that the self-connection of the
next layer adds, ``gr`` that of gx that the residual adds, ``grho`` is the gradient with respect to the densities.
"""

from __future__ import annotations

from trnqc.gen import const
from trnqc.gen.values import fma
from trnqc.mace.nodes import gates
from trnqc.mace.nodes.forward import steps
from trnqc.mace.nodes.plan import LayerPlan, NodePlan, ReadoutPlan
from trnqc.mace.nodes.stage import AtomRows, NodeProgram, NodeStage


def features(plan: NodePlan, t: int) -> NodeProgram:
    """The program to the gradient of the contraction's output, and to the gradient for the preceding layer."""
    layer, stage = plan.layers[t], NodeStage(plan.tile, plan.dtype)
    gh = stage.rows(f"gh{t}", layer.features.width)
    if t + 1 < len(plan.layers):
        _from_next(stage, plan.layers[t + 1], t + 1, gh)
    else:
        stage.fill(gh)
    for r, readout in enumerate(layer.readouts):
        _readout(stage, readout, f"{t}_{r}", gh)
    stage.linear(layer.product.reverse, gh, stage.rows(f"gb{t}", layer.contracted.width))
    if layer.skip:
        stage.linear(layer.skip.reverse, gh, stage.rows(f"gs{t}", layer.skip.input.width))
    return stage.program(f"features_reverse{t}")


def _from_next(stage: NodeStage, after: LayerPlan, t: int, gh: AtomRows) -> None:
    assert after.up is not None
    stage.linear(after.up.reverse, stage.rows(f"gx{t}", after.sent.width), gh)
    if after.residual:
        stage.linear(after.up.reverse, stage.rows(f"gr{t}", after.sent.width), gh, add=True)
    if after.skip:
        stage.copy(stage.rows(f"gs{t}", gh.width), gh, add=True)


def _readout(stage: NodeStage, readout: ReadoutPlan, name: str, gh: AtomRows) -> None:
    """Add the gradient of a readout to gh. The arrays y become gradients with respect to z."""
    b = stage.b
    if not readout.hidden:
        stage.add_row(gh, readout.row, stage.tile.vectors_of(readout.channels))
        return
    for k in reversed(range(len(readout.hidden))):
        layer = readout.hidden[k]
        width = stage.tile.vectors_of(layer.matrix.outputs)
        z, gz = stage.rows(f"z{name}_{k}", width), stage.rows(f"y{name}_{k}", width)
        last = k == len(readout.hidden) - 1
        with stage.elements(width) as (node, v):
            g = stage.parameters[v + readout.row] if last else gz.at(node, v)
            b.store(gz.at(node, v), g * stage.slope(layer.act, b.let("z", z.at(node, v))))
        target = stage.rows(f"y{name}_{k - 1}", stage.tile.vectors_of(layer.matrix.inputs)) if k else gh
        stage.product(layer.transposed, (gz, 0), (target, 0), add=not k)


def messages(plan: NodePlan, t: int) -> NodeProgram:
    """The program from the gradient of the contraction's input to the gradient of the sums over edges."""
    layer, stage = plan.layers[t], NodeStage(plan.tile, plan.dtype)
    names = list(reversed(steps(layer)))
    rows = iter(names[1:])
    g = stage.rows(f"gm{t}", layer.messages.width)
    if layer.after:
        name = next(rows)
        below = stage.rows(f"g{name}{t}", layer.after.input.width)
        stage.linear(layer.after.reverse, g, below)
        g = below
    if layer.gate:
        name, (gate, layout) = next(rows), layer.gate
        below = stage.rows(f"g{name}{t}", layout.width)
        gates.reverse(stage, gate, layout, stage.rows(f"{name}{t}", layout.width), g, below)
        g = below
    if layer.residual and t:
        stage.linear(layer.residual.reverse, g, stage.rows(f"gr{t}", layer.sent.width))
    if layer.density:
        _density(stage, layer, t, g)
    stage.linear(layer.linear.reverse, g, stage.rows(f"ga{t}", layer.edges.width))
    return stage.program(f"messages_reverse{t}")


def _density(stage: NodeStage, layer: LayerPlan, t: int, g: AtomRows) -> None:
    """Divide g by the denominators d = slope rho + offset, and store grho = -slope <g, l> / d."""
    assert layer.density is not None
    b, (slope, offset) = stage.b, layer.density
    rho, g_rho = stage.numbers(f"rho{t}", stage.dtype), stage.numbers(f"grho{t}", stage.dtype)
    l = stage.rows(f"{steps(layer)[0]}{t}", g.width)
    with stage.nodes() as node:
        inverse = b.let("inverse", 1.0 / fma(slope, rho[node], const(offset, stage.dtype)))
        along = b.declare("along", const(0.0, stage.dtype))
        with b.loop("v", g.width) as v:
            b.assign(along, fma(g.at(node, v), l.at(node, v), along))
            b.store(g.at(node, v), g.at(node, v) * inverse)
        b.store(g_rho[node], 0)
        b.accumulate(g_rho[node], (-slope) * inverse * along)
