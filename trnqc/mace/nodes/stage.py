"""A program of a block of atoms under construction, and the steps that programs consist of.

A group of a program is a block: atoms ``first``, ..., ``first + count - 1`` of one element. Arrays have a row of
vectors for each atom and are parameters of the program in the order of their first use.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from trnqc.gen import Array, Value, Var, const
from trnqc.gen import statements as st
from trnqc.gen.build import Builder
from trnqc.gen.values import cast, exp, fma, lt, maximum, select
from trnqc.mace.gemm import RegisterTile, product
from trnqc.mace.nodes.parameters import PackedMatrix
from trnqc.mace.nodes.plan import LinearPlan

BLOCK = Var("block", "i64")
# Element, first atom and number of atoms of each block, [blocks, 3].
BLOCKS = Array("blocks", "i64", (None, 3))


@dataclass(frozen=True)
class AtomRows:
    """An array with a row of `width` vectors for each atom."""

    array: Array
    width: int

    def at(self, node: Value, vector: Value | int = 0) -> Value:
        """The vector of a row."""
        return self.array[node * self.width + vector]


@dataclass(frozen=True)
class NodeProgram:
    """A program and the widths, in vectors, of its arrays with a row for each atom; numbers have the width 0."""

    function: st.Function
    widths: dict[str, int]


class NodeStage:
    """A program under construction, with the tile of its matrix products."""

    def __init__(self, tile: RegisterTile, dtype: str) -> None:
        self.tile, self.dtype, self.b = tile, dtype, Builder()
        self._arrays: dict[str, Array] = {}
        self._widths: dict[str, int] = {}
        self.parameters = self._array("parameters", dtype, lanes=True)
        self.element, self.first, self.count = (
            self.b.let(name, BLOCKS[BLOCK, n]) for n, name in enumerate(("element", "first", "count"))
        )

    def _array(self, name: str, dtype: str, lanes: bool) -> Array:
        return self._arrays.setdefault(name, Array(name, dtype, lanes=lanes))

    def rows(self, name: str, width: int) -> AtomRows:
        """The array of this name, a parameter of the program."""
        self._widths[name] = width
        return AtomRows(self._array(name, self.dtype, lanes=True), width)

    def numbers(self, name: str, dtype: str) -> Array:
        """An array of one number for each atom, a parameter of the program."""
        self._widths[name] = 0
        return self._array(name, dtype, lanes=False)

    def program(self, name: str) -> NodeProgram:
        """The program."""
        return NodeProgram(self.b.function(name, (BLOCKS, *self._arrays.values()), group=BLOCK), self._widths)

    # Steps

    @contextmanager
    def nodes(self) -> Iterator[Value]:
        """Loop over the atoms of the block."""
        with self.b.loop("node", self.first + self.count, begin=self.first) as node:
            yield node

    @contextmanager
    def elements(self, width: int) -> Iterator[tuple[Value, Value]]:
        """Loop over the vectors of the rows of the block; yields atom and vector."""
        with self.nodes() as node, self.b.loop("v", width) as v:
            yield node, v

    def fill(self, target: AtomRows) -> None:
        """target = 0."""
        with self.elements(target.width) as (node, v):
            self.b.store(target.at(node, v), 0)

    def copy(self, source: AtomRows, target: AtomRows, add: bool = False) -> None:
        """target = source, or target += source."""
        with self.elements(target.width) as (node, v):
            write = self.b.accumulate if add else self.b.store
            write(target.at(node, v), source.at(node, v))

    def add_row(self, target: AtomRows, place: Value | int, width: int) -> None:
        """Add the same vectors of the parameters to all rows, to their first `width` vectors."""
        with self.elements(width) as (node, v):
            self.b.accumulate(target.at(node, v), self.parameters[v + place])

    def scale(self, target: AtomRows, factors: Array, slope: float, offset: float) -> None:
        """Divide the row of each atom by slope factors[atom] + offset."""
        with self.nodes() as node:
            inverse = self.b.let("inverse", 1.0 / fma(slope, factors[node], const(offset, self.dtype)))
            with self.b.loop("v", target.width) as v:
                self.b.store(target.at(node, v), target.at(node, v) * inverse)

    def linear(self, layer: LinearPlan, source: AtomRows, target: AtomRows, add: bool = False) -> None:
        """target = layer(source), or target += layer(source)."""
        reached = {o for _, o, _ in layer.blocks}
        if not add and len(reached) < len(layer.output.irreps):
            self.fill(target)
        begun = set(range(len(layer.output.irreps))) if add else set()
        for i, o, matrix in layer.blocks:
            step, vectors = layer.input.vectors[i], layer.output.vectors[o]
            with self.b.loop("m", layer.input.irreps[i].ir.dim) as m:
                self.product(
                    matrix,
                    (source, m * step + layer.input.starts[i]),
                    (target, m * vectors + layer.output.starts[o]),
                    add=o in begun,
                )
            begun.add(o)

    def product(
        self,
        matrix: PackedMatrix,
        source: tuple[AtomRows, Value | int],
        target: tuple[AtomRows, Value | int],
        add: bool = False,
    ) -> None:
        """Multiply the channels that begin at a vector of each row with a matrix."""
        function = product(self.tile, self.dtype, add)
        (rows_in, at_in), (rows_out, at_out) = source, target
        self.b.call(
            function,
            self.count,
            const(matrix.inputs, "i64"),
            const(self.tile.vectors_of(matrix.outputs), "i64"),
            st.flat_view(rows_in.at(self.first, at_in)),
            const(rows_in.width * self.tile.lanes, "i64"),
            st.view(self.parameters[self.place(matrix)]),
            st.view(rows_out.at(self.first, at_out)),
            const(rows_out.width, "i64"),
            const(1, "i64"),
        )

    def place(self, matrix: PackedMatrix) -> Value:
        """The first vector of a matrix, or of the one of the block's element."""
        return self.element * matrix.step + matrix.start if matrix.step else const(matrix.start, "i64")

    def sigmoid(self, z: Value) -> Value:
        """1 / (1 + exp(-z))."""
        return self.b.let("sigmoid", 1.0 / (1.0 + exp(-z)))

    def silu(self, z: Value) -> Value:
        """z / (1 + exp(-z))."""
        return z * self.sigmoid(z)

    def silu_slope(self, z: Value) -> Value:
        """The derivative of silu."""
        s = self.sigmoid(z)
        return s * fma(z, 1.0 - s, const(1.0, self.dtype))

    def activated(self, act: str | None, z: Value) -> Value:
        """The activation function of that name; z itself for None."""
        if act == "silu":
            return self.silu(z)
        if act == "tanh":
            return self._tanh(z)
        return maximum(z, -z) if act == "abs" else z

    def slope(self, act: str | None, z: Value) -> Value:
        """The derivative of `activated`; that of abs is 0 at 0, as in PyTorch."""
        if act == "silu":
            return self.silu_slope(z)
        if act == "tanh":
            t = self._tanh(z)
            return 1.0 - t * t
        one, zero = const(1.0, self.dtype), const(0.0, self.dtype)
        if act == "abs":
            return select(lt(0.0, z), one, zero) - select(lt(z, 0.0), one, zero)
        return one

    def _tanh(self, z: Value) -> Value:
        """1 - 2 / (exp(2 z) + 1), which neither overflows nor loses sign for large arguments."""
        return self.b.let("tanh", 1.0 - 2.0 / (exp(2.0 * z) + 1.0))

    def add_dots(self, target: Array, place: int, width: int, vector: AtomRows, act: str | None) -> None:
        """Add to target[atom] the product of a row of the parameters with the atom's first vectors, activated."""
        with self.nodes() as node:
            total = self.b.declare("total", const(0.0, "f64"))
            with self.b.loop("v", width) as v:
                x = self.b.let("x", vector.at(node, v))
                x = self.activated(act, x)
                self.b.assign(total, total + cast(self.parameters[v + place] * x, "f64"))
            self.b.accumulate(target[node], total)
