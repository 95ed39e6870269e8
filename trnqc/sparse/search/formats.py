"""Formats of all tensors for chosen loops: levels in the order of the loops, each dense if enough of it is stored.

loops -> shared loops, formats of operands and result, workspaces -> nest
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from trnqc.sparse.network.loops import in_order
from trnqc.sparse.network.nest import Assignment, Format, Kind, Nest, Space, Workspace
from trnqc.sparse.network.network import Indices
from trnqc.sparse.search.statistics import Statistics, product

Out = Literal["auto", "sparse", "dense"]

# Least part of the coordinates of a level that must be stored for the level to be dense. It is smaller for a level with
# others below it (ROWS), where an empty coordinate costs one pointer, than for a last level (ELEMENTS), where it costs
# as much as a stored element.
ROWS, ELEMENTS = 0.1, 0.4
# The same for a level between the outermost and the last one where its empty coordinates are to be skipped.
FULL_ROWS = 0.9
# Least fill of an operand for which storing it dense in all levels is tried; a 0/1 map (WHOLE_MAP) has to be fuller,
# because a compressed one skips iterations of loops.
WHOLE, WHOLE_MAP = 0.08, 0.9
# Seconds for each element of a tensor that is packed anew, and of an array that is copied in another order.
PACKED, COPIED = 60e-9, 2e-9
# Elements of the largest operand that is stored dense in all levels.
LARGEST = 2**25


@dataclass(frozen=True)
class Choices:
    """Decisions about storage that are made before the loops are known.

    Operands in `dense` are stored dense in all levels. In the others, levels between the outermost and the last one are
    dense if at least `rows` of their coordinates are stored. A workspace of more than `dense_workspace` elements is a
    hash table, not an array.
    """

    dense: frozenset[int] = frozenset()
    rows: float = ROWS
    out: Out = "auto"
    dense_workspace: int = 2**22


class Formats:
    """Formats of the tensors of one network for chosen loops. Formats of operands are computed once.

    `given` are the formats in which operands are at hand, if packing them in others is to count, and `wanted` is the
    order of levels to which the result is converted, or None if it is taken as it is.
    """

    def __init__(self, statistics: Statistics, given: Sequence[Format] = (), wanted: Indices | None = None) -> None:
        self.statistics = statistics
        self.network = statistics.network
        self.given, self.wanted = given, wanted
        self._everything = tuple(range(len(self.network.inputs)))
        self._formats: dict[tuple[int, Indices, float | None], Format] = {}

    def optional(self) -> tuple[int, ...]:
        """Return the operands for which storing them dense in all levels is tried."""
        return tuple(t for t in self._everything if self._may_be_dense(t))

    def _may_be_dense(self, operand: int) -> bool:
        labels = self.network.inputs[operand]
        least = WHOLE_MAP if self.statistics.ones[operand] else WHOLE
        size = product(self.statistics.extents, labels)
        fill = self.statistics.fill((operand,), labels)
        return size <= LARGEST and fill >= least and self.operand(operand, labels, Choices()).sparse

    def operand(self, operand: int, loops: Sequence[str], choices: Choices) -> Format:
        """Return the format of an operand, with levels in the order of the loops that read it."""
        order = tuple(index for index in loops if index in self.network.inputs[operand])
        rows = None if operand in choices.dense else choices.rows
        if (operand, order, rows) not in self._formats:
            kinds = _full(len(order)) if rows is None else self._kinds((operand,), order, rows, ELEMENTS)
            # A dense last level also stores the zeros between the elements of a map, which then needs values.
            layout = Format(order, kinds, self.statistics.ones[operand] and kinds[-1:] == ("compressed",))
            self._formats[operand, order, rows] = layout
        return self._formats[operand, order, rows]

    def result(self, loops: Sequence[str], out: Out) -> Format:
        """Return the format of the result; ``"auto"`` makes it sparse if its expected fill is less than ROWS.

        A dense result has rows along the innermost loop. A sparse result is appended: its levels are in the order of
        the loops, dense levels are the outermost ones, and the last level is compressed.
        """
        output = self.network.output
        order = tuple(index for index in loops if index in output)
        if out == "dense" or (out == "auto" and self.statistics.fill(self._everything, output) >= ROWS):
            rows = tuple(index for index in output if index not in order[-1:]) + order[-1:]
            return Format(rows, _full(len(rows)))
        kinds = self._kinds(self._everything, order, ROWS, 2.0)
        outer = kinds.index("compressed") if kinds else 0
        return Format(order, tuple(kinds[0] if level < outer else "compressed" for level in range(len(order))))

    def packing(self, operand: int, layout: Format) -> float:
        """Return the seconds in which an operand is packed in a format."""
        given = self.given[operand] if self.given else None
        if given is None or (given.order, given.kinds) == (layout.order, layout.kinds):
            return 0.0
        if not given.sparse and not layout.sparse:
            return COPIED * product(self.statistics.extents, layout.order)
        return PACKED * self.statistics.count((operand,), frozenset(layout.order))

    def reordering(self, layout: Format) -> float:
        """Return the seconds in which a result in a format is packed in the order that is wanted."""
        if self.wanted is None or not layout.sparse or layout.order == self.wanted:
            return 0.0
        return PACKED * self.statistics.count(self._everything, frozenset(layout.order))

    def moving(self, nest: Nest) -> float:
        """Return the seconds in which operands and the result of a nest are packed in other formats."""
        each = sum(self.packing(t, layout) for t, layout in enumerate(nest.formats[:-1]))
        return each + self.reordering(nest.formats[-1])

    def _kinds(self, operands: tuple[int, ...], order: Indices, rows: float, elements: float) -> tuple[Kind, ...]:
        """Return the kinds of levels in this order.

        rows, elements: least stored part for which a level between the outermost and the last one is dense, and for
        which the last one is.
        """
        kinds: list[Kind] = []
        positions = 1.0
        for depth, index in enumerate(order, start=1):
            size = positions * self.statistics.extents[index]
            stored = self.statistics.count(operands, frozenset(order[:depth]))
            least = elements if depth == len(order) else ROWS if depth == 1 else rows
            kinds.append("dense" if size and stored >= least * size else "compressed")
            positions = size if kinds[-1] == "dense" else stored
        return tuple(kinds)

    def lay_out(self, nest: Nest, choices: Choices) -> Nest:
        """Return a nest with formats and workspaces; only its assignments and the loops that they share are read."""
        formats = [self.operand(t, nest.assignments[nest.reader(t)].loops, choices) for t in self._everything]
        loops = nest.assignments[-1].loops
        formats.append(self.result(loops, choices.out))
        workspaces = tuple(_workspace(nest, a.target, choices) for a in nest.assignments[:-1])
        order = formats[-1].order
        crowded = formats[-1].sparse and self.statistics.crowded(order, in_order(order, loops))
        return replace(nest, formats=tuple(formats), workspaces=workspaces, crowded=crowded)


def _full(levels: int) -> tuple[Kind, ...]:
    return tuple("dense" for _ in range(levels))


def sharing(nest: Nest) -> Nest:
    """Return the nest with as many shared loops as its assignments allow."""
    return replace(nest, shared=tuple(shared_loops(nest, k) for k in range(len(nest.assignments) - 1)))


def shared_loops(nest: Nest, k: int) -> int:
    """Return how many outermost loops assignment k can share with the next one.

    Every intermediate that is needed after assignment k must have the indices of these loops.
    """
    n = len(nest.network.inputs)
    needed = [nest.indices[n + m] for m in range(k + 1) if nest.reader(n + m) > k]
    depth = 0
    for mine, theirs in zip(nest.assignments[k].loops, nest.assignments[k + 1].loops):
        if mine != theirs or any(mine not in labels for labels in needed):
            break
        depth += 1
    return depth


def _workspace(nest: Nest, tensor: int, choices: Choices) -> Workspace:
    """Return the workspace over the indices that are not shared, in the order of the loops that read it."""
    reader: Assignment = nest.assignments[nest.reader(tensor)]
    order = tuple(index for index in reader.loops[nest.fused(tensor) :] if index in nest.indices[tensor])
    large = product(nest.network.extents, order) > choices.dense_workspace
    space: Space = "hashed" if large else "dense"
    return Workspace(order, space)
