"""Steps as instructions, for whole plans and for loops over slices."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from math import prod

from trnqc.contraction.tape.loops import NOWHERE, ArrayPlace, Loop, TapeOperand, fastest, loops_of, ordered
from trnqc.contraction.tree import TreeNode, union
from trnqc.expression.operand import Leaf

# An operand is copied in another order of its axes if the step has this many multiply-adds for each element of it.
WORTH = 4


def contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    """Return the strides of an array without gaps, in elements."""
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


class StepWriter(ABC):
    """Writes instructions (backends/cpu/tape.c) one after the other; subclasses decide where copies lie."""

    def __init__(self) -> None:
        self.code: list[int] = []
        self.coefficients: dict[float, int] = {1.0: 0}

    @abstractmethod
    def reserved(self, labels: Sequence[str], extents: Mapping[str, int]) -> ArrayPlace | None:
        """Return a contiguous place for an array with these labels; None if there is no room."""

    @abstractmethod
    def release(self, place: ArrayPlace, size: int) -> None:
        """Take back a place of so many elements that `reserved` returned."""

    def step(
        self,
        extents: Mapping[str, int],
        node: TreeNode,
        to: ArrayPlace,
        operands: Sequence[ArrayPlace],
        coefficient: float,
        cleared: int,
    ) -> None:
        """Write a step, which adds coefficient * product to the result, after it has set `cleared` elements to zero.

        The strides of a place are those along each label of the result or operand, in order and each once.
        """
        number = self.coefficients.setdefault(coefficient, len(self.coefficients))
        sides = [TapeOperand(union(o.indices), place) for o, place in zip(node.operands, operands)]
        turned = self._turned(extents, node, to, sides)
        loops = loops_of(extents, node, to, turned)
        inner = fastest(loops)
        left, right = (side.place for side in (*turned, TapeOperand((), NOWHERE))[:2])
        if inner is not None and loops[inner][1:] == (1, 1, 0) and right.buffer >= 0:
            # Neighbouring elements are those of the right operand.
            left, right = right, left
            loops = [(n, o, b, a) for n, o, a, b in loops]
        kind, nest = ordered(loops, inner)
        self.write((number, kind, cleared), (to, left, right), nest)
        for before, after in zip(sides, turned):
            if after is not before:
                self.release(after.place, prod(extents[label] for label in after.labels))

    def _turned(
        self, extents: Mapping[str, int], node: TreeNode, to: ArrayPlace, sides: list[TapeOperand]
    ) -> list[TapeOperand]:
        """Return the operands, with one copied if its new axes make the step a product of matrices."""
        loops = loops_of(extents, node, to, sides)
        inner = fastest(loops)
        if len(sides) < 2 or inner is None or loops[inner][1:] in ((1, 1, 0), (1, 0, 1)):
            return sides
        work = prod(extents[label] for label in node.loops)
        for k, (side, other) in enumerate(zip(sides, sides[::-1])):
            for label, stride in zip(node.indices, to.strides):
                worth = work >= WORTH * prod(extents[x] for x in side.labels) and extents[label] > 2
                if stride == 1 and label in side.labels and label not in other.labels and worth:
                    copy = self._copied(extents, side, label)
                    return [*sides[:k], copy, *sides[k + 1 :]] if copy else sides
        return sides

    def _copied(self, extents: Mapping[str, int], side: TapeOperand, last: str) -> TapeOperand | None:
        """Return a copy of an operand in which the elements along one label are neighbours; None without room."""
        labels = (*(label for label in side.labels if label != last), last)
        place = self.reserved(labels, extents)
        if place is None:
            return None
        node = TreeNode("copy", labels, (Leaf("whole", side.labels, 0),))
        loops = loops_of(extents, node, place, [side])
        kind, nest = ordered(loops, fastest(loops))
        self.write((0, kind, prod(extents[label] for label in labels)), (place, side.place, NOWHERE), nest)
        return TapeOperand(labels, place)

    def write(self, header: Sequence[int], places: Sequence[ArrayPlace], loops: Sequence[Loop]) -> None:
        """Write one instruction: (coefficient, what it does, cleared elements), result and operands, loops."""
        rows: dict[int, list[int]] = {}
        for k, place in enumerate(places):
            for number, stride in place.shifts:
                rows.setdefault(number, [number, 0, 0, 0])[k + 1] += stride
        self.code += [*(place.buffer for place in places), *header, len(loops), *(p.offset for p in places), len(rows)]
        self.code += [number for row in (*rows.values(), *loops) for number in row]
