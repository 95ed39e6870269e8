"""Formats of all tensors for given loops: levels in the order of the loops, each dense if enough of it is stored.

loops -> shared loops, formats of operands and result, workspaces -> nest
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from trnqc.sparse.network.nest import Assignment, Format, Kind, Nest, Space, Workspace
from trnqc.sparse.network.network import Indices
from trnqc.sparse.search.statistics import Statistics, product

Out = Literal["auto", "sparse", "dense"]

# A level is dense if at least this part of its coordinates under the level above is stored: ELEMENTS for a last level,
# whose empty elements cost as much as others, ROWS for a level with others below, where an empty one is a pointer.
ROWS, ELEMENTS = 0.1, 0.4
# An operand may also be stored dense in all levels if at least this part of its elements is stored, fill >= WHOLE; a
# 0/1 map, which prunes loops, only if fill >= WHOLE_MAP.
WHOLE, WHOLE_MAP = 0.08, 0.9
# Elements of the largest operand that is stored dense in all levels.
LARGEST = 2**25


@dataclass(frozen=True)
class Choices:
    """What is decided about storage before the loops are known.

    Parameters
    ----------
    dense
        Operands that are stored dense in all levels.
    out
        Storage of the result.
    dense_workspace
        Elements of the largest workspace that is an array; a larger one is a hash table.
    """

    dense: frozenset[int] = frozenset()
    out: Out = "auto"
    dense_workspace: int = 2**22


class Formats:
    """Formats of the tensors of one network for given loops. Those of operands are kept."""

    def __init__(self, statistics: Statistics) -> None:
        self.statistics = statistics
        self.network = statistics.network
        self._everything = tuple(range(len(self.network.inputs)))
        self._formats: dict[tuple[int, Indices, bool], Format] = {}

    def optional(self) -> tuple[int, ...]:
        """Operands for which it is worth an estimate to store them dense in all levels."""
        return tuple(t for t in self._everything if self._may_be_dense(t))

    def _may_be_dense(self, operand: int) -> bool:
        labels = self.network.inputs[operand]
        least = WHOLE_MAP if self.statistics.ones[operand] else WHOLE
        size = product(self.statistics.extents, labels)
        fill = self.statistics.fill((operand,), labels)
        return size <= LARGEST and fill >= least and self.operand(operand, labels, False).sparse

    def operand(self, operand: int, loops: Sequence[str], dense: bool) -> Format:
        """Levels in the order of the loops of the assignment that reads it."""
        order = tuple(index for index in loops if index in self.network.inputs[operand])
        if (operand, order, dense) not in self._formats:
            kinds = _full(len(order)) if dense else self._kinds((operand,), order, ELEMENTS)
            layout = Format(order, kinds, self.statistics.ones[operand] and "compressed" in kinds)
            self._formats[operand, order, dense] = layout
        return self._formats[operand, order, dense]

    def result(self, loops: Sequence[str], out: Out) -> Format:
        """The format of the result; ``"auto"`` makes it sparse if less than ROWS of its elements are expected.

        A dense one has rows along the innermost loop. A sparse one is appended: its levels are in the order of the
        loops, the dense ones outermost, and the last is compressed.
        """
        output = self.network.output
        order = tuple(index for index in loops if index in output)
        if out == "dense" or (out == "auto" and self.statistics.fill(self._everything, output) >= ROWS):
            rows = tuple(index for index in output if index not in order[-1:]) + order[-1:]
            return Format(rows, _full(len(rows)))
        kinds = self._kinds(self._everything, order, 2.0)
        outer = kinds.index("compressed") if kinds else 0
        return Format(order, tuple(kinds[0] if level < outer else "compressed" for level in range(len(order))))

    def _kinds(self, operands: tuple[int, ...], order: Indices, elements: float) -> tuple[Kind, ...]:
        """Kinds of levels in this order. elements: the least part of a dense last level that is stored."""
        kinds: list[Kind] = []
        positions = 1.0
        for depth, index in enumerate(order, start=1):
            room = positions * self.statistics.extents[index]
            stored = self.statistics.count(operands, frozenset(order[:depth]))
            least = ROWS if depth < len(order) else elements
            kinds.append("dense" if room and stored >= least * room else "compressed")
            positions = room if kinds[-1] == "dense" else stored
        return tuple(kinds)

    def lay_out(self, nest: Nest, choices: Choices) -> Nest:
        """The nest with formats and workspaces; it comes with assignments and the loops that they share."""
        formats = [
            self.operand(t, nest.assignments[nest.reader(t)].loops, t in choices.dense) for t in self._everything
        ]
        formats.append(self.result(nest.assignments[-1].loops, choices.out))
        workspaces = tuple(_workspace(nest, a.target, choices) for a in nest.assignments[:-1])
        return replace(nest, formats=tuple(formats), workspaces=workspaces)


def _full(levels: int) -> tuple[Kind, ...]:
    return tuple("dense" for _ in range(levels))


def sharing(nest: Nest) -> Nest:
    """The nest with as many shared loops as its assignments allow."""
    return replace(nest, shared=tuple(shared_loops(nest, k) for k in range(len(nest.assignments) - 1)))


def shared_loops(nest: Nest, k: int) -> int:
    """How many outermost loops assignment k can share with the next one.

    Every intermediate that is needed after assignment k must have the indices of these loops.
    """
    n = len(nest.network.inputs)
    held = [nest.indices[n + m] for m in range(k + 1) if nest.reader(n + m) > k]
    depth = 0
    for mine, theirs in zip(nest.assignments[k].loops, nest.assignments[k + 1].loops):
        if mine != theirs or any(mine not in labels for labels in held):
            break
        depth += 1
    return depth


def _workspace(nest: Nest, tensor: int, choices: Choices) -> Workspace:
    """The workspace over the indices that are not shared, in the order in which its reader runs over them."""
    reader: Assignment = nest.assignments[nest.reader(tensor)]
    order = tuple(index for index in reader.loops[nest.fused(tensor) :] if index in nest.indices[tensor])
    large = product(nest.network.extents, order) > choices.dense_workspace
    space: Space = "hashed" if large else "dense"
    return Workspace(order, space)
