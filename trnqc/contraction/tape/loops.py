"""The loops of one step over strided arrays, and their order."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from trnqc.contraction.tree import TreeNode

# backends/cpu/tape.c: what an instruction does, and the most loops that it has.
LOOPS, MATRICES, DIVIDES, CLEARS, REPEATS = range(5)
DEEPEST = 32
# Extent, and strides of the result and of both operands.
Loop = tuple[int, int, int, int]
ONCE: Loop = (1, 0, 0, 0)


@dataclass(frozen=True)
class ArrayPlace:
    """Where an array lies: the number of a buffer, the offset of its first element, and a stride for each axis.

    `shifts` are (number of a loop around the step, elements by which each element of that loop moves the offset).
    """

    buffer: int
    offset: int
    strides: tuple[int, ...]
    shifts: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class TapeOperand:
    """An operand of a step: its labels, each once, its position, and its stride along each label."""

    labels: tuple[str, ...]
    place: ArrayPlace


NOWHERE = ArrayPlace(-1, 0, ())


def loops_of(extents: Mapping[str, int], node: TreeNode, to: ArrayPlace, sides: Sequence[TapeOperand]) -> list[Loop]:
    """Return the loops of a step, over the labels of its result first."""
    strides = [dict(zip(node.indices, to.strides)), *(dict(zip(side.labels, side.place.strides)) for side in sides)]
    strides += [{}] * (3 - len(strides))
    return [(extents[label], *(of.get(label, 0) for of in strides)) for label in node.loops]  # type: ignore[misc]


def fastest(loops: Sequence[Loop]) -> int | None:
    """Return the number of the loop that runs fastest as the innermost one; None if there is none."""
    return max(range(len(loops)), key=lambda k: _speed(loops[k]), default=None)


def ordered(loops: Sequence[Loop], inner: int | None) -> tuple[int, list[Loop]]:
    """Return what an instruction does and its loops, with `inner` innermost and sums within those over the result.

    Loops that run on where the next one ends become one, and three loops that are a product of matrices are the
    innermost ones.
    """
    last = ONCE if inner is None else loops[inner]
    others = [loop for k, loop in enumerate(loops) if k != inner and loop[0] > 1]
    outer = _merged([loop for loop in others if loop[1]])
    sums = _merged([loop for loop in others if not loop[1]])
    if last[1:] != (1, 0, 1):
        return LOOPS, _merged([*outer, *sums, last])
    rows = max((loop for loop in outer if not loop[3]), default=ONCE)
    summed = sums.pop() if sums else ONCE
    return MATRICES, [*(loop for loop in outer if loop is not rows), *sums, rows, summed, last]


def _merged(loops: Sequence[Loop]) -> list[Loop]:
    merged: list[Loop] = []
    for loop in loops:
        if merged and merged[-1][1:] == tuple(loop[0] * stride for stride in loop[1:]):
            merged[-1] = (merged[-1][0] * loop[0], *loop[1:])
        else:
            merged.append(loop)
    return merged


def _speed(loop: Loop) -> int:
    """Return how well a loop runs as the innermost one: vectors of the result, then sums, then strided elements."""
    extent, result, left, right = loop
    if result == 1 and max(left, right) <= 1:
        return 3 * min(extent, 8)
    return (2 if result == 0 and max(left, right) == 1 else 1) * min(extent, 8)
