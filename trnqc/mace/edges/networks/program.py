"""The program of a network on a block of edges: radial functions -> weights, and their derivatives by the length.

radial [rows, size] -> product -> bias, silu -> product -> ... -> weights [vectors, edges of the block, lanes]

The derivative along the length passes through the same products as rows of their own, below those of the values
(forward mode). So it costs as much as the values, and neither activations nor gradients of weights are stored.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnqc.gen import Array, Value, const
from trnqc.gen import statements as st
from trnqc.gen.build import Builder
from trnqc.gen.values import exp, fma
from trnqc.mace.edges.geometry.programs import ELEMENTS, RECEIVERS, SENDERS
from trnqc.mace.edges.networks import normalisation
from trnqc.mace.edges.networks.block import FIRST, ROWS, edge_of, params
from trnqc.mace.gemm import product

if TYPE_CHECKING:
    from trnqc.mace.edges.networks.network import NetworkWeights


class NetworkProgram:
    """The program under construction."""

    def __init__(self, shape: NetworkWeights, slopes: bool, listed: bool) -> None:
        self.shape, self.slopes, self.listed, self.b = shape, slopes, listed, Builder()
        self.copies = 2 if slopes else 1
        self.step = shape.edges * self.copies
        self.params = params(shape.dtype, shape.size, slopes, listed)
        self.inputs = [self.array(name) for name in ("radial", "slopes")[: self.copies]]
        self.cutoff, self.parameters = self.array("cutoff"), self.array("parameters")
        self.sums, self.hidden, self.weights = (self.array(name) for name in ("sums", "hidden", "weights"))

    def array(self, name: str) -> Array:
        array = self.params[name]
        assert isinstance(array, Array)
        return array

    def function(self) -> st.Function:
        s, b = self.shape, self.b
        last = len(s.vectors) - 1
        if self.listed:
            self._gather()
        for n in range(last + s.activated):
            self._multiply(n, self.sums, s.vectors[n], 1)
            epsilon = s.norms[n]
            if epsilon is not None:
                self._normalise(n, epsilon)
            self._activate(n)
        if not s.activated:
            self._multiply(last, self.weights, 1, self.step)
        if s.cutoff or (self._adds(last) and not s.activated):
            self._finish()
        name = f"network_{s.dtype}_{'_'.join(map(str, s.widths))}{'_slopes' * self.slopes}"
        return b.function(name + "_listed" * self.listed, self.params.values())

    def _gather(self) -> None:
        """Copy the radial functions of the edges of a table to the rows of the first product."""
        b, size = self.b, self.shape.size
        with b.loop("row", ROWS) as row:
            edge = b.let("edge", edge_of(row, self.listed))
            for copy, source in enumerate(self.inputs):
                with b.loop("k", size) as k:
                    b.store(self.hidden[(row + ROWS * copy) * size + k], source[edge, k])

    def _multiply(self, n: int, out: Array, row: int, vector: int) -> None:
        """Products of layer n: of the radial functions, or of all rows in ``hidden`` at once."""
        s, multiply = self.shape, product(self.shape.tile, self.shape.dtype)
        depth, vectors = _i64(s.widths[n]), _i64(s.vectors[n])
        right = st.view(self.parameters[s.offsets[n]["weight"]])
        strides = _i64(row), _i64(vector)
        if n or self.listed:
            width, rows = _i64(s.vectors[n - 1] * s.tile.lanes) if n else depth, ROWS * self.copies
            self.b.call(multiply, rows, depth, vectors, self.hidden, width, right, out, *strides)
            return
        for copy, source in enumerate(self.inputs):
            left, place = st.view(source[FIRST, 0]), st.view(out[ROWS * (copy * row)])
            self.b.call(multiply, ROWS, depth, vectors, left, depth, right, place, *strides)

    def _normalise(self, n: int, epsilon: float) -> None:
        """Normalise the sums of each row, and their derivatives."""
        s, b, sums = self.shape, self.b, self.sums
        vectors, parts = s.vectors[n], s.offsets[n]
        with b.loop("row", ROWS) as row:
            first = b.let("first", row * vectors)
            if self._adds(n):
                with b.loop("v", vectors) as v:
                    b.store(sums[first + v], sums[first + v] + self._added(n, row, v))
            below = b.let("below", first + ROWS * vectors) if self.slopes else None
            norm = normalisation.PaddedRow(b, sums, first, below, vectors, s.widths[n + 1], s.tile.lanes)
            norm.write(epsilon, *(st.view(self.parameters[parts[name]]) for name in ("gain", "offset")))

    def _activate(self, n: int) -> None:
        """Write silu of the sums, and its derivative, as rows of the next product, or as weights after the last."""
        s, b, sums = self.shape, self.b, self.sums
        vectors, last = s.vectors[n], n == len(s.vectors) - 1
        with b.loop("row", ROWS) as row, b.loop("v", vectors) as v:
            at = b.let("at", row * vectors + v)
            x = b.let("x", sums[at] + self._added(n, row, v) if self._adds(n) and s.norms[n] is None else sums[at])
            value, slope = _silu(b, x) if s.silu[n] else (x, const(1.0, s.dtype))
            below = b.let("below", at + ROWS * vectors) if self.slopes else None
            results = [value] if below is None else [value, slope * sums[below]]
            for copy, result in enumerate(results):
                if last:
                    b.store(self.weights[v * self.step + ROWS * copy + row], result)
                else:
                    self._write(at if copy == 0 or below is None else below, result)

    def _write(self, place: Value, result: Value) -> None:
        """Write a vector of a hidden layer as numbers."""
        vector = self.b.array("vector", self.shape.dtype, (1,), lanes=True)
        self.b.store(vector[0], result)
        self.b.add(st.Pack(self.hidden, place * self.shape.tile.lanes, vector, _i64(0), 1, 1, self.shape.tile.lanes))

    def _adds(self, n: int) -> bool:
        return self.shape.bias[n] or bool(n == 0 and self.shape.elements)

    def _added(self, n: int, row: Value, v: Value) -> Value:
        """The sum of the bias and the contributions of the edge's elements to a vector of layer n."""
        parts, vectors = self.shape.offsets[n], self.shape.vectors[n]
        terms = [self.parameters[parts["bias"] + v]] if "bias" in parts else []
        if "sender" in parts:
            edge = edge_of(row, self.listed)
            for name, ends in (("sender", SENDERS), ("receiver", RECEIVERS)):
                terms.append(self.parameters[parts[name] + ELEMENTS[ends[edge]] * vectors + v])
        total = terms[0]
        for term in terms[1:]:
            total = total + term
        return total

    def _finish(self) -> None:
        """Add the bias of a last layer without activation to the weights, and multiply them by the cutoff function."""
        s, b, n = self.shape, self.b, len(self.shape.vectors) - 1
        with b.loop("v", s.vectors[-1]) as v, b.loop("row", ROWS) as row:
            at = b.let("at", v * self.step + row)
            added = self._adds(n) and not s.activated
            value = b.let("w", self.weights[at] + self._added(n, row, v) if added else self.weights[at])
            f, df = (self.cutoff[edge_of(row, self.listed), k] for k in range(2))
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
