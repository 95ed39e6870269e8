"""A nest as functions of the generator core, one for each outermost loop, whose iterations are the groups.

nest -> tree of loops (network/loops.py), tensors by number (tensors.py)
     -> statements: loops over levels (coiterate.py) with positions in the operands (state.py), workspaces
        (workspace.py), vectors (dot.py, tile.py) and a sparse result (append.py)
     -> functions (pieces.py)
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from contextlib import ExitStack, nullcontext
from dataclasses import replace
from functools import reduce
from operator import mul

from trnqc.gen import Array, Value, Var, const
from trnqc.gen import statements as st
from trnqc.gen.build import Builder
from trnqc.gen.values import eq, invert
from trnqc.sparse.lower import runs
from trnqc.sparse.lower.ahead import ask_for_rows
from trnqc.sparse.lower.append import CAPACITY, VALUES, Appended
from trnqc.sparse.lower.coiterate import Driver, at_position, over
from trnqc.sparse.lower.dot import contiguous_factors, vector_sum
from trnqc.sparse.lower.pieces import NestProgram, Piece, names_in
from trnqc.sparse.lower.state import ONE, ZERO, LoweringState, resolved
from trnqc.sparse.lower.tensors import OUT, ProgramTensors, tensors_of
from trnqc.sparse.lower.tile import add_products, add_row, row_loops, write_rows, writes_all
from trnqc.sparse.lower.workspace import STATUS, WorkspaceArrays
from trnqc.sparse.network.loops import NestLeaf, NestLoop, Node, loops, ordered
from trnqc.sparse.network.nest import Nest


def nest_program(nest: Nest, lanes: int = 8, concurrent: bool = False) -> NestProgram:
    """Return the program of a nest.

    Parameters
    ----------
    nest
        The nest.
    lanes
        Number of doubles of a vector.
    concurrent
        Whether turns of an outermost loop run at the same time in the same arrays, see `ProgramTensors`.

    Raises
    ------
    ProgramError
        If the nest does not compute its network.
    """
    tensors = tensors_of(ordered(nest.check()), lanes, concurrent)
    pieces = (_Lowering(tensors).piece(f"part{n}", node) for n, node in enumerate(loops(tensors.nest)))
    return NestProgram(tensors, tuple(pieces))


class _Lowering:
    """Adds the statements of one outermost loop to the builder `b`."""

    def __init__(self, tensors: ProgramTensors) -> None:
        self.tensors, self.nest = tensors, tensors.nest
        self.count = len(tensors.operands)
        self.b = Builder()

    def piece(self, name: str, node: Node) -> Piece:
        state = LoweringState(at=dict.fromkeys(range(self.count), (0, ZERO)))
        appends = self.appends(node) is not None
        if isinstance(node, NestLeaf):
            with resolved(self.b, self.tensors.operands, state) as inner:
                self.leaf(node, inner)
            return Piece(self.function(name, None), "once", 0, False, appends)
        drivers, listed = self.drivers(node, state), self.listed(node, state)
        if drivers:
            operand, _ = drivers[0]
            p = Var(f"p{operand.number}", "i64")
            self.turn(node, at_position(self.b, node.index, state, drivers[0], p))
            return Piece(self.function(name, p), "level", operand.number, self.divisible(node), appends)
        if listed:
            workspace, inside = listed
            if workspace.in_order:
                self.entries(workspace, node, inside, state)
                return Piece(self.function(name, None), "once", 0, False, appends)
            e = Var(f"e{workspace.tensor}", "i64")
            state = self.before_entries(workspace, node, inside, state)
            self.entry(node, inside, workspace.at_entry(self.b, e, state))
            return Piece(self.function(name, e), "list", workspace.tensor, False, appends)
        x = Var(node.index, "i64")
        self.turn(node, state.bind(node.index, x))
        return Piece(self.function(name, x), "index", node.index, self.divisible(node), appends)

    def divisible(self, node: NestLoop) -> bool:
        """Whether different iterations of an outermost loop write to different elements, and sort no list of others."""
        if self.appends(node):
            read = [self.tensors.workspaces[t] for t in self.operands(node) if t >= self.count]
            if any(w.kept and w.counted and w.spec.order and not w.listed_later for w in read):
                return False
        for target in map(self.tensors.target, node.members):
            if target == self.tensors.result:
                order = self.tensors.order(target)
                if node.index not in order or (self.tensors.appended and order[0] != node.index):
                    return False
            elif self.nest.fused(target) == 0:
                workspace = self.tensors.workspaces[target]
                if workspace.counted or node.index not in workspace.spec.order:
                    return False
        return True

    def function(self, name: str, group: Value | None) -> st.Function:
        """Return the function of the statements so far, with only the parameters that it uses."""
        tensors, body = self.tensors, self.unless_full()
        known: list[Value | Array] = [Var(tensors.extents.argument(index), "i64") for index in tensors.extents.sizes]
        for operand in tensors.operands:
            known += operand.arrays
        for workspace in tensors.workspaces.values():
            known += [*workspace.arrays, *([workspace.room] if workspace.hashed else [])]
        known += [CAPACITY, *tensors.appended.arrays] if tensors.appended else [OUT, STATUS]
        used = names_in(body)
        return st.Function(name, tuple(p for p in known if st.name_of(p) in used), st.block(body), group)

    def unless_full(self) -> list[st.Statement]:
        """Return the body, which runs only while the hash tables and the memory of the result have been large enough.

        Otherwise the kernel repeats the call with more memory.
        """
        body = self.b.body
        names = names_in(body)
        growing = [w.tensor for w in self.tensors.workspaces.values() if w.hashed and w.array.name in names]
        growing += [self.tensors.result] if self.tensors.appended and VALUES.name in names else []
        for tensor in growing:
            body = [st.If(eq(STATUS[tensor], 0), st.block(body))]
        return body

    def appends(self, node: Node) -> Appended | None:
        """Return the sparse result if these loops append to it, else None."""
        return self.tensors.appended if self.tensors.result - self.count in node.members else None

    # Loops

    def nodes(self, nodes: Iterable[Node], depth: int, state: LoweringState) -> None:
        """Add the body of `depth` loops. Workspaces of one turn are cleared before they are written and after use."""
        workspaces = self.tensors.workspaces
        for node in nodes:
            for target in map(self.tensors.target, node.members):
                turn = target in workspaces and self.nest.fused(target) == depth and depth
                if turn and not writes_all(self.tensors, node):
                    workspaces[target].clear(self.b)
            if isinstance(node, NestLeaf):
                self.leaf(node, state)
            else:
                self.loop(node, state)
            for t in self.operands(node):
                if t >= self.count and self.nest.fused(t) == depth and depth:
                    workspaces[t].finish(self.b)

    def loop(self, node: NestLoop, state: LoweringState) -> None:
        if self.by_vectors(node, state) or self.row_appended(node, state) or self.summed(node, state):
            return
        drivers = self.drivers(node, state)
        listed = None if drivers else self.listed(node, state)
        if listed:
            workspace, inside = listed
            self.entries(workspace, node, inside, state)
            return
        if self.ran(node, state, drivers):
            return
        with over(self.b, self.tensors.extents, node.index, state, drivers) as inner:
            if len(drivers) == 1:
                ask_for_rows(self.b, self.tensors, node.members, node.index, inner, drivers[0])
            self.turn(node, inner)

    def ran(self, node: NestLoop, state: LoweringState, drivers: Sequence[Driver]) -> bool:
        """Add a loop over stored elements that may be consecutive. Returns False for other loops."""
        if len(drivers) != 1 or not runs.is_row_target(self.tensors, node):
            return False
        if runs.contiguous(self.tensors, node, drivers[0]) is None:
            return False
        runs.over_row(self.b, self.tensors, node, state, drivers[0], self.inside)
        return True

    def by_vectors(self, node: NestLoop, state: LoweringState) -> bool:
        """Add the loop by vectors, as sums of rows or of contiguous products. Returns False if it is neither."""
        if state.tile is not None:
            if node.index != state.tile.loops.v:
                return False
            add_products(self.b, self.tensors, state.tile, state)
            return True
        rows = row_loops(self.tensors, node)
        if rows is not None:
            write_rows(self.b, self.tensors, rows, state, self.loop)
            return True
        factors = contiguous_factors(self.tensors, node)
        if factors is None:
            return add_row(self.b, self.tensors, node, state)
        total = vector_sum(self.b, self.tensors, node.index, factors, state)
        self.leaf(NestLeaf(node.members[0]), state, total, factors)
        return True

    def row_appended(self, node: NestLoop, state: LoweringState) -> bool:
        """Add the loop that copies a row of a workspace to the end of a sparse result. Returns False for others."""
        appended, tensors = self.appends(node), self.tensors
        if appended is None or node.members != (tensors.result - self.count,) or not isinstance(node.body[0], NestLeaf):
            return False
        operands = self.nest.assignments[node.members[0]].operands
        source = operands[0]
        if len(operands) > 1 or source not in tensors.workspaces or not tensors.is_row(source, node.index):
            return False
        if tensors.order(tensors.result)[-1] != node.index or state.listed is not None or source in state.entry:
            return False
        start = tensors.extents.offset(tensors.order(source), state.bind(node.index, ZERO).bound)
        appended.add_row(self.b, state, tensors.array(source), start, zeros=not self.nest.crowded)
        return True

    def summed(self, node: NestLoop, state: LoweringState) -> bool:
        """Add the loop with its terms summed in a variable. Returns False if they belong to several elements."""
        if len(node.members) > 1:
            return False
        target = self.tensors.target(node.members[0])
        workspace, order = self.tensors.workspaces.get(target), self.tensors.order(target)
        variable = workspace is not None and not order and not workspace.kept
        appended = workspace is None and self.tensors.appended is not None
        if target in state.sums or appended or not set(order) <= set(state.bound):
            return False
        if variable:
            return workspace is not None and self.summed_in_place(node, state, workspace)
        total = self.b.declare("sum", const(0.0))
        inner = replace(state, sums={**state.sums, target: total})
        if workspace is None or not workspace.counted:
            drivers = self.drivers(node, inner)
            if len(drivers) == 1 and isinstance(node.body[0], NestLeaf):
                runs.summed(self.b, self.tensors, node, inner, drivers[0], target, self.inside, self.leaf)
            else:
                self.loop(node, inner)
            self.add(target, state, total)
            return True
        some = self.b.declare("some", ZERO)
        self.loop(node, replace(inner, seen={**state.seen, target: some}))
        with self.b.when(eq(some, 1)):
            self.add(target, state, total)
        return True

    def summed_in_place(self, node: NestLoop, state: LoweringState, workspace: WorkspaceArrays) -> bool:
        """Add a loop over the elements of one operand that are summed in a variable. Returns False for others."""
        drivers = self.drivers(node, state)
        if len(drivers) != 1 or runs.contiguous(self.tensors, node, drivers[0]) is None:
            return False
        target = workspace.tensor
        seen = {**state.seen, target: workspace.count} if workspace.counted else state.seen
        inner = replace(state, sums={**state.sums, target: workspace.scalar}, seen=seen)
        runs.summed(self.b, self.tensors, node, inner, drivers[0], target, self.inside, self.leaf)
        return True

    def turn(self, node: NestLoop, state: LoweringState) -> None:
        """Add one turn of a loop, in which the index has a value."""
        appended = self.appends(node)
        with appended.around(self.b, node.index, state) if appended else nullcontext():
            self.inside(node, state)

    def inside(self, node: NestLoop, state: LoweringState) -> None:
        operands = [self.tensors.operands[t] for t in self.operands(node) if t < self.count]
        with resolved(self.b, operands, state) as inner, ExitStack() as skips:
            for condition in self.not_zero(node, inner):
                skips.enter_context(self.b.when(condition))
            self.nodes(node.body, node.depth + 1, inner)

    def not_zero(self, node: NestLoop, state: LoweringState) -> Iterator[Value]:
        """Yield a condition for each element of a workspace that the loops inside only multiply by.

        Many elements of a workspace may be zero, and the loops inside then have nothing to add. Rows in registers are
        skipped together, see tile.py.
        """
        if len(node.members) > 1 or state.tile is not None or not isinstance(node.body[0], NestLoop):
            return
        for t in self.nest.assignments[node.members[0]].operands:
            workspace = self.tensors.workspaces.get(t)
            if workspace is None or t in state.entry or workspace.hashed or node.index not in workspace.spec.order:
                continue
            if set(workspace.spec.order) <= set(state.bound):
                yield invert(eq(self.tensors.element(t, state.bound), 0.0))

    def operands(self, node: Node) -> list[int]:
        return [t for k in node.members for t in self.nest.assignments[k].operands]

    def drivers(self, node: NestLoop, state: LoweringState) -> list[Driver]:
        """Return the operands whose next level is over the index and compressed, with these levels."""
        operands = [self.tensors.operands[t] for t in self.operands(node) if t < self.count]
        levels = ((operand, state.next_level(operand, node.index)) for operand in operands)
        return [(operand, level) for operand, level in levels if level is not None]

    # Lists of the elements that were written to a workspace

    def listed(self, node: NestLoop, state: LoweringState) -> tuple[WorkspaceArrays, NestLoop] | None:
        """Return a workspace whose list can replace the loops over its indices from this on, and the last of them."""
        computed = {self.tensors.target(k) for k in node.members}
        for t in self.operands(node):
            workspace = self.tensors.workspaces.get(t)
            if workspace is None or t in computed or not workspace.counted or node.index not in workspace.spec.order:
                continue
            order, inner, chain = workspace.spec.order, node, [node.index]
            while len(chain) < len(order) and len(inner.body) == 1 and isinstance(inner.body[0], NestLoop):
                inner = inner.body[0]
                chain.append(inner.index)
            in_order = tuple(chain) == order == self.nest.formats[-1].order[-len(order) :]
            in_order |= len(order) == 1 or self.appends(node) is None
            if sorted(chain) == sorted(order) and in_order and not set(order) & set(state.bound):
                return workspace, inner
        return None

    def entries(self, workspace: WorkspaceArrays, node: NestLoop, inside: NestLoop, state: LoweringState) -> None:
        """Add the loop over a list that replaces the loops from `node` to `inside`."""
        state = self.before_entries(workspace, node, inside, state)
        with workspace.over(self.b, state, sort=self.appends(node) is not None) as inner:
            self.entry(node, inside, inner)

    def before_entries(
        self, workspace: WorkspaceArrays, node: NestLoop, inside: NestLoop, state: LoweringState
    ) -> LoweringState:
        """Add the statements before a loop over a list that replaces several loops."""
        appended = self.appends(node)
        if node is inside or appended is None:
            return state
        return appended.before_list(self.b, workspace.spec.order, state)

    def entry(self, node: NestLoop, inside: NestLoop, state: LoweringState) -> None:
        """Add the statements for one entry of a list. A list over one index is like any other loop."""
        if node is inside:
            self.turn(node, state)
        else:
            self.inside(inside, state)

    # Products

    def leaf(self, node: NestLeaf, state: LoweringState, known: Value | None = None, of: Sequence[int] = ()) -> None:
        """Add the product of the operands to the target, with factors of outer loops first.

        Their product can then be computed outside the inner loops. `known` is the product of the operands `of`, if it
        is known.
        """
        assignment, tensors = self.nest.assignments[node.member], self.tensors
        depths = {x: depth for depth, x in enumerate(assignment.loops)}
        depth = {t: max((depths[x] for x in self.nest.indices[t]), default=-1) for t in assignment.operands}
        factors: list[Value] = [] if known is None else [known]
        with ExitStack() as reads:
            for t in sorted((t for t in assignment.operands if t not in of), key=lambda t: (depth[t], t)):
                if t >= self.count:
                    read = tensors.workspaces[t].read(self.b, state, self.strict(assignment.target))
                    factors.append(reads.enter_context(read))
                else:
                    factors += tensors.operands[t].factor(state)
            self.add(assignment.target, state, reduce(mul, factors) if factors else const(1.0))

    def strict(self, target: int) -> bool:
        """Whether a target distinguishes a zero from an element to which nothing was added."""
        if target in self.tensors.workspaces:
            return self.tensors.workspaces[target].counted
        return self.tensors.appended is not None

    def add(self, target: int, state: LoweringState, value: Value) -> None:
        if target in state.sums:
            self.b.assign(state.sums[target], state.sums[target] + value)
            if target in state.seen:
                self.b.assign(state.seen[target], ONE)
        elif target in self.tensors.workspaces:
            self.tensors.workspaces[target].add(self.b, state, value)
        elif self.tensors.appended:
            self.tensors.appended.add(self.b, state, value)
        else:
            self.b.accumulate(self.tensors.element(target, state.bound), value)
