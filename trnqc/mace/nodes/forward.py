"""Forward programs of a layer: the input of its contraction, then its features, energies and what atoms send next.

The arrays of layer t have its number at their end:

======  ==============================================================  ======  =======================================
``a``   sums over edges                                                  ``b``   output of the contraction
``l``   those after the linear layer and the denominator                 ``h``   features after the layer
``p``   l + residual, the input of the gate                              ``x``   what atoms send
``u``   output of the gate                                               ``z``   input of act in readout r, step k
``m``   input of the contraction                                         ``y``   output of act in readout r, step k
======  ==============================================================  ======  =======================================

``rho`` are densities, ``energies`` the energies of the atoms.
"""

from __future__ import annotations

from trnqc.mace.nodes import gates
from trnqc.mace.nodes.plan import LayerPlan, NodePlan, ReadoutPlan
from trnqc.mace.nodes.stage import AtomRows, NodeProgram, NodeStage


def steps(layer: LayerPlan) -> list[str]:
    """The arrays that follow one another from the linear layer to the contraction, such as ["l", "p", "u", "m"]."""
    parts = ["l", *["p"] * bool(layer.residual), *["u"] * bool(layer.gate), *["x"] * bool(layer.after)]
    return [*parts[:-1], "m"]


def messages(plan: NodePlan, t: int) -> NodeProgram:
    """The program from the sums over edges to the input of the contraction."""
    layer, stage = plan.layers[t], NodeStage(plan.tile, plan.dtype)
    names = iter(steps(layer))
    current = stage.rows(f"{next(names)}{t}", layer.linear.output.width)
    stage.linear(layer.linear, stage.rows(f"a{t}", layer.edges.width), current)
    if layer.density:
        stage.scale(current, stage.numbers(f"rho{t}", plan.dtype), *layer.density)
    if layer.residual:
        total = stage.rows(f"{next(names)}{t}", current.width)
        stage.copy(current, total)
        stage.linear(layer.residual, stage.rows(f"x{t}", layer.sent.width), total, add=True)
        current = total
    if layer.gate:
        gated = stage.rows(f"{next(names)}{t}", layer.messages.width)
        gates.forward(stage, *layer.gate, current, gated)
        current = gated
    if layer.after:
        stage.linear(layer.after, current, stage.rows(f"{next(names)}{t}", layer.messages.width))
    return stage.program(f"messages{t}")


def features(plan: NodePlan, t: int) -> NodeProgram:
    """The program from the output of the contraction to features, energies and the vectors sent to the next layer."""
    layer, stage = plan.layers[t], NodeStage(plan.tile, plan.dtype)
    h = stage.rows(f"h{t}", layer.features.width)
    stage.linear(layer.product, stage.rows(f"b{t}", layer.contracted.width), h)
    if layer.skip:
        stage.linear(layer.skip, stage.rows(f"h{t - 1}", layer.skip.input.width), h, add=True)
    if layer.skip_table:
        stage.add_row(h, stage.place(layer.skip_table), h.width)
    for r, readout in enumerate(layer.readouts):
        _readout(stage, readout, f"{t}_{r}", h)
    if t + 1 < len(plan.layers):
        up = plan.layers[t + 1].up
        assert up is not None
        stage.linear(up, h, stage.rows(f"x{t + 1}", up.output.width))
    return stage.program(f"features{t}")


def _readout(stage: NodeStage, readout: ReadoutPlan, name: str, h: AtomRows) -> None:
    source, width = h, stage.tile.vectors_of(readout.channels)
    for k, layer in enumerate(readout.hidden):
        width = stage.tile.vectors_of(layer.matrix.outputs)
        z = stage.rows(f"z{name}_{k}", width)
        if k:
            y = stage.rows(f"y{name}_{k - 1}", source.width)
            with stage.elements(source.width) as (node, v):
                z_below = stage.b.let("z", source.at(node, v))
                stage.b.store(y.at(node, v), stage.activated(readout.hidden[k - 1].act, z_below))
            source = y
        stage.product(layer.matrix, (source, 0), (z, 0))
        if layer.bias is not None:
            stage.add_row(z, layer.bias, width)
        source = z
    act = readout.hidden[-1].act if readout.hidden else None
    stage.add_dots(stage.numbers("energies", "f64"), readout.row, width, source, act)
