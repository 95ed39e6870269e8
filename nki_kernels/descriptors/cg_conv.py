"""Descriptor of `nki_kernels.cg.conv`, and what it shares with that of the gradients.

A shape is a layer of a model: features of some channels and degrees 0, 1, ..., harmonics of degrees 0, 1, ..., and a
graph whose nodes have equal numbers of neighbours. Every path has a slot of the result and weights for each edge. If
the layer does not fit one launch, the shape stands for its first paths and channels. The knobs are the receivers of a
window, the tiles of an item, and the hundredths of the products of weights and features that GpSimd computes.
"""

from __future__ import annotations

import functools
from dataclasses import dataclass
from typing import Any

import numpy as np

from nki_kernels.cg.blocks import COLUMNS, RUN, segments_of, starts_of
from nki_kernels.cg.conv import cg_conv, reference_cg_conv
from nki_kernels.cg.memory import fits, sbuf_bytes, widest_window
from nki_kernels.cg.windows import DEPTHS, Sorted, choose, windows_of
from nki_kernels.descriptors.descriptor import (
    Fill,
    Launch,
    NkiKernel,
    P,
    Values,
    ceil,
    ladder,
    require,
    require_sbuf,
    require_unrolled,
)
from trnqc.sim.machine.targets import TARGETS

SMALL = {"channels": 5, "xdegrees": 2, "ydegrees": 3, "nodes": 20, "neighbours": 7}
"""Channels of the features, numbers of degrees of features and harmonics, nodes, and neighbours of a node."""
MATRICES = 64
"""The most coupling matrices of a launch; each takes 512 bytes of SBUF on every partition."""
SHARE = 40
"""The default of the kernels' argument ``share``."""
FP32 = np.dtype(np.float32)
"""The type of all operands."""
SMALLEST = min(TARGETS, key=lambda name: TARGETS[name].sbuf_usable)
"""The generation with the least memory, which defaults fit."""


@dataclass(frozen=True)
class Layer:
    """The terms and results of a launch (`nki_kernels.cg.blocks`).

    Parameters
    ----------
    terms, results
        Paths with one channel of y, and slots of z.
    d1, d2, d3, weights
        Columns of x, y, z and w.
    """

    terms: tuple[tuple[int, ...], ...]
    results: tuple[tuple[int, ...], ...]
    d1: int
    d2: int
    d3: int
    weights: int

    @property
    def matrices(self) -> int:
        """The number of coupling matrices."""
        return self.terms[-1][9] + self.terms[-1][4]

    @property
    def flops_of_edge(self) -> float:
        """Flops of an edge with full coupling matrices."""
        return sum(2.0 * t[1] * t[4] * r[2] * r[3] for t, r in zip(self.terms, self.results))


