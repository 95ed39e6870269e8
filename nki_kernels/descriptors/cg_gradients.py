"""Descriptor of `nki_kernels.cg.gradients`, with the shapes and knobs of `cg_conv`."""

from __future__ import annotations

import functools

import numpy as np

from nki_kernels.cg.blocks import SENDER_DEPTH
from nki_kernels.cg.gradients import cg_gradients, reference_cg_gradients
from nki_kernels.cg.windows import windows_of
from nki_kernels.descriptors.cg_conv import (
    FP32,
    SMALL,
    block_of,
    couplings_of,
    default,
    edges_of,
    gate_graph,
    knobs,
    operands_of,
    realise,
)
from nki_kernels.descriptors.descriptor import Fill, Launch, NkiKernel, P, Values


def _launch(shape: Values, constants: Values, nodes: int, neighbours: int, cores: int, fill: Fill) -> Launch:
    (layer, block), window = block_of(shape), constants["window"]
    windows = windows_of(edges_of(nodes, neighbours), window, constants["depth"], cores)
    senders = windows_of(edges_of(nodes, neighbours, by_sender=True), P, SENDER_DEPTH, cores)
    gz, matrices = fill((windows.nodes, layer.d3), FP32), couplings_of(layer, window, fill)
    if isinstance(matrices, np.ndarray):
        matrices = np.ascontiguousarray(matrices.transpose(0, 2, 1))
    tables = (windows.table, windows.bounds, senders.table, senders.bounds)
    args = (*operands_of(layer, nodes, nodes * neighbours, fill), gz, *tables, matrices)
    sizes = {"window": window, "share": constants["share"]}
    return Launch(args, block | sizes, 3 * nodes * neighbours * layer.flops_of_edge)


def _example(shape: Values, precision: str, constants: Values, cores: int, fill: Fill) -> Launch:
    return _launch(shape, constants, shape["nodes"], shape["neighbours"], cores, fill)


def _gate(shape: Values, precision: str, constants: Values, cores: int, fill: Fill) -> Launch:
    return _launch(shape, constants, *gate_graph(constants), cores, fill)


KERNEL = NkiKernel(
    name="cg_gradients",
    function=cg_gradients,
    reference=reference_cg_gradients,
    small=SMALL,
    contracted="nodes",
    workload="the gradients of a layer of a model on a graph with equal numbers of neighbours",
    knobs=functools.partial(knobs, True),
    default=functools.partial(default, True),
    default_point=functools.partial(default, True),
    realise=functools.partial(realise, True),
    example=_example,
    gate=_gate,
    precisions=("fp32",),
)
