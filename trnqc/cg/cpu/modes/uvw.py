"""CPU functions of uvw paths: every edge couples y to x, and weights mix the channels of the product.

x, y -> x in scratch -> t[v, k, u] = P(x[u], y[v])_k  (channels.py) -> z[w, k] += sum_uv W[u, v, w] t[v, k, u]
(mixing.py)

Edges that share their weights are taken several at a time: to the mixing they are columns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property

from trnqc.cg.cpu.modes import channels, mixing, uvu
from trnqc.cg.cpu.modes.mixing import Mixing, common
from trnqc.cg.cpu.slots import ZERO, Paths, Slots, clear, index, memory, slots_of, vectors
from trnqc.cg.problem.problem import Instruction, TPProblem
from trnqc.cg.programs import composed
from trnqc.cg.programs.directions import Direction
from trnqc.gen import Array, Value, Var, const
from trnqc.gen import statements as st
from trnqc.gen.build import Builder
from trnqc.gen.values import lt, minimum

# Edges at a time where weights are shared: enough for a weight that was read to be used several times.
TOGETHER = 8
COUNT = Var("count", "i64")


@dataclass(frozen=True)
class Target:
    """A problem's uvw paths for vectors of `lanes` elements of a type ("f64" or "f32"), `edges` edges at a time."""

    problem: TPProblem
    dtype: str
    lanes: int
    edges: int = 1

    @cached_property
    def paths(self) -> tuple[Instruction, ...]:
        return tuple(p for p in self.problem.instructions if p.connection_mode == "uvw" and 0 not in p.path_shape)

    @cached_property
    def slots(self) -> dict[str, Slots]:
        """The slots of x that paths read and those of z that they add to; in scratch [edge, block, component]."""
        used = {"x": {p.i_in1 for p in self.paths}, "z": {p.i_out for p in self.paths}}
        irreps = {"x": self.problem.irreps_in1, "z": self.problem.irreps_out}
        return {k: slots_of(self.problem, irreps[k], used[k], self.dtype, self.lanes, self.edges) for k in used}

    def mixing(self, path: Instruction) -> Mixing:
        dim, shared = self.problem.irreps_out[path.i_out].ir.dim, self.problem.shared_weights
        mul1, mul2, mul3 = path.path_shape
        return Mixing(mul1, mul2, mul3, dim, self.edges, self.lanes, self.dtype, shared)

    @contextmanager
    def each_edge(self, b: Builder, end: Value | int = COUNT) -> Iterator[Value]:
        """Statements for every edge; yields its number."""
        if self.edges == 1:
            yield ZERO
        else:
            with b.loop("n", end) as n:
                yield n


def function(target: Target, direction: Direction) -> st.Function:
    """The paths of `count` edges whose rows follow one another; w are the rows of weights, or the one.

    The output, gx and gy are added to; gw is written or, where weights are shared, added to.
    """
    b = Builder()
    rows = {name: memory(name, target.dtype) for name in (*direction.reads, *direction.writes)}
    sizes = {"y": target.problem.dims[1] * target.edges} | {kind: slots.size for kind, slots in target.slots.items()}
    names = (*direction.reading("x"), *direction.reading("z"), *(n for n in direction.writes if n != "gw"))
    scratch = {name: b.array(f"{name}s", target.dtype, (max(1, sizes[name[-1]]),), lanes=True) for name in names}
    for name, array in scratch.items():
        _load(b, target, name, rows[name], array) if name in direction.reads else clear(b, array, array.size or 0)
    size = max((target.mixing(path).t_size for path in target.paths), default=0)
    t, h = (vectors(name, size, target.dtype) for name in ("t", "h"))
    lanes_t = common("lanes_t", size * target.lanes, target.dtype)
    b.add(map(st.DeclareArray, (t, lanes_t, *[h] * direction.gradients)))
    for path in target.paths:
        composed.write(_Path(b, target, path, direction, rows, scratch, t, lanes_t, h), direction)
    for name in direction.writes:
        if name != "gw":
            _add(b, target, name, scratch[name], rows[name])
    return b.function(f"uvw_{direction.name}", (COUNT, *rows.values()))


