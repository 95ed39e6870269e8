"""A nest as programs of the generator core: one for each of its outermost loops, whose turns are the groups.

nest -> tree of loops (loops.py) -> statements: loops over levels (coiterate.py) with operands followed down theirs
(places.py), workspaces (workspace.py) and a sparse result (append.py) -> functions
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Literal

from trnqc.gen import Array, Value, Var, const
from trnqc.gen import statements as st
from trnqc.gen.values import eq, walk
from trnqc.sparse.lower.append import VALUES, Appended
from trnqc.sparse.lower.coiterate import Driver, at_position, over
from trnqc.sparse.lower.dot import Dots
from trnqc.sparse.lower.positions import Body, Places, State
from trnqc.sparse.lower.tile import Tiles
from trnqc.sparse.lower.workspace import STATUS, Space
from trnqc.sparse.network.loops import Leaf, Loop, Node, loops, ordered, stored
from trnqc.sparse.network.nest import Format, Nest

OUT = Array("out", "f64")


@dataclass(frozen=True)
class Piece:
    """A function and what its groups are: all values of an index, the entries of the outermost level of an operand,
    those of a list, or a single one. divisible: whether ranges of groups may be run at the same time, each with
    workspaces of its own.
    """

    function: st.Function
    over: Literal["index", "level", "list", "once"]
    of: str | int
    divisible: bool
    appends: bool


@dataclass(frozen=True)
class Program:
    """nest: as it was lowered. stored: the format of a sparse result before it is brought into the wanted one."""

    nest: Nest
    pieces: tuple[Piece, ...]
    spaces: tuple[Space, ...]
    appended: Appended | None

    @property
    def tensors(self) -> int:
        """Operands, intermediates and the result, which is the last."""
        return len(self.nest.network.inputs) + len(self.nest.assignments)

    @property
    def stored(self) -> Format:
        return self.appended.format if self.appended else self.nest.formats[-1]


def program(nest: Nest, lanes: int = 8) -> Program:
    """The functions of a nest, in the order in which they run; raises ProgramError for a nest that means nothing.

    lanes: doubles of a vector, of which the text is to be made.
    """
    nest = ordered(nest.check())
    lowering = _Lowering(nest, lanes)
    pieces = tuple(lowering.piece(number, node) for number, node in enumerate(loops(nest)))
    return Program(nest, pieces, tuple(lowering.spaces.values()), lowering.appended)


class _Lowering:
    def __init__(self, nest: Nest, lanes: int) -> None:
        self.nest, self.count = nest, len(nest.network.inputs)
        self.places = Places(nest, _innermost(nest))
        self.result = self.count + len(nest.assignments) - 1
        self.spaces = {
            self.count + k: Space(self.places, self.count + k, spec, nest.fused(self.count + k) == 0)
            for k, spec in enumerate(nest.workspaces)
        }
        self.tiles = Tiles(self.places, self.spaces, OUT, not nest.formats[-1].sparse, lanes)
        self.dots = Dots(self.places, self.spaces, lanes)
        self.appended = Appended(self.places, self.result, stored(nest)) if nest.formats[-1].sparse else None

    def piece(self, number: int, node: Node) -> Piece:
        state = self.places.start()
        name = f"part{number}"
        appends = self.appended is not None and self._makes_result(node)
        if isinstance(node, Leaf):
            body = self.places.advance(list(range(self.count)), state, lambda s: self.leaf(node, s))
            return Piece(self._function(name, body, None), "once", 0, False, appends)
        drivers, listed = self._drivers(node, state), self._listed(node, state)
        if drivers:
            p = Var(f"p{drivers[0][0]}", "i64")
            body = at_position(self.places, node.index, state, drivers[0], p, lambda s: self.turn(node, s))
            return Piece(self._function(name, body, p), "level", drivers[0][0], self._divisible(node), appends)
        if listed:
            space, inside = listed
            e = Var(f"e{space.tensor}", "i64")
            head, then = self._entries(space, node, inside, state)
            body = space.at_entry(e, state, then)
            return Piece(self._function(name, [*head, *body], e), "list", space.tensor, False, appends)
        x = Var(node.index, "i64")
        body = self.turn(node, state.bind(node.index, x))
        return Piece(self._function(name, body, x), "index", node.index, self._divisible(node), appends)

    def _divisible(self, node: Loop) -> bool:
        """Whether turns of an outermost loop write to places of their own."""
        for k in node.members:
            target = self.count + k
            if target == self.result:
                order = self.nest.formats[-1].order
                if node.index not in order or (self.appended and order[0] != node.index):
                    return False
            elif self.nest.fused(target) == 0:
                space = self.spaces[target]
                if space.counted or node.index not in space.spec.order:
                    return False
        return True

    def _function(self, name: str, body: Body, group: Value | None) -> st.Function:
        body = self._unless_full(body)
        used = _names(body)
        known: list[Value | Array] = [Var(f"n_{index}", "i64") for index in self.nest.network.extents]
        for operand in self.places.operands:
            for level, kind in enumerate(operand.format.kinds):
                known += [operand.positions(level), operand.coordinates(level)] if kind == "compressed" else []
            known.append(operand.values)
        for space in self.spaces.values():
            known += [*space.arrays, *([space.room] if space.hashed else [])]
        known += [Var("capacity", "i64"), *self.appended.arrays] if self.appended else [OUT, STATUS]
        params = tuple(dict.fromkeys(p for p in known if st.name_of(p) in used))
        return st.Function(name, params, st.block(body), group)

    def _unless_full(self, body: Body) -> Body:
        """Nothing more is done once a table or the result has proved too small: all begins again with a larger one."""
        names = _names(body)
        growing = [space.tensor for space in self.spaces.values() if space.hashed and space.array.name in names]
        growing += [self.result] if self.appended and VALUES.name in names else []
        for tensor in growing:
            body = [st.If(eq(STATUS[tensor], 0), st.block(body))]
        return body

    def nodes(self, nodes: tuple[Node, ...], depth: int, state: State) -> Body:
        """What stands inside `depth` loops; workspaces of this turn are cleared before it and left clean after it."""
        body: Body = []
        for node in nodes:
            for k in node.members:
                made = self.spaces.get(k + self.count)
                if made and self.nest.fused(made.tensor) == depth and depth and not self.tiles.whole(node):
                    body += made.clear()
            body += self.leaf(node, state) if isinstance(node, Leaf) else self.loop(node, state)
            for k in node.members:
                for t in self.nest.assignments[k].operands:
                    if t >= self.count and self.nest.fused(t) == depth and depth:
                        body += self.spaces[t].finish()
        return body

    def loop(self, node: Loop, state: State) -> Body:
        for form in (self._by_vectors, self._gathered):
            body = form(node, state)
            if body is not None:
                return body
        drivers = self._drivers(node, state)
        listed = None if drivers else self._listed(node, state)
        if listed:
            space, inside = listed
            sort = self.appended is not None and self._makes_result(node)
            head, then = self._entries(space, node, inside, state)
            return [*head, *space.over(state, sort, then)]
        return over(self.places, node.index, state, drivers, lambda s: self.turn(node, s))

    def _by_vectors(self, node: Loop, state: State) -> Body | None:
        """The loop as stretches of rows, as a part of one, or as a sum of contiguous products, if it is any."""
        if state.tile is not None:
            return self.tiles.added(state.tile, state) if node.index == state.tile.shape.v else None
        shape = self.tiles.shape(node)
        if shape is not None:
            return self.tiles.written(shape, state, lambda s: self.loop(shape.sums, s))
        factors = self.dots.factors(node)
        if factors is None:
            return None
        body, total = self.dots.summed(node, factors, state)
        return [*body, *self.leaf(Leaf(node.members[0]), state, total, factors)]

    def _entries(self, space: Space, node: Loop, inside: Loop, state: State) -> tuple[Body, Callable[[State], Body]]:
        """What goes before a loop over a list, and what an entry does; with one index it is a loop as any other."""
        if node is inside:
            return [], lambda s: self.turn(node, s)
        appends = self.appended is not None and self._makes_result(node)
        head = self.appended.before_list(space.spec.order, state) if self.appended and appends else []
        return head, lambda s: self._inside(inside, s)

    def turn(self, node: Loop, state: State) -> Body:
        """One turn, its index bound."""
        body = self._inside(node, state)
        if self.appended and self._makes_result(node):
            return self.appended.around(node.index, state, body)
        return body

    def _inside(self, node: Loop, state: State) -> Body:
        tensors = [t for t in self._operands(node) if t < self.count]
        return self.places.advance(tensors, state, lambda s: self.nodes(node.body, node.depth + 1, s))

    def _operands(self, node: Node) -> list[int]:
        return [t for k in node.members for t in self.nest.assignments[k].operands]

    def _makes_result(self, node: Node) -> bool:
        return self.result - self.count in node.members

    def _drivers(self, node: Loop, state: State) -> list[Driver]:
        found = []
        for t in self._operands(node):
            level = self.places.next_level(t, state, node.index) if t < self.count else None
            if level is not None:
                found.append((t, level))
        return found

    def _listed(self, node: Loop, state: State) -> tuple[Space, Loop] | None:
        """A workspace whose list can replace this loop and those inside it over its other indices; the last of them."""
        made = {self.count + k for k in node.members}
        for t in self._operands(node):
            space = self.spaces.get(t)
            if space is None or t in made or not space.counted or node.index not in space.spec.order:
                continue
            order, inner, chain = space.spec.order, node, [node.index]
            while len(chain) < len(order) and len(inner.body) == 1 and isinstance(inner.body[0], Loop):
                inner = inner.body[0]
                chain.append(inner.index)
            in_order = tuple(chain) == order == self.nest.formats[-1].order[-len(order) :]
            in_order |= len(order) == 1 or not (self.appended and self._makes_result(node))
            if sorted(chain) == sorted(order) and in_order and not set(order) & set(state.bound):
                return space, inner
        return None

    def _gathered(self, node: Loop, state: State) -> Body | None:
        """The loop with what it adds to one place gathered in a variable; None where that is not so."""
        if len(node.members) > 1:
            return None
        target = self.count + node.members[0]
        space = self.spaces.get(target)
        order = space.spec.order if space else self.nest.formats[-1].order
        variable = space is not None and not order and not space.kept
        if target in state.sums or variable or not set(order) <= set(state.bound) or (not space and self.appended):
            return None
        total, some = self.places.fresh("sum", "f64"), self.places.fresh("some")
        counted = space is not None and space.counted
        inner = replace(state.summed(target, total), seen={**state.seen, target: some} if counted else state.seen)
        add = self._add(target, state, total)
        if not counted:
            return [st.Declare(total, const(0.0)), *self.loop(node, inner), *add]
        guarded = st.If(eq(some, 1), st.block(add))
        return [st.Declare(total, const(0.0)), st.Declare(some, const(0, "i64")), *self.loop(node, inner), guarded]

    def leaf(self, node: Leaf, state: State, known: Value | None = None, of: Sequence[int] = ()) -> Body:
        """The product of the operands, added to the target; outer loops' factors first, which then leave the loop.

        known: a value that stands for the operands `of`.
        """
        assignment = self.nest.assignments[node.member]
        depths = {x: depth for depth, x in enumerate(assignment.loops)}
        depth = {t: max((depths[x] for x in self.nest.indices[t]), default=-1) for t in assignment.operands}
        strict = self._strict(assignment.target)

        def rest(tensors: list[int], state: State, factors: list[Value]) -> Body:
            if not tensors:
                product = reduce(lambda a, b: a * b, factors) if factors else const(1.0)
                return self._add(assignment.target, state, product)
            t, others = tensors[0], tensors[1:]
            if t >= self.count:
                return self.spaces[t].read(state, lambda v: rest(others, state, [*factors, v]), strict)
            operand = self.places.operands[t]
            value = [] if operand.format.ones else [operand.values[state.at[t][1]]]
            return rest(others, state, factors + value)

        others = [t for t in assignment.operands if t not in of]
        return rest(sorted(others, key=lambda t: (depth[t], t)), state, [] if known is None else [known])

    def _strict(self, target: int) -> bool:
        """Whether a target distinguishes a zero from what was never added."""
        return self.spaces[target].counted if target in self.spaces else self.appended is not None

    def _add(self, target: int, state: State, value: Value) -> Body:
        if target in state.sums:
            seen = [st.Assign(state.seen[target], const(1, "i64"))] if target in state.seen else []
            return [st.Assign(state.sums[target], state.sums[target] + value), *seen]
        if target in self.spaces:
            return self.spaces[target].add(state, value)
        if self.appended:
            return self.appended.add(state, value)
        return [st.accumulate(OUT[self.places.offset(self.nest.formats[-1].order, state.bound)], value)]


def _innermost(nest: Nest) -> frozenset[str]:
    """Indices of innermost loops over all values: the compiler knows how often they turn."""
    found = set()
    for a in nest.assignments:
        inputs = [nest.formats[t] for t in a.operands if t < len(nest.network.inputs)]
        for index in a.loops[-1:]:
            if not any(dict(zip(f.order, f.kinds)).get(index) == "compressed" for f in inputs):
                found.add(index)
    return frozenset(found)


def _names(body: Body) -> set[str]:
    """Names of all variables and arrays that statements read or write."""
    return {name for s in body for part in st.statements(s) for name in _own(part)}


def _own(s: st.Statement) -> Iterator[str]:
    for value in walk(st.values(s)):
        if value.op in ("var", "load"):
            yield st.name_of(value) if value.op == "var" else value.attr.name
    match s:
        case st.Store() | st.Accumulate():
            yield s.array.name
        case st.Unpack() | st.Pack():
            yield from (s.target.name, s.source.name)
        case st.Call():
            yield from (a.name for a in map(st.whole, s.arguments) if isinstance(a, Array))
