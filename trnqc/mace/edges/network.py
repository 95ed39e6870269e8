"""The program of a network on a block of edges: radial functions -> weights, and their derivatives by the length.

radial [rows, size] -> product -> bias, silu -> product -> ... -> weights [vectors, edges of the block, lanes]

The derivative along the length passes through the same products as rows of their own, below those of the values
(forward mode). So it costs as much as the values, and neither activations nor gradients of weights are stored.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

import numpy as np

from trnqc.errors import UnsupportedError
from trnqc.gen import Array, Value, const
from trnqc.gen import statements as st
from trnqc.gen.build import Builder
from trnqc.gen.values import exp, fma, minimum
from trnqc.mace.edges.block import FIRST, ROWS, params
from trnqc.mace.edges.geometry.programs import EDGES, ELEMENTS, RECEIVERS, SENDERS
from trnqc.mace.gemm import Tile, pack, product
from trnqc.mace.model import Network


@dataclass(frozen=True)
class NetworkWeights:
    """Weights by a network; what its program depends on.

    Parameters
    ----------
    widths : tuple of int
        Numbers of inputs and of the outputs of each layer, the last one in whole vectors.
    bias, silu : tuple of bool
        Whether each layer has a bias and an activation function.
    elements : int
        Number of elements on which the first layer depends, 0 if it does not.
    cutoff : bool
        Whether the cutoff function multiplies the outputs.
    tile : Tile
    dtype : {"f32", "f64"}
    edges : int
        Largest number of edges of a block, a multiple of the rows of a tile.
    """

    widths: tuple[int, ...]
    bias: tuple[bool, ...]
    silu: tuple[bool, ...]
    elements: int
    cutoff: bool
    tile: Tile
    dtype: str
    edges: int

    @cached_property
    def vectors(self) -> tuple[int, ...]:
        """Number of vectors of the outputs of each layer."""
        return tuple(self.tile.vectors_of(n) for n in self.widths[1:])

    @property
    def multiple(self) -> int:
        """The rows of a block are whole tiles."""
        return self.tile.rows

    @property
    def size(self) -> int:
        """Number of radial functions."""
        return self.widths[0]

    @property
    def hidden(self) -> int:
        """Largest number of vectors of a row of a hidden layer."""
        return max(self.vectors[:-1], default=0)

    @cached_property
    def offsets(self) -> tuple[dict[str, int], ...]:
        """Where the weights, the bias and the tables of the elements of each layer begin in the parameters."""
        place, layers = 0, []
        for n, vectors in enumerate(self.vectors):
            layer = {"weight": place}
            place += self.widths[n] * vectors
            for name, size in (("bias", self.bias[n]), ("sender", self.elements), ("receiver", self.elements)):
                if size and (n == 0 or name == "bias"):
                    layer[name] = place
                    place += size * vectors
            layers.append(layer)
        return tuple(layers)

    def program(self, slopes: bool) -> st.Function:
        """The program of a block, with the parameters of `block.params`."""
        return _Program(self, slopes).function()


def network_weights(network: Network, columns: int, cutoff: bool, tile: Tile, dtype: str, edges: int) -> NetworkWeights:
    """The shape of a network whose last layer is padded to `columns` outputs. Raises UnsupportedError."""
    layers = network.layers
    if any(layer.norm is not None for layer in layers):
        raise UnsupportedError(
            "a radial network has layer normalisation, which the exact kernels do not have: use radial='spline'"
        )
    widths = (layers[0].weight.shape[0], *(layer.weight.shape[1] for layer in layers[:-1]), columns)
    return NetworkWeights(
        widths,
        tuple(layer.bias is not None for layer in layers),
        tuple(layer.silu for layer in layers),
        0 if network.sender is None else len(network.sender),
        cutoff,
        tile,
        dtype,
        edges,
    )


def parameters(shape: NetworkWeights, network: Network, last: np.ndarray, bias: np.ndarray | None) -> np.ndarray:
    """Return the parameters of a network as vectors, in the order of `NetworkWeights.offsets`.

    Parameters
    ----------
    shape : NetworkWeights
    network : Network
    last, bias : numpy.ndarray
        Weights and bias of the last layer with the columns of the outputs, instead of those of the network.
    """
    tile, parts = shape.tile, []
    for n, layer in enumerate(network.layers):
        final = n + 1 == len(network.layers)
        parts.append(pack(last if final else layer.weight, tile))
        if layer.bias is not None:
            parts.append(_rows((bias if final and bias is not None else layer.bias)[None], tile))
        if n == 0 and network.sender is not None and network.receiver is not None:
            parts += [_rows(network.sender, tile), _rows(network.receiver, tile)]
    return np.concatenate(parts).astype({"f32": np.float32, "f64": np.float64}[shape.dtype])


def _rows(table: np.ndarray, tile: Tile) -> np.ndarray:
    """Rows of a table as vectors, padded with zeros."""
    vectors = tile.vectors_of(table.shape[1])
    padded = np.zeros((len(table), vectors * tile.lanes))
    padded[:, : table.shape[1]] = table
    return padded.reshape(-1, tile.lanes)


class _Program:
    """The program under construction."""

    def __init__(self, shape: NetworkWeights, slopes: bool) -> None:
        self.shape, self.slopes, self.b = shape, slopes, Builder()
        self.copies = 2 if slopes else 1
        self.step = shape.edges * self.copies
        self.params = params(shape.dtype, shape.size, slopes)
        self.inputs = [self.array(name) for name in ("radial", "slopes")[: self.copies]]
        self.cutoff, self.parameters = self.array("cutoff"), self.array("parameters")
        self.sums, self.hidden, self.weights = (self.array(name) for name in ("sums", "hidden", "weights"))

    def array(self, name: str) -> Array:
        array = self.params[name]
        assert isinstance(array, Array)
        return array

    def function(self) -> st.Function:
        s, b = self.shape, self.b
        for n in range(len(s.vectors)):
            if n + 1 == len(s.vectors):
                self._multiply(n, self.weights, 1, self.step)
            else:
                self._multiply(n, self.sums, s.vectors[n], 1)
                self._activate(n)
        if s.cutoff or self._adds(len(s.vectors) - 1):
            self._finish()
        name = f"network_{s.dtype}_{'_'.join(map(str, s.widths))}{'_slopes' * self.slopes}"
        return b.function(name, self.params.values())

    def _multiply(self, n: int, out: Array, row: int, vector: int) -> None:
        """Products of layer n: of the radial functions, or of all rows of the hidden layer at once."""
        s, multiply = self.shape, product(self.shape.tile, self.shape.dtype)
        depth, vectors = _i64(s.widths[n]), _i64(s.vectors[n])
        right = st.view(self.parameters[s.offsets[n]["weight"]])
        strides = _i64(row), _i64(vector)
        if n:
            width, rows = _i64(s.vectors[n - 1] * s.tile.lanes), ROWS * self.copies
            self.b.call(multiply, rows, depth, vectors, self.hidden, width, right, out, *strides)
            return
        for copy, source in enumerate(self.inputs):
            left, place = st.view(source[FIRST, 0]), st.view(out[ROWS * (copy * row)])
            self.b.call(multiply, ROWS, depth, vectors, left, depth, right, place, *strides)

    def _activate(self, n: int) -> None:
        """Write silu of the sums, and its derivative, as rows of the next product."""
        s, b, sums, hidden = self.shape, self.b, self.sums, self.hidden
        vectors, lanes = s.vectors[n], s.tile.lanes
        with b.loop("row", ROWS) as row, b.loop("v", vectors) as v:
            at = b.let("at", row * vectors + v)
            x = b.let("x", sums[at] + self._added(n, row, v) if self._adds(n) else sums[at])
            value, slope = _silu(b, x) if s.silu[n] else (x, const(1.0, s.dtype))
            results = [(at, value)]
            if self.slopes:
                below = b.let("below", at + ROWS * vectors)
                results.append((below, slope * sums[below]))
            for place, result in results:
                vector = b.array("vector", s.dtype, (1,), lanes=True)
                b.store(vector[0], result)
                b.add(st.Pack(hidden, place * lanes, vector, _i64(0), 1, 1, lanes))

    def _adds(self, n: int) -> bool:
        return self.shape.bias[n] or bool(n == 0 and self.shape.elements)

    def _added(self, n: int, row: Value, v: Value) -> Value:
        """The bias and what the elements of the edge add to a vector of layer n."""
        parts, vectors = self.shape.offsets[n], self.shape.vectors[n]
        terms = [self.parameters[parts["bias"] + v]] if "bias" in parts else []
        if "sender" in parts:
            edge = minimum(FIRST + row, EDGES - 1)
            for name, ends in (("sender", SENDERS), ("receiver", RECEIVERS)):
                terms.append(self.parameters[parts[name] + ELEMENTS[ends[edge]] * vectors + v])
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        return total

    def _finish(self) -> None:
        """Add the bias of the last layer to the weights, and multiply them by the cutoff function."""
        s, b, n = self.shape, self.b, len(self.shape.vectors) - 1
        with b.loop("v", s.vectors[-1]) as v, b.loop("row", ROWS) as row:
            at = b.let("at", v * self.step + row)
            value = b.let("w", self.weights[at] + self._added(n, row, v) if self._adds(n) else self.weights[at])
            f, df = (self.cutoff[minimum(FIRST + row, EDGES - 1), k] for k in range(2))
            b.store(self.weights[at], value * f if s.cutoff else value)
            if s.cutoff and self.slopes:
                below = b.let("below", at + ROWS)
                b.store(self.weights[below], fma(value, df, self.weights[below] * f))


def _silu(b: Builder, x: Value) -> tuple[Value, Value]:
    """x s and its derivative s (1 + x (1 - s)), with s = 1 / (1 + exp(-x))."""
    s = b.let("s", 1.0 / (exp(-x) + 1.0))
    return x * s, s * fma(x, 1.0 - s, const(1.0, x.dtype))


def _i64(n: int) -> Value:
    return const(n, "i64")
