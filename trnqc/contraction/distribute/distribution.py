"""Distribution: where every array lies on a grid of processors so that computing and moving cost least.

A search from the leaves to the root over the placements of every array. A step is computed under a placement of its
loops: operands lie as it says, with a copy along dimensions whose label they lack. Sums over a label that lies along a
dimension meet at one processor of each line or are copied to all; both are tried.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from trnqc.contraction.distribute.placement import COPY, FIRST, Grid, Placement, combined, moved, placements
from trnqc.contraction.tree import Node, Tree, union
from trnqc.errors import InputError
from trnqc.expression.operand import Leaf


@dataclass(frozen=True)
class Placed:
    """One step. loops: the placement under which it is computed; result: that of its result, once partial sums met;
    wanted: that of each operand, in order; sources: that in which leaves begin, None for others and for functions."""

    node: Node
    loops: Placement
    result: Placement
    wanted: tuple[Placement, ...]
    sources: tuple[Placement | None, ...]


@dataclass(frozen=True)
class Distribution:
    """The steps in order, producers first. final: the placement of the result; volume: elements received by all
    processors together; longest: multiply-adds of the processor with most of them, summed over the steps."""

    tree: Tree
    grid: Grid
    steps: tuple[Placed, ...]
    final: Placement
    cost: float
    volume: int
    longest: int

    def __str__(self) -> str:
        rows = []
        for step in self.steps:
            taken = "  ".join(
                f"{operand.name}{_text(source)}->{_text(wanted)}" if source and source != wanted else
                f"{operand.name}{_text(wanted)}"
                for operand, wanted, source in zip(step.node.operands, step.wanted, step.sources)
            )  # fmt: skip
            rows.append(f"{step.node.name}{_text(step.result)} computed {_text(step.loops)} from {taken}")
        rows.append(f"{self.tree.root.name} ends{_text(self.final)}")
        rows.append(f"{self.volume:.4g} elements received, {self.longest:.4g} multiply-adds on one processor")
        return "\n".join(rows)


def _text(where: Placement | None) -> str:
    return f"<{','.join(where or ())}>"


def distribute(tree: Tree, grid: Grid, move_cost: float = 10.0, symbols: str = COPY + FIRST) -> Distribution:
    """The cheapest distribution on a grid, such as (2, 2).

    move_cost: time to receive one element in multiply-adds. Stored operands begin where that costs least, without
    copies. The result is not left on one processor of a line unless "1" is the only way. symbols: what placements may
    hold besides labels.
    """
    if not grid or min(grid) < 1 or COPY not in symbols:
        raise InputError(
            f"a grid has dimensions of one or more processors, and symbols hold {COPY}; found {grid}, {symbols!r}"
        )
    search = _Search(tree, grid, move_cost, symbols)
    table = {where: choice for where, choice in search.table(tree.root).items() if FIRST not in where}
    final, best = min(table.items(), key=lambda entry: entry[1].cost)
    return Distribution(tree, grid, tuple(search.steps(best)), final, best.cost, best.volume, best.longest)


@dataclass(frozen=True)
class _Choice:
    """The cheapest way found to have an operand in a placement, after the moves that this takes."""

    cost: float
    volume: int
    longest: int
    placed: Placed | None = None
    source: Placement | None = None
    inputs: tuple[_Choice, ...] = ()


class _Search:
    def __init__(self, tree: Tree, grid: Grid, move_cost: float, symbols: str) -> None:
        self.tree = tree
        self.grid = grid
        self.move_cost = move_cost
        self.symbols = symbols
        self.moves: dict[tuple[tuple[str, ...], Placement, Placement], int] = {}

    @cached_property
    def extents(self) -> dict[str, int]:
        return {label: index.extent for label, index in self.tree.indices.items()}

    def table(self, item: Node | Leaf) -> dict[Placement, _Choice]:
        """Placement of the operand -> the cheapest way to have it so."""
        return self._of_leaf(item) if isinstance(item, Leaf) else self._of_node(item)

    def moved(self, labels: tuple[str, ...], source: Placement, target: Placement) -> int:
        key = (labels, source, target)
        if key not in self.moves:
            self.moves[key] = moved(labels, self.extents, source, target, self.grid)
        return self.moves[key]

    def _of_leaf(self, leaf: Leaf) -> dict[Placement, _Choice]:
        labels = union(leaf.indices)
        found = {}
        begin = list(placements(labels, len(self.grid), FIRST))
        for target in placements(labels, len(self.grid), COPY + FIRST):
            if leaf.cost:
                work = leaf.cost * self._longest(labels, target)
                found[target] = _Choice(work, 0, work)
                continue
            # Where nothing has to move is tried first: it wins among equals.
            sources = sorted(begin, key=lambda source: source != target)
            source = min(sources, key=lambda source: self.moved(labels, source, target))
            volume = self.moved(labels, source, target)
            found[target] = _Choice(self.move_cost * volume, volume, 0, source=source)
        return found

    def _of_node(self, node: Node) -> dict[Placement, _Choice]:
        tables = [self.table(operand) for operand in node.operands]
        made: dict[Placement, _Choice] = {}
        for loops in placements(node.loops, len(self.grid), self.symbols):
            wanted = tuple(restricted(loops, union(operand.indices)) for operand in node.operands)
            inputs = tuple(table[w] for table, w in zip(tables, wanted))
            work = self._longest(node.loops, loops)
            for result, volume in self._met(node, loops):
                cost = sum(x.cost for x in inputs) + work + self.move_cost * volume
                if result not in made or cost < made[result].cost:
                    placed = Placed(node, loops, result, wanted, tuple(x.source for x in inputs))
                    total = volume + sum(x.volume for x in inputs)
                    made[result] = _Choice(cost, total, work + sum(x.longest for x in inputs), placed, None, inputs)
        return dict(self._after_moves(node, made))

    def _after_moves(self, node: Node, made: dict[Placement, _Choice]) -> Iterator[tuple[Placement, _Choice]]:
        for target in placements(node.indices, len(self.grid), self.symbols):
            options = []
            for source, choice in made.items():
                volume = self.moved(node.indices, source, target)
                options.append(
                    replace(choice, cost=choice.cost + self.move_cost * volume, volume=choice.volume + volume)
                )
            yield target, min(options, key=lambda option: option.cost)

    def _longest(self, labels: tuple[str, ...], where: Placement) -> int:
        """Turns of the loops on the processor with most of them."""
        along = {entry: self.grid[d] for d, entry in enumerate(where)}
        return prod(-(-self.extents[x] // along.get(x, 1)) for x in labels)

    def _met(self, node: Node, loops: Placement) -> Iterator[tuple[Placement, int]]:
        """(placement of the result, elements received) for every way in which the partial sums may meet."""
        states = [(loops, 0)]
        for d, entry in enumerate(loops):
            if entry in node.summed:
                states = [
                    ((*where[:d], symbol, *where[d + 1 :]), volume + self._combined(node, where, d, symbol == COPY))
                    for where, volume in states
                    for symbol in self.symbols
                ]
        yield from states

    def _combined(self, node: Node, where: Placement, dimension: int, copy: bool) -> int:
        # Dimensions after this one hold partial sums still, of all elements at every coordinate.
        now = tuple(COPY if entry in node.summed else entry for entry in where)
        return combined(node.indices, self.extents, now, dimension, self.grid, copy)

    def steps(self, choice: _Choice) -> Iterator[Placed]:
        for x in choice.inputs:
            yield from self.steps(x)
        if choice.placed is not None:
            yield choice.placed


def restricted(loops: Placement, labels: tuple[str, ...]) -> Placement:
    """How an operand lies under a placement of the loops: copies along dimensions whose label it lacks."""
    return tuple(entry if entry in labels or entry == FIRST else COPY for entry in loops)