def of_several_edges(paths: Paths, direction: Direction, share: Value) -> st.Function | None:
    """The program of a batch that takes several edges at a time.

    None unless all paths are uvw and edges share their weights. It is called like that of `batch`, without a group:
    the range of edges stands last.
    """
    problem, target = paths.problem, Target(paths.problem, paths.dtype, paths.lanes, TOGETHER)
    modes = {path.connection_mode for path in problem.instructions if 0 not in path.path_shape}
    if modes != {"uvw"} or not problem.shared_weights:
        return None
    b, (begin, end) = Builder(), (Var(name, "i64") for name in ("begin", "end"))
    rows = {name: memory(name, paths.dtype) for name in (*direction.reads, *direction.writes)}
    with b.loop("e", end, begin=begin, step=TOGETHER) as e:
        b.let(COUNT, minimum(end - e, TOGETHER))
        starts = {name: e * problem.row_length(name) if name[-1] != "w" else ZERO for name in rows}
        starts |= {"gw": share * problem.weight_numel}
        for name in direction.writes:
            if name != "gw":
                with b.loop("i", COUNT * problem.row_length(name)) as i:
                    b.store(rows[name][starts[name] + i], 0.0)
        b.call(function(target, direction), COUNT, *(st.View(row, starts[name]) for name, row in rows.items()))
    shares: tuple[Value, ...] = (share,) if direction.gradients else ()
    return b.function(direction.key, (*rows.values(), *shares, begin, end))


@dataclass(frozen=True)
class _Path:
    """The steps of `composed` for one path: rows in memory, slots and products in scratch."""

    b: Builder
    target: Target
    path: Instruction
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
        return self.target.mixing(self.path)

    def product(self, pairs: tuple[tuple[str, str], ...]) -> None:
        """t of all edges, put where all lanes reach it."""
        degrees, dtype = self.target.problem.degrees(self.path), self.target.dtype
        for m, (x, y) in enumerate(pairs):
            with self.target.each_edge(self.b, self.target.edges) as n:
                product = channels.product(degrees, dtype, adds=m > 0)
                self.b.call(product, *self._sizes, self._y(y, n), self._x(x, n), self._of_edge(self.t, n))
        with self.b.loop("i", self.mixing.t_size) as i:
            self.b.add(st.Pack(self.lanes_t, i * self.target.lanes, self.t, i, 1, 1, self.target.lanes))
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
        problem = self.target.problem
        gradients = channels.gradients(problem.degrees(self.path), self.target.dtype)
        start = problem.slices2[self.path.i_in2].start
        with self.target.each_edge(self.b, self.target.edges) as n:
            gy, h = st.view(self.scratch["gy"][n * problem.dims[1] + start]), self._of_edge(self.h, n)
            self.b.call(gradients, *self._sizes, self._y(y, n), self._x(x, n), h, self._x("gx", n), gy)

    @property
    def _sizes(self) -> tuple[Value, ...]:
        """The path's weight and `channels.SIZES`."""
        slot, m = self.target.problem.irreps_in2[self.path.i_in2], self.mixing
        apart = (slot.ir.dim, 1) if self.target.problem.layout == "mul_ir" else (1, slot.mul)
        sizes = (slot.mul, len(m.rows), m.columns * len(m.rows), *apart)
        return const(self.path.path_weight, self.target.dtype), *map(index, sizes)

    def _weights(self, name: str) -> st.View:
        return st.view(self.rows[name][self.path.weight_offset])

    def _x(self, name: str, n: Value) -> st.View:
        slots = self.target.slots["x"]
        return st.view(self.scratch[name][n * slots.channels[self.path.i_in1].size + slots.place[self.path.i_in1]])

    def _y(self, name: str, n: Value) -> st.View:
        # Edges that are not there meet a y that is: their x is zero.
        problem = self.target.problem
        row = minimum(n, COUNT - 1) * problem.dims[1] if self.target.edges > 1 else ZERO
        return st.view(self.rows[name][row + problem.slices2[self.path.i_in2].start])

    def _z(self, name: str) -> st.View:
        return st.view(self.scratch[name][self.target.slots["z"].place[self.path.i_out]])

    def _of_edge(self, array: Array, n: Value) -> st.View:
        m = self.mixing
        return st.view(array[n * (m.dim * len(m.rows))])


def _load(b: Builder, target: Target, name: str, source: Array, to: Array) -> None:
    """Load slots of x or z of all edges; edges that are not there are zero."""
    if target.edges > 1:
        with b.when(lt(COUNT, target.edges)):
            clear(b, to, to.size or 0)
    _each_slot(b, target, name, source, to, uvu.load)


def _add(b: Builder, target: Target, name: str, source: Array, to: Array) -> None:
    """Add the slots of x or z, or the sums of gy over the lanes, of all edges to memory."""
    if name != "gy":
        _each_slot(b, target, name, to, source, uvu.add)
    elif target.problem.dims[1]:
        with b.loop("j", COUNT * target.problem.dims[1]) as j:
            b.accumulate(to[j], source[j])


def _each_slot(
    b: Builder, target: Target, name: str, rows: Array, scratch: Array, move: Callable[..., st.Function]
) -> None:
    slots = target.slots[name[-1]]
    with target.each_edge(b) as n:
        for number, slot in slots.channels.items():
            row = st.view(rows[n * target.problem.row_length(name) + slots.start[number]])
            b.call(move(slot), row, st.view(scratch[n * slot.size + slots.place[number]]))
