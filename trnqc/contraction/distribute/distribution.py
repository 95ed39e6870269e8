"""Distribution: placements of all arrays on a grid of processors for least computation and communication.

The search goes from the leaves to the root over the placements of every array. A step is computed under a placement of
its loops: operands are placed accordingly, with copies along dimensions whose label they lack. Partial sums over a
distributed label are combined on one processor of each line, or copied to all; both are tried.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from math import prod

from trnqc.contraction.distribute.placement import COPY, FIRST, Grid, Placement, combined, moved, placements
from trnqc.contraction.tree import Tree, TreeNode, union
from trnqc.errors import InputError
from trnqc.expression.operand import Leaf


@dataclass(frozen=True)
class Placed:
    """A step of a tree with the placements of its loops, its result (partial sums combined), and its operands.

    Operands are read as `wanted` and stored as `sources`, None for functions and results of other steps.
    """

    node: TreeNode
    loops: Placement
    result: Placement
    wanted: tuple[Placement, ...]
    sources: tuple[Placement | None, ...]


@dataclass(frozen=True)
class TreeDistribution:
    """The steps of a tree, producers first, on a grid of processors, with the placement of the result.

    `cost` is the estimated time in multiply-adds, `volume` the elements received by all processors together, and
    `longest` the multiply-adds of the busiest processor, summed over the steps.
    """

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
                f"{operand.name}{_text(source)}->{_text(wanted)}"
                if source and source != wanted
                else f"{operand.name}{_text(wanted)}"
                for operand, wanted, source in zip(step.node.operands, step.wanted, step.sources)
            )
            rows.append(f"{step.node.name}{_text(step.result)} computed {_text(step.loops)} from {taken}")
        rows.append(f"{self.tree.root.name} ends{_text(self.final)}")
        rows.append(f"{self.volume:.4g} elements received, {self.longest:.4g} multiply-adds on one processor")
        return "\n".join(rows)


def _text(where: Placement | None) -> str:
    return f"<{','.join(where or ())}>"


def distribute(tree: Tree, grid: Grid, move_cost: float = 10.0, symbols: str = COPY + FIRST) -> TreeDistribution:
    """Return the cheapest distribution of a tree on a grid.

    Parameters
    ----------
    tree : Tree
        The operations.
    grid : tuple of int
        Number of processors along each dimension, such as (2, 2).
    move_cost : float
        Time to receive one element, in multiply-adds.
    symbols : str
        Entries that placements may have besides labels.

    Raises
    ------
    InputError
        If the grid has no processors, or `symbols` lack the copy.

    Notes
    -----
    Stored operands are placed where that costs least, without copies. Each element of the result ends on a processor or
    as copies, never at coordinate 0 of a dimension only.
    """
    if not grid or min(grid) < 1 or COPY not in symbols:
        raise InputError(
            f"a grid has dimensions of one or more processors, and symbols hold {COPY}; found {grid}, {symbols!r}"
        )
    search = _Search(tree, grid, move_cost, symbols)
    table = {where: choice for where, choice in search.table(tree.root).items() if FIRST not in where}
    final, best = min(table.items(), key=lambda entry: entry[1].cost)
    return TreeDistribution(tree, grid, tuple(search.steps(best)), final, best.cost, best.volume, best.longest)


@dataclass(frozen=True)
class _Choice:
    """The cheapest way to have an operand in a placement, including moves."""

    cost: float
    volume: int
    longest: int
    placed: Placed | None = None
    source: Placement | None = None
    inputs: tuple[_Choice, ...] = ()


class _Search:
    """The search over one tree and grid."""

    def __init__(self, tree: Tree, grid: Grid, move_cost: float, symbols: str) -> None:
        self.tree = tree
        self.grid = grid
        self.move_cost = move_cost
        self.symbols = symbols
        self.moves: dict[tuple[tuple[str, ...], Placement, Placement], int] = {}

    @cached_property
    def extents(self) -> dict[str, int]:
        """Extents of all labels."""
        return {label: index.extent for label, index in self.tree.indices.items()}

    def table(self, item: TreeNode | Leaf) -> dict[Placement, _Choice]:
        """Return placement of the operand -> the cheapest way to have it there."""
        return self._of_leaf(item) if isinstance(item, Leaf) else self._of_node(item)

    def moved(self, labels: tuple[str, ...], source: Placement, target: Placement) -> int:
        """Return the elements received in a move."""
        key = (labels, source, target)
        if key not in self.moves:
            self.moves[key] = moved(labels, self.extents, source, target, self.grid)
        return self.moves[key]

    def _of_leaf(self, leaf: Leaf) -> dict[Placement, _Choice]:
        """Return the table of a leaf."""
        labels = union(leaf.indices)
        choices = {}
        begin = list(placements(labels, len(self.grid), FIRST))
        for target in placements(labels, len(self.grid), COPY + FIRST):
            if leaf.cost:
                work = leaf.cost * self._longest(labels, target)
                choices[target] = _Choice(work, 0, work)
                continue
            # Among equals the placement without a move comes first.
            sources = sorted(begin, key=lambda source: source != target)
            source = min(sources, key=lambda source: self.moved(labels, source, target))
            volume = self.moved(labels, source, target)
            choices[target] = _Choice(self.move_cost * volume, volume, 0, source=source)
        return choices

    def _of_node(self, node: TreeNode) -> dict[Placement, _Choice]:
        """Return the table of a step's result."""
        tables = [self.table(operand) for operand in node.operands]
        choices: dict[Placement, _Choice] = {}
        for loops in placements(node.loops, len(self.grid), self.symbols):
            wanted = tuple(restricted(loops, union(operand.indices)) for operand in node.operands)
            inputs = tuple(table[w] for table, w in zip(tables, wanted))
            work = self._longest(node.loops, loops)
            for result, volume in self._met(node, loops):
                cost = sum(x.cost for x in inputs) + work + self.move_cost * volume
                if result not in choices or cost < choices[result].cost:
                    placed = Placed(node, loops, result, wanted, tuple(x.source for x in inputs))
                    total = volume + sum(x.volume for x in inputs)
                    choices[result] = _Choice(cost, total, work + sum(x.longest for x in inputs), placed, None, inputs)
        return dict(self._after_moves(node, choices))

    def _after_moves(self, node: TreeNode, choices: dict[Placement, _Choice]) -> Iterator[tuple[Placement, _Choice]]:
        """Yield the table with moves after the step."""
        for target in placements(node.indices, len(self.grid), self.symbols):
            options = []
            for source, choice in choices.items():
                volume = self.moved(node.indices, source, target)
                options.append(
                    replace(choice, cost=choice.cost + self.move_cost * volume, volume=choice.volume + volume)
                )
            yield target, min(options, key=lambda option: option.cost)

    def _longest(self, labels: tuple[str, ...], where: Placement) -> int:
        """Return the iterations of the loops on the processor with most of them."""
        along = {entry: self.grid[d] for d, entry in enumerate(where)}
        return prod(-(-self.extents[x] // along.get(x, 1)) for x in labels)

    def _met(self, node: TreeNode, loops: Placement) -> Iterator[tuple[Placement, int]]:
        """Yield (placement of the result, elements received) for every way to combine partial sums."""
        states = [(loops, 0)]
        for d, entry in enumerate(loops):
            if entry in node.summed:
                states = [
                    ((*where[:d], symbol, *where[d + 1 :]), volume + self._combined(node, where, d, symbol == COPY))
                    for where, volume in states
                    for symbol in self.symbols
                ]
        yield from states

    def _combined(self, node: TreeNode, where: Placement, dimension: int, copy: bool) -> int:
        """Return the elements received when partial sums along one dimension are combined."""
        # Later dimensions still hold partial sums of all elements at every coordinate.
        now = tuple(COPY if entry in node.summed else entry for entry in where)
        return combined(node.indices, self.extents, now, dimension, self.grid, copy)

    def steps(self, choice: _Choice) -> Iterator[Placed]:
        """Yield the steps of a choice, producers first."""
        for x in choice.inputs:
            yield from self.steps(x)
        if choice.placed is not None:
            yield choice.placed


def restricted(loops: Placement, labels: tuple[str, ...]) -> Placement:
    """Return the placement of an operand under a placement of the loops: copies where it lacks the label."""
    return tuple(entry if entry in labels or entry == FIRST else COPY for entry in loops)
