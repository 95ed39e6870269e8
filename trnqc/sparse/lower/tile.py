"""Sums of rows in registers: what inner loops add to a stretch of a target is gathered in vectors and added once.

An assignment's innermost loops that sum, around a last one over all values of an index v, which its target and some
operands store contiguously: target[.. v] += sum over R of scalar * row[v]. Stretches of v become the outer loop. If the
next loop outside is over all values of an index r of the target, and R runs alike for all of them, rows are taken
several at a time, so that a vector that was read serves each of them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import reduce
from typing import Any

from trnqc.gen import Array, Value, Var, const
from trnqc.gen import statements as st
from trnqc.gen.values import both, eq, fma, invert
from trnqc.sparse.lower.positions import Body, Places, State
from trnqc.sparse.lower.workspace import Space
from trnqc.sparse.network.loops import Loop, Node
from trnqc.sparse.network.nest import Nest

# Accumulators of a block of rows and of a single row: rows times vectors; three quarters of 32 registers.
ROWS, WIDE, LONG = 4, 4, 12


@dataclass(frozen=True)
class Shape:
    """member: the assignment. v: its contiguous index. row: the index of rows taken together, if any. sums: the loops R
    as they stand, outermost first. once: the stretches are all that is written to the target, which holds nothing yet.
    """

    member: int
    v: str
    row: str | None
    sums: Loop
    once: bool


@dataclass(frozen=True)
class Tile:
    """Vectors of one stretch of v from `start` on, for some rows; the last vector has `used` lanes. held: the sums."""

    shape: Shape
    start: Value
    vectors: int
    used: int
    rows: int
    held: Array

    def lanes(self, vector: int, lanes: int) -> int:
        return self.used if vector == self.vectors - 1 else lanes


class Tiles:
    """Recognises such loops and writes their stretches. lanes: doubles of a vector."""

    def __init__(self, places: Places, spaces: dict[int, Space], out: Array, dense_result: bool, lanes: int) -> None:
        self.places, self.spaces, self.out, self.dense_result, self.lanes = places, spaces, out, dense_result, lanes
        self.nest: Nest = places.nest

    def shape(self, node: Loop) -> Shape | None:
        """Of these loops, if they are such as above from this one on."""
        chain = [node]
        while len(chain[-1].body) == 1 and isinstance(chain[-1].body[0], Loop):
            chain.append(chain[-1].body[0])
        if len(node.members) > 1 or len(chain) < 2:
            return None
        member, v, inner = node.members[0], chain[-1].index, chain[:-1]
        order = self._order(member)
        if order is None or order[-1:] != (v,) or not self._contiguous(member, v):
            return None
        if not any(loop.index in order for loop in inner):
            return Shape(member, v, None, node, self._once(node, {v}))
        row = inner[0].index
        alike = len(inner) > 1 and row in order and not any(loop.index in order for loop in inner[1:])
        if not alike or not self._arrays(member, row):
            return None
        return Shape(member, v, row, chain[1], self._once(node, {v, row}))

    def whole(self, node: Node) -> bool:
        """Whether these loops write every element of a workspace once a turn, so that it need not be cleared."""
        shape = self.shape(node) if isinstance(node, Loop) else None
        return shape is not None and shape.once

    def _once(self, node: Loop, written: set[str]) -> bool:
        target = self.nest.assignments[node.members[0]].target
        if target not in self.spaces or node.depth != self.nest.fused(target) or not node.depth:
            return False
        return set(self.spaces[target].spec.order) == written

    def _order(self, member: int) -> tuple[str, ...] | None:
        """Of a target that is an array."""
        target = self.nest.assignments[member].target
        if target in self.spaces:
            spec = self.spaces[target].spec
            return spec.order if spec.space == "dense" else None
        return self.nest.formats[-1].order if self.dense_result else None

    def _contiguous(self, member: int, v: str) -> bool:
        if v not in self.places.constants:
            return False
        found = False
        for t in self.nest.assignments[member].operands:
            space = self.spaces.get(t)
            f = self.nest.formats[t] if space is None else None
            order = space.spec.order if space else f.order if f else ()
            if v not in order:
                continue
            dense = space.spec.space == "dense" if space else f is not None and f.kinds[-1] == "dense" and not f.ones
            if order[-1] != v or not dense:
                return False
            found = True
        return found

    def _arrays(self, member: int, row: str) -> bool:
        """Whether all operands with this index are arrays, and so sums run alike for all of its values."""
        for t in self.nest.assignments[member].operands:
            space = self.spaces.get(t)
            if space is not None and row in space.spec.order and space.spec.space != "dense":
                return False
            if (
                space is None
                and row in self.nest.formats[t].order
                and (self.nest.formats[t].sparse or self.nest.formats[t].ones)
            ):
                return False
        return True

    def written(self, shape: Shape, state: State, sums: Callable[[State], Body]) -> Body:
        """All stretches and rows. sums: the loops R for a state with a tile, in which `added` stands innermost."""
        if shape.row is None:
            return self._stretches(shape, LONG, lambda *stretch: self._block(shape, state, 1, sums, *stretch))
        return self._stretches(shape, WIDE, lambda *stretch: self._rows(shape, state, sums, *stretch))

    def _stretches(self, shape: Shape, most: int, write: Callable[[Value, int, int], Body]) -> Body:
        """Of equal numbers of vectors, as far as they go, and a last one."""
        extent = self.places.extents[shape.v]
        vectors = -(-extent // self.lanes)
        if not vectors:
            return []
        each = -(-vectors // -(-vectors // most))
        width = each * self.lanes
        whole = extent // width * width
        start = self.places.fresh("start")
        body: Body = []
        if whole == width:
            body += write(const(0, "i64"), each, self.lanes)
        elif whole:
            body.append(st.loop(start, whole, write(start, each, self.lanes), step=width))
        if rest := extent - whole:
            body += write(const(whole, "i64"), -(-rest // self.lanes), (rest - 1) % self.lanes + 1)
        return body

    def _rows(self, shape: Shape, state: State, sums: Callable[[State], Body], *stretch: Any) -> Body:
        row = Var(str(shape.row), "i64")
        end, inner = self.places.extent(str(shape.row)), state.bind(str(shape.row), row)
        whole = self.places.fresh("whole")
        return [
            st.Let(whole, end // ROWS * ROWS),
            st.loop(row, whole, self._block(shape, inner, ROWS, sums, *stretch), step=ROWS),
            st.loop(row, end, self._block(shape, inner, 1, sums, *stretch), begin=whole),
        ]

    def _block(
        self,
        shape: Shape,
        state: State,
        rows: int,
        sums: Callable[[State], Body],
        start: Value,
        vectors: int,
        used: int,
    ) -> Body:
        number = self.places.fresh("held").attr
        held = Array(number, "f64", (rows * vectors,), "local", lanes=True)
        tile = Tile(shape, start, vectors, used, rows, held)
        body: Body = [st.DeclareArray(held), *(st.store(held[n], 0.0) for n in range(rows * vectors))]
        return [*body, *sums(state.tiled(tile)), *self._flushed(tile, state)]

    def _flushed(self, tile: Tile, state: State) -> Body:
        """What was held, added to the target."""
        target = self.nest.assignments[tile.shape.member].target
        array = self.spaces[target].array if target in self.spaces else self.out
        order = self._order(tile.shape.member) or ()
        body: Body = []
        for row in range(tile.rows):
            for vector in range(tile.vectors):
                n, lanes = row * tile.vectors + vector, tile.lanes(vector, self.lanes)
                at = self.places.offset(order, self._bound(tile, state, row, vector))
                if not tile.shape.once:
                    made, old = self._read(f"old{target}", array, at, lanes)
                    body += [*made, st.store(tile.held[n], tile.held[n] + old)]
                body.append(st.Pack(array, at, tile.held, const(n, "i64"), 1, 1, lanes))
        return body

    def _read(self, name: str, array: Array, at: Value, lanes: int) -> tuple[Body, Value]:
        """A vector of memory, of which this many lanes are used."""
        held = Array(self.places.fresh(name).attr, "f64", (1,), "local", lanes=True)
        return [st.DeclareArray(held), st.Unpack(held, const(0, "i64"), array, at, 1, 1, lanes)], held[0]

    def _bound(self, tile: Tile, state: State, row: int, vector: int) -> dict[str, Value]:
        bound = {**state.bound, tile.shape.v: tile.start + vector * self.lanes}
        if tile.shape.row is not None and row:
            bound[tile.shape.row] = bound[tile.shape.row] + row
        return bound

    def added(self, tile: Tile, state: State) -> Body:
        """What stands inside R: every vector of a stretch, times every row's scalar."""
        operands = self.nest.assignments[tile.shape.member].operands
        vectors = [t for t in operands if tile.shape.v in self._indices(t)]
        scalars = [t for t in operands if t not in vectors]
        common = [t for t in scalars if tile.rows == 1 or tile.shape.row not in self._indices(t)]
        return self._scalars(common, state, [], lambda values: self._products(tile, state, vectors, [
            [*values, *(self._element(t, tile, state, row) for t in scalars if t not in common)]
            for row in range(tile.rows)
        ]))  # fmt: skip

    def _indices(self, tensor: int) -> tuple[str, ...]:
        return self.spaces[tensor].spec.order if tensor in self.spaces else self.nest.formats[tensor].order

    def _scalars(
        self, tensors: list[int], state: State, values: list[Value], then: Callable[[list[Value]], Body]
    ) -> Body:
        if not tensors:
            return then(values)
        t, others = tensors[0], tensors[1:]
        if t in self.spaces:
            return self.spaces[t].read(state, lambda v: self._scalars(others, state, [*values, v], then), False)
        operand = self.places.operands[t]
        own = [] if operand.format.ones else [operand.values[state.at[t][1]]]
        return self._scalars(others, state, values + own, then)

    def _element(self, tensor: int, tile: Tile, state: State, row: int, vector: int = 0) -> Value:
        """Of a tensor that is an array."""
        array = self.spaces[tensor].array if tensor in self.spaces else self.places.operands[tensor].values
        return array[self.places.offset(self._indices(tensor), self._bound(tile, state, row, vector))]

    def _start(self, tensor: int, tile: Tile, state: State, row: int, vector: int) -> tuple[Array, Value]:
        """Where a vector of an operand begins."""
        if tensor in self.spaces or (tile.rows > 1 and tile.shape.row in self._indices(tensor)):
            element = self._element(tensor, tile, state, row, vector)
            return element.attr, element.args[0]
        at = (
            state.at[tensor][1] * self.places.extent(tile.shape.v)
            if len(self._indices(tensor)) > 1
            else const(0, "i64")
        )
        return self.places.operands[tensor].values, at + (tile.start + vector * self.lanes)

    def _products(self, tile: Tile, state: State, operands: list[int], factors: list[list[Value]]) -> Body:
        """operands: that have the index v. factors: the scalars of every row."""
        scalars = [self.places.fresh("scale", "f64") if values else const(1.0) for values in factors]
        body: Body = [st.Let(s, reduce(lambda a, b: a * b, values)) for s, values in zip(scalars, factors) if values]
        work: Body = []
        for vector in range(tile.vectors):
            read: dict[tuple[int, int], Value] = {}
            for row, scalar in enumerate(scalars):
                keys = [(t, row if tile.shape.row in self._indices(t) else 0) for t in operands]
                for t, own in keys:
                    if (t, own) not in read:
                        place = self._start(t, tile, state, own, vector)
                        made, read[t, own] = self._read(f"v{t}", *place, tile.lanes(vector, self.lanes))
                        work += made
                product, total = (
                    reduce(lambda a, b: a * b, [read[key] for key in keys]),
                    tile.held[row * tile.vectors + vector],
                )
                work.append(st.store(total, fma(product, scalar, total) if factors[row] else total + product))
        if not all(factors) or not self._mostly_zero(tile):
            return [*body, *work]
        some = invert(reduce(both, [eq(scalar, 0.0) for scalar in scalars]))
        return [*body, st.If(some, st.block(work))]

    def _mostly_zero(self, tile: Tile) -> bool:
        """Whether a scalar comes from an array that sparse operands have filled."""
        return any(
            t in self.spaces and tile.shape.v not in self._indices(t) and self.spaces[t].spec.order
            for t in self.nest.assignments[tile.shape.member].operands
        )