@functools.cache
def layer_of(channels: int, xdegrees: int, ydegrees: int) -> Layer:
    """All paths of the layer, or as many of the first ones as fit every chip."""
    width = min(channels, RUN, COLUMNS // (2 * xdegrees - 1))
    paths = [
        (i, j, k)
        for i in range(xdegrees)
        for j in range(ydegrees)
        for k in range(abs(i - j), min(i + j, ydegrees - 1) + 1)
        if (i + j + k) % 2 == 0
    ]
    layer = _layer(paths[:1], width, xdegrees)
    for n in range(2, len(paths) + 1):
        larger = _layer(paths[:n], width, xdegrees)
        if starts_of(larger.terms)[1] > COLUMNS or larger.matrices > MATRICES:
            break
        if not fits(_by_harmonics(larger), larger.results, 1, 1, True, SMALLEST):
            break
        layer = larger
    return layer


def _layer(paths: list[tuple[int, int, int]], width: int, xdegrees: int) -> Layer:
    terms, results, z0, coupling = [], [], 0, 0
    for n, (i, j, k) in enumerate(paths):
        dx, dz = 2 * i + 1, 2 * k + 1
        terms.append((j * j, 2 * j + 1, i * i * width, width, dx, n * width, 1, width, n, coupling))
        results.append((z0, width, dz, width))
        z0, coupling = z0 + dz * width, coupling + dx
    d2 = max(term[0] + term[1] for term in terms)
    return Layer(tuple(terms), tuple(results), xdegrees**2 * width, d2, z0, len(paths) * width)


def _by_harmonics(layer: Layer) -> tuple[tuple[int, ...], ...]:
    """The terms in the order in which the kernels take them."""
    return tuple(sorted(layer.terms))


def block_of(shape: Values) -> tuple[Layer, dict[str, Any]]:
    """The layer of a shape, and the constants ``terms`` and ``results``."""
    layer = layer_of(shape["channels"], shape["xdegrees"], shape["ydegrees"])
    return layer, {"terms": _by_harmonics(layer), "results": layer.results}


def edges_of(nodes: int, neighbours: int, by_sender: bool = False) -> Sorted:
    """The edges of a graph with random neighbours, sorted by receiver or by sender."""
    receivers = np.repeat(np.arange(nodes), neighbours)
    senders = np.random.default_rng(0).integers(0, nodes, len(receivers))
    near, far = (senders, receivers) if by_sender else (receivers, senders)
    order = np.argsort(near, kind="stable")
    return Sorted(order, np.searchsorted(near[order], np.arange(nodes + 1)), far[order])


def couplings_of(layer: Layer, window: int, fill: Fill) -> Any:
    """C ⊗ 1 for windows of this size, with coefficients by ``fill``; a full matrix if ``fill`` makes no numbers."""
    coefficients = fill((layer.matrices, P // window, P // window), FP32)
    if not isinstance(coefficients, np.ndarray):
        return fill((layer.matrices, P, P), FP32)
    matrices, size = np.zeros((layer.matrices, P, P), np.float32), P // window * window
    matrices[:, :size, :size] = np.kron(coefficients, np.eye(window, dtype=np.float32))
    return matrices


def knobs(backward: bool, shape: Values) -> dict[str, list[int]]:
    """The values of each knob."""
    _, block = block_of(shape)
    window = widest_window(block["terms"], block["results"], backward)
    return {"window": ladder(window), "depth": list(DEPTHS), "share": [0, 20, SHARE, 60]}


def default(backward: bool, shape: Values, precision: str) -> dict[str, int]:
    """The window and the depth that the cost model chooses for the graph."""
    _, block = block_of(shape)
    edges = edges_of(shape["nodes"], shape["neighbours"])
    window, depth = choose(edges, block["terms"], block["results"], backward, SMALLEST)
    return {"window": window, "depth": depth, "share": SHARE}


def realise(backward: bool, point: Values, shape: Values, precision: str, target: str) -> dict[str, int]:
    """The constants of a point, which are its own values; raises Infeasible."""
    require(precision == "fp32", f"precision: the kernels compute in fp32, not in {precision}")
    _, block = block_of(shape)
    terms, results = block["terms"], block["results"]
    window, depth, most = point["window"], point["depth"], widest_window(terms, results, backward)
    require(1 <= window <= most, f"window: {window} receivers, {most} fit the partitions and a bank of PSUM")
    require(depth >= 1, f"depth: {depth} tiles of an item, at least one is needed")
    require(0 <= point["share"] <= 100, f"share: {point['share']} hundredths")
    tiles = max(1, ceil(window * shape["neighbours"], P))
    require(depth <= max(2, tiles), f"depth: {depth} tiles of an item, but windows have about {tiles}")
    require_sbuf(sbuf_bytes(terms, results, window, depth, backward), target)
    products = ceil(starts_of(terms)[1], P) * 4 if backward else len(segments_of(terms))
    require_unrolled(depth * products)
    return dict(point)


def gate_graph(constants: Values) -> tuple[int, int]:
    """Nodes and neighbours for windows of two items, the second with one edge or more, and for a smaller window."""
    window, depth = constants["window"], constants["depth"]
    return window + 1, P * depth // window + 1


def operands_of(layer: Layer, nodes: int, edges: int, fill: Fill) -> tuple[Any, Any, Any]:
    """x, y and w."""
    return fill((nodes, layer.d1), FP32), fill((edges, layer.d2), FP32), fill((edges, layer.weights), FP32)


def _launch(shape: Values, constants: Values, nodes: int, neighbours: int, cores: int, fill: Fill) -> Launch:
    (layer, block), window = block_of(shape), constants["window"]
    windows = windows_of(edges_of(nodes, neighbours), window, constants["depth"], cores)
    operands = operands_of(layer, nodes, nodes * neighbours, fill)
    args = (*operands, windows.table, windows.bounds, couplings_of(layer, window, fill))
    sizes = {"window": window, "nodes": windows.nodes, "length": layer.d3, "share": constants["share"]}
    return Launch(args, block | sizes, nodes * neighbours * layer.flops_of_edge)


def _example(shape: Values, precision: str, constants: Values, cores: int, fill: Fill) -> Launch:
    return _launch(shape, constants, shape["nodes"], shape["neighbours"], cores, fill)


def _gate(shape: Values, precision: str, constants: Values, cores: int, fill: Fill) -> Launch:
    return _launch(shape, constants, *gate_graph(constants), cores, fill)


KERNEL = NkiKernel(
    name="cg_conv",
    function=cg_conv,
    reference=reference_cg_conv,
    small=SMALL,
    contracted="nodes",
    workload="a layer of a model on a graph with equal numbers of neighbours",
    knobs=functools.partial(knobs, False),
    default=functools.partial(default, False),
    default_point=functools.partial(default, False),
    realise=functools.partial(realise, False),
    example=_example,
    gate=_gate,
    precisions=("fp32",),
)
