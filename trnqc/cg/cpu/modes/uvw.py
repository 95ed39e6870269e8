"""Functions of uvw paths on a CPU: all pairs of channels of x and y are multiplied, and weights mix the products.

    x, y -> x in scratch -> t[v, k, u] = P(x[u], y[v])_k                    (pairs.py)
                         -> z[w, k] += sum_uv W[u, v, w] t[v, k, u]         (mixing.py)

If edges share their weights, several edges are computed together, as further columns of the mixing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

from trnqc.cg.cpu.modes import mixing, pairs
from trnqc.cg.cpu.modes.mixing import Mixing
from trnqc.cg.cpu.slots import PathSlots, add, load
from trnqc.cg.cpu.target import ProductTarget
from trnqc.cg.cpu.vectors import ZERO, clear, declare_vectors, index, memory, shared, vectors
from trnqc.cg.problem.instructions import PathInstruction
from trnqc.cg.problem.modes import MODES
from trnqc.cg.problem.problem import TPProblem
from trnqc.cg.programs import composed
from trnqc.cg.programs.directions import Direction
from trnqc.gen import Array, Value, Var, const
from trnqc.gen import statements as st
from trnqc.gen.build import Builder
from trnqc.gen.values import lt, minimum

# Number of edges that are computed together if they share weights, so that each weight is read once for all of them.
TOGETHER = 8
COUNT = Var("count", "i64")


@dataclass(frozen=True)
class EdgeGroup:
    """The uvw paths of up to `most` edges that are computed together; `COUNT` is their actual number."""

    target: ProductTarget
    most: int = 1

    @property
    def problem(self) -> TPProblem:
        return self.target.problem

    @cached_property
    def paths(self) -> tuple[PathInstruction, ...]:
        return self.target.paths("uvw")

    @cached_property
    def slots(self) -> dict[str, PathSlots]:
        """The slots of x that paths read and of z that they add to; in scratch [edge, block, component]."""
        return {kind: self.target.slots(kind, self.paths, self.most) for kind in "xz"}

    def mixing(self, path: PathInstruction) -> Mixing:
        dim, shared_weights = self.problem.irreps_out[path.i_out].ir.dim, self.problem.shared_weights
        mul1, mul2, mul3 = path.path_shape
        return Mixing(mul1, mul2, mul3, dim, self.most, self.target.lanes, self.target.dtype, shared_weights)

    @contextmanager
    def each(self, b: Builder, end: Value | int = COUNT) -> Iterator[Value]:
        """Loop over the edges; yields the number of an edge."""
        if self.most == 1:
            yield ZERO
        else:
            with b.loop("n", end) as n:
                yield n


def function(edges: EdgeGroup, direction: Direction) -> st.Function:
    """Return the function of all uvw paths of `COUNT` edges.

    The rows of an operand follow one another; shared weights have one row. The function adds to the output, gx and gy.
    It writes gw, or adds to it if edges share weights.
    """
    b, dtype = Builder(), edges.target.dtype
    rows = {name: memory(name, dtype) for name in direction.operands}
    sizes = {"y": edges.problem.dims[1] * edges.most} | {kind: slots.size for kind, slots in edges.slots.items()}
    names = (*direction.reading("x"), *direction.reading("z"), *(n for n in direction.writes if n != "gw"))
    scratch = {name: declare_vectors(b, f"{name}s", sizes[name[-1]], dtype) for name in names}
    for name, array in scratch.items():
        if name not in direction.reads:
            clear(b, array, array.size or 0)
            continue
        if edges.most > 1:
            # The slots of edges beyond COUNT are zero.
            with b.when(lt(COUNT, edges.most)):
                clear(b, array, array.size or 0)
        _move_slots(b, edges, name, rows[name], array, load)
    size = max((edges.mixing(path).t_size for path in edges.paths), default=0)
    t, h = (vectors(name, size, dtype) for name in ("t", "h"))
    lanes_t = shared("lanes_t", size * edges.target.lanes, dtype)
    b.add(map(st.DeclareArray, (t, lanes_t, *[h] * direction.gradients)))
    for path in edges.paths:
        composed.write(_Path(b, edges, path, direction, rows, scratch, t, lanes_t, h), direction)
    for name in direction.writes:
        if name[-1] in "xz":
            _move_slots(b, edges, name, rows[name], scratch[name], add)
        elif name == "gy" and edges.problem.dims[1]:
            with b.loop("j", COUNT * edges.problem.dims[1]) as j:
                b.accumulate(rows[name][j], scratch[name][j])
    return b.function(f"uvw_{direction.name}", (COUNT, *rows.values()))


def _move_slots(
    b: Builder, edges: EdgeGroup, name: str, row: Array, scratch: Array, move: Callable[..., st.Function]
) -> None:
    """Call `load` or `add` for all slots of x or z of all edges."""
    slots = edges.slots[name[-1]]
    with edges.each(b) as n:
        for number, slot in slots.channels.items():
            start = st.view(row[n * edges.problem.row_length(name) + slots.start[number]])
            b.call(move(slot), start, st.view(scratch[n * slot.size + slots.place[number]]))


def computes_several(target: ProductTarget) -> bool:
    """Return whether `of_several_edges` computes a batch: all paths are uvw, and edges share their weights."""
    paths = target.paths("uvw")
    return target.problem.shared_weights and bool(paths) and target.paths(*MODES) == paths


def of_several_edges(target: ProductTarget, direction: Direction, share: Value) -> st.Function:
    """Return the program of a batch that computes several edges together.

    The parameters are the operands, `share` if gw is written, and the first and last edge of a range; unlike the
    program of `batch`, this one has no group.
    """
    problem, edges = target.problem, EdgeGroup(target, TOGETHER)
    b, (begin, end) = Builder(), (Var(name, "i64") for name in ("begin", "end"))
    rows = {name: memory(name, target.dtype) for name in direction.operands}
    with b.loop("e", end, begin=begin, step=TOGETHER) as e:
        b.let(COUNT, minimum(end - e, TOGETHER))
        starts = {name: e * problem.row_length(name) if name[-1] != "w" else ZERO for name in rows}
        starts |= {"gw": share * problem.weight_numel}
        for name in direction.writes:
            if name != "gw":
                with b.loop("i", COUNT * problem.row_length(name)) as i:
                    b.store(rows[name][starts[name] + i], 0.0)
        b.call(function(edges, direction), COUNT, *(st.View(row, starts[name]) for name, row in rows.items()))
    shares: tuple[Value, ...] = (share,) if direction.gradients else ()
    return b.function(direction.key, (*rows.values(), *shares, begin, end))


@dataclass(frozen=True)
class _Path:
    """The steps of `composed` for one path: operands are rows in memory, slots and products are in scratch."""

    b: Builder
    edges: EdgeGroup
    path: PathInstruction
    direction: Direction
    rows: dict[str, Array]
    scratch: dict[str, Array]
    t: Array
    lanes_t: Array
    h: Array

    @property
    def weighted(self) -> bool:
        return True

    @property
    def mixing(self) -> Mixing:
        return self.edges.mixing(self.path)

    def product(self, operands: tuple[tuple[str, str], ...]) -> None:
        """Compute t of all edges, and copy it to an array that all lanes can read."""
        degrees, target = self.edges.problem.degrees(self.path), self.edges.target
        for m, (x, y) in enumerate(operands):
            with self.edges.each(self.b, self.edges.most) as n:
                product = pairs.product(degrees, target.dtype, adds=m > 0)
                self.b.call(product, *self._sizes, self._y(y, n), self._x(x, n), self._of_edge(self.t, n))
        with self.b.loop("i", self.mixing.t_size) as i:
            self.b.add(st.Pack(self.lanes_t, i * target.lanes, self.t, i, 1, 1, target.lanes))
        self.b.barrier()

    def combine(self, w: str) -> None:
        self.b.call(mixing.forward(self.mixing), self._weights(w), self.lanes_t, self._z(self.direction.output))

    def combine_gradients(self, w: str, slopes: bool) -> None:
        if slopes:
            arguments = (self._weights(w), self.lanes_t, self._z("gz"), self._weights("gw"), self.h)
            self.b.call(mixing.backward(self.mixing), *arguments)
        else:
            self.b.call(mixing.backward(self.mixing, weights=False), self._weights(w), self._z("gz"), self.h)

    def product_gradients(self, x: str, y: str) -> None:
        problem = self.edges.problem
        gradients = pairs.gradients(problem.degrees(self.path), self.edges.target.dtype)
        start = problem.slices2[self.path.i_in2].start
        with self.edges.each(self.b) as n:
            gy, h = st.view(self.scratch["gy"][n * problem.dims[1] + start]), self._of_edge(self.h, n)
            self.b.call(gradients, *self._sizes, self._y(y, n), self._x(x, n), h, self._x("gx", n), gy)

    @property
    def _sizes(self) -> tuple[Value, ...]:
        """The path weight and `pairs.SIZES`."""
        slot, m = self.edges.problem.irreps_in2[self.path.i_in2], self.mixing
        steps = (slot.ir.dim, 1) if self.edges.problem.layout == "mul_ir" else (1, slot.mul)
        sizes = (slot.mul, m.x_blocks, m.columns * m.x_blocks, *steps)
        return const(self.path.path_weight, self.edges.target.dtype), *map(index, sizes)

    def _weights(self, name: str) -> st.View:
        return st.view(self.rows[name][self.path.weight_offset])

    def _x(self, name: str, n: Value) -> st.View:
        slots = self.edges.slots["x"]
        return st.view(self.scratch[name][n * slots.channels[self.path.i_in1].size + slots.place[self.path.i_in1]])

    def _y(self, name: str, n: Value) -> st.View:
        # Edges beyond COUNT read the y of the last edge. Their x is zero.
        problem = self.edges.problem
        row = minimum(n, COUNT - 1) * problem.dims[1] if self.edges.most > 1 else ZERO
        return st.view(self.rows[name][row + problem.slices2[self.path.i_in2].start])

    def _z(self, name: str) -> st.View:
        return st.view(self.scratch[name][self.edges.slots["z"].place[self.path.i_out]])

    def _of_edge(self, array: Array, n: Value) -> st.View:
        m = self.mixing
        return st.view(array[n * (m.dim * m.x_blocks)])
