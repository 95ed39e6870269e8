"""One edge of a tensor product: what is taken to scratch, the calls of its paths, and what is given back.

    x -> scratch;  for every slot of z: gz -> scratch, the paths that lead to it, z -> memory;  scratch -> gx, gy

Programs over a batch and over a graph are made of these pieces; they differ in the rows that an edge has and in what
is kept in scratch from one edge to the next.
"""

from __future__ import annotations

from dataclasses import dataclass

from trnqc.cg.programs import uvu
from trnqc.cg.programs.paths import Body, Path, Paths, Slots, index
from trnqc.gen import Array, Value, Var
from trnqc.gen import statements as st
from trnqc.gen.values import const

Arguments = tuple[Value | Array | st.View, ...]


@dataclass(frozen=True)
class Row:
    """A row of an array in memory, from the element `start` on."""

    array: Array
    start: Value

    def __getitem__(self, offset: int) -> st.View:
        return st.View(self.array, self.start + offset)

    def element(self, offset: Value | int) -> Value:
        return self.array[self.start + offset]


@dataclass(frozen=True)
class Edge:
    """The operands of one edge that stay in memory: y and w, and those of the derivatives where there are any."""

    y: Row
    w: Row
    ggy: Row | None = None
    ggw: Row | None = None
    gw: Row | None = None


def row(name: str, dtype: str, number: Value, length: int) -> Row:
    return Row(uvu.memory(name, dtype), number * length)


def scratch(name: str, slots: Slots, dtype: str) -> Array:
    """Vectors for all the slots that take part."""
    return uvu.vectors(name, slots.size, dtype)


def cleared(array: Array, size: int) -> Body:
    at = Var("at", "i64")
    return [st.loop(at, size, st.store(array[at], 0))] if size else []


def zeroed(row: Row, slots: Slots, parts: tuple[slice, ...]) -> Body:
    """Zeros where no path leads."""
    at, body = Var("at", "i64"), list[st.Statement]()
    for number, part in enumerate(parts):
        if number not in slots.rows and part.stop > part.start:
            body.append(st.loop(at, part.stop, st.store(row.element(at), 0), begin=part.start))
    return body


def take(slots: Slots, source: Row, to: Array, numbers: tuple[int, ...] | None = None) -> Body:
    """Slots from memory to scratch: all, or those numbered."""
    return [
        st.Call(uvu.taken(slots.rows[n]), (source[slots.start[n]], at(to, slots.place[n])))
        for n in (slots.rows if numbers is None else numbers)
    ]


def give(slots: Slots, source: Array, to: Row, numbers: tuple[int, ...] | None = None) -> Body:
    return [
        st.Call(uvu.given(slots.rows[n]), (to[slots.start[n]], at(source, slots.place[n])))
        for n in (slots.rows if numbers is None else numbers)
    ]


def forward_call(paths: Paths, path: Path, edge: Edge, x: Array, z: Array | st.View) -> st.Call:
    """z: a view of memory, which is written; or scratch for one slot, which is added to."""
    s = path.shape
    f = uvu.forward(s, _scratched(z))
    return st.Call(f, (*_leading(paths, path, edge, x), *[edge.w[path.w]] * s.weighted, z))


def backward_call(paths: Paths, path: Path, edge: Edge, x: Array, gz: st.View, gx: Array, gy: Array) -> st.Call:
    s = path.shape
    assert edge.gw is not None or not s.weighted
    gw = [edge.gw[path.w]] if s.weighted and edge.gw else []
    arguments: Arguments = (*_leading(paths, path, edge, x), *[edge.w[path.w]] * s.weighted, gz, _of(paths, path, gx),
                 at(gy, path.y), *gw)  # fmt: skip
    return st.Call(uvu.backward(s), arguments)


def double_call(
    paths: Paths, path: Path, edge: Edge, x: Array, ggx: Array, gz: st.View, ggz: Array | st.View, gx: Array, gy: Array
) -> st.Call:
    gw = [edge.gw[path.w]] if path.shape.weighted and edge.gw else []
    arguments: Arguments = (*_second(paths, path, edge, x, ggx), gz, ggz, _of(paths, path, gx), at(gy, path.y), *gw)
    return st.Call(uvu.double_backward(path.shape, _scratched(ggz)), arguments)


def double_outputs_call(paths: Paths, path: Path, edge: Edge, x: Array, ggx: Array, ggz: Array | st.View) -> st.Call:
    """The part of `double_call` that ggz gets."""
    f = uvu.double_backward(path.shape, _scratched(ggz), inputs=False)
    return st.Call(f, (*_second(paths, path, edge, x, ggx), ggz))


def double_inputs_call(
    paths: Paths, path: Path, edge: Edge, x: Array, ggx: Array, gz: st.View, gx: Array, gy: Array
) -> st.Call:
    """The part of `double_call` that gx, gy and gw get."""
    gw = [edge.gw[path.w]] if path.shape.weighted and edge.gw else []
    arguments: Arguments = (*_second(paths, path, edge, x, ggx), gz, _of(paths, path, gx), at(gy, path.y), *gw)
    return st.Call(uvu.double_backward(path.shape, False, outputs=False), arguments)


def _second(paths: Paths, path: Path, edge: Edge, x: Array, ggx: Array) -> Arguments:
    assert edge.ggy and (edge.ggw or not path.shape.weighted)
    pw, y, x_ = _leading(paths, path, edge, x)
    w = [edge.w[path.w], edge.ggw[path.w]] if path.shape.weighted and edge.ggw else []
    return (pw, y, edge.ggy[path.y], x_, _of(paths, path, ggx), *w)


def sums_by_lane(gy: Array, to: Row, size: int) -> Body:
    """gy in memory = the sums over the lanes of gy in scratch."""
    body: Body = []
    for j in range(size):
        body += [st.store(to.element(j), 0), st.accumulate(to.element(j), gy[j])]
    return body


def _leading(paths: Paths, path: Path, edge: Edge, x: Array) -> tuple[Value, st.View, st.View]:
    return const(path.path_weight, paths.dtype), edge.y[path.y], _of(paths, path, x)


def _of(paths: Paths, path: Path, scratch: Array) -> st.View:
    """The path's slot of x in scratch."""
    return at(scratch, paths.slots1.place[path.i_in1])


def at(array: Array, place: int = 0) -> st.View:
    return st.View(array, index(place))


def _scratched(z: Array | st.View) -> bool:
    array = st.whole(z)
    return isinstance(array, Array) and array.space == "local"
