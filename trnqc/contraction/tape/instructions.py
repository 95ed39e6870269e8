"""From a plan to a tape: every step as loops over strided arrays.

    plan ─► places of operands, outputs and temporaries in buffers ─► an instruction for each step

Blocks of block-sparse operands and outputs are addressed in the whole arrays, so that nothing is cut or joined.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from math import prod
from typing import TYPE_CHECKING

import numpy as np

from trnqc.contraction.tape.loops import DEEPEST, DIVIDES, ArrayPlace, Loop, TapeOperand, fastest, loops_of, ordered
from trnqc.contraction.tree import Tree, TreeNode, union
from trnqc.expression.operand import Leaf

if TYPE_CHECKING:
    from trnqc.contraction.computation import Computation, Part
    from trnqc.contraction.order.block_sparsity import Cut

# A tape is used for plans of at least STEPS steps of less than SMALL multiply-adds in the mean. The compiled loops need
# about a nanosecond for each multiply-add, a call of NumPy some microseconds.
STEPS, SMALL = 4, 30_000
# An operand is copied in another order of its axes if the step has this many multiply-adds for each element of it.
WORTH = 4
# Elements of the largest operand that is copied into the workspace.
COPIED = 2048
# Numbers of the first two buffers.
WORKSPACE, RESULTS = range(2)


@dataclass(frozen=True, eq=False)
class Tape:
    """The instructions of a plan; for the int64 `code` see backends/cpu/tape.c.

    Buffer 0 (`workspace` elements) holds small operands, one after the other, and temporaries. Buffer 1 (`results`
    elements) holds the outputs, one after the other, which are zero at the beginning. The others are large operands:
    copying a small operand takes less time than asking NumPy for its address. `coefficients` are float64, by their
    numbers in the code.
    """

    code: np.ndarray
    coefficients: np.ndarray
    small: tuple[str, ...]
    large: tuple[str, ...]
    outputs: tuple[tuple[str, tuple[int, ...], slice], ...]
    workspace: int
    results: int


def tape_of(plan: Computation) -> Tape | None:
    """Return the tape of a plan of many small steps; None if its steps are few or large, or run in another way."""
    steps = sum(len(tree.nodes) for tree in plan.trees)
    work = sum(tree.multiply_adds for tree in plan.trees)
    if steps < STEPS or work >= SMALL * steps or not all(map(_is_plain, plan.parts)) or not _isordered(plan):
        return None
    return _Writer(plan).tape()


def _is_plain(part: Part) -> bool:
    """Return whether a part runs step by step over arrays, with loops over elements that exist."""
    tree = part.tree
    if part.in_loops or any(leaf.cost for leaf in tree.leaves):
        return False
    return all(tree.extent(x) for x in tree.indices) and all(len(node.loops) < DEEPEST - 3 for node in tree.nodes)


def _isordered(plan: Computation) -> bool:
    """Return whether no target is an input, a function, read while it is written, or written anew after a read."""
    inputs = {leaf.name for tree in plan.trees for leaf in tree.leaves if leaf.operand >= 0}
    seen: set[str] = set()
    for assignment in plan.assignments:
        name = assignment.target
        read = {leaf.name for part in assignment.parts for leaf in part.tree.leaves}
        if assignment.function or name in inputs or name in read or (name in seen) != assignment.accumulate:
            return False
        seen.add(name)
    return True


def _contiguous(shape: Sequence[int]) -> tuple[int, ...]:
    return tuple(prod(shape[axis + 1 :]) for axis in range(len(shape)))


class _Writer:
    """Writes the instructions of one plan."""

    def __init__(self, plan: Computation) -> None:
        self.plan, self.code = plan, list[int]()
        self.coefficients: dict[float, int] = {1.0: 0}
        self.places: dict[str, ArrayPlace] = {}
        # Elements of the workspace so far.
        self.size = 0
        # Number of elements -> offsets of arrays of the workspace that are not needed any more.
        self.free: dict[int, list[int]] = {}

    def tape(self) -> Tape:
        plan = self.plan
        names = [name for name, _ in plan.inputs]
        small = tuple(name for name in names if prod(plan.shapes[name]) <= COPIED)
        large = tuple(name for name in names if name not in small)
        cuts = plan.blocked.inputs if plan.blocked else {}
        for name in small:
            self._place_whole(name, WORKSPACE, self.size, plan.shapes[name], cuts)
            self.size += prod(plan.shapes[name])
        for number, name in enumerate(large, RESULTS + 1):
            self._place_whole(name, number, 0, plan.shapes[name], cuts)
        outputs, end = [], 0
        for name in plan.outputs:
            shape = self._shape(name)
            self._place_whole(name, RESULTS, end, shape, plan.blocked.targets if plan.blocked else {})
            outputs.append((name, shape, slice(end, end + prod(shape))))
            end += prod(shape)
        self._assignments()
        code, numbers = np.array(self.code, np.int64), np.array(list(self.coefficients))
        return Tape(code, numbers, small, large, tuple(outputs), self.size, end)

    def _assignments(self) -> None:
        last = self.plan.last_reads()
        held: dict[str, tuple[ArrayPlace, int]] = {}
        for k, assignment in enumerate(self.plan.assignments):
            target, tree = assignment.target, assignment.parts[0].tree
            is_new = target not in self.places
            if is_new:
                self.places[target] = self._reserved(tree, assignment.labels)
                held[target] = self.places[target], tree.size(assignment.labels)
            for number, part in enumerate(assignment.parts):
                cleared = tree.size(assignment.labels) if is_new and not number else 0
                self._part(part.tree, float(part.coefficient), self.places[target], cleared)
            for name in [name for name in held if last.get(name, -1) <= k]:
                self._release(*held.pop(name))

    def _shape(self, name: str) -> tuple[int, ...]:
        if self.plan.blocked:
            return self.plan.blocked.targets[name].shape
        assignment = next(a for a in self.plan.assignments if a.target == name)
        return tuple(assignment.parts[0].tree.extent(label) for label in assignment.labels)

    def _place_whole(self, name: str, buffer: int, begin: int, shape: tuple[int, ...], cuts: Mapping[str, Cut]) -> None:
        """Note where an array, or each of its blocks, lies in a buffer."""
        strides = _contiguous(shape)
        if name not in cuts:
            self.places[name] = ArrayPlace(buffer, begin, strides)
            return
        for slices, block in cuts[name].blocks:
            offset = sum(cut.start * stride for cut, stride in zip(slices, strides))
            self.places[block] = ArrayPlace(buffer, begin + offset, strides)

    def _reserved(self, tree: Tree, labels: Sequence[str]) -> ArrayPlace:
        """Return a contiguous place of the workspace for an array with these labels."""
        shape = tuple(tree.extent(label) for label in labels)
        size = prod(shape)
        if not (earlier := self.free.get(size)):
            self.size += size
            return ArrayPlace(WORKSPACE, self.size - size, _contiguous(shape))
        return ArrayPlace(WORKSPACE, earlier.pop(), _contiguous(shape))

    def _release(self, place: ArrayPlace, size: int) -> None:
        self.free.setdefault(size, []).append(place.offset)

    def _part(self, tree: Tree, coefficient: float, target: ArrayPlace, cleared: int) -> None:
        """Write the steps of one tree; the last one adds to the target."""
        results: dict[str, ArrayPlace] = {}
        for node in tree.nodes:
            operands = [self._operand(tree, operand, results) for operand in node.operands]
            if node is tree.root:
                self._step(tree, node, target, operands, coefficient, cleared)
            else:
                results[node.name] = self._reserved(tree, node.indices)
                self._step(tree, node, results[node.name], operands, 1.0, tree.size(node.indices))
            for operand, place in zip(node.operands, operands):
                if isinstance(operand, TreeNode) or operand.reciprocal:
                    self._release(place, tree.size(union(operand.indices)))

    def _operand(self, tree: Tree, operand: Leaf | TreeNode, results: Mapping[str, ArrayPlace]) -> ArrayPlace:
        """Return where an operand lies, with one stride for each of its labels; reciprocals are computed first."""
        if isinstance(operand, TreeNode):
            return results[operand.name]
        place = self.places[operand.name]
        labels = union(operand.indices)
        # A step along a diagonal is a step along each of its axes.
        strides = tuple(sum(s for x, s in zip(operand.indices, place.strides) if x == label) for label in labels)
        place = replace(place, strides=strides)
        if not operand.reciprocal:
            return place
        to = self._reserved(tree, labels)
        loops = [(tree.extent(label), o, s, 0) for label, o, s in zip(labels, to.strides, strides)]
        self._write((to.buffer, place.buffer, -1, 0, DIVIDES, 0), (to.offset, place.offset, 0), loops)
        return to

    def _step(
        self,
        tree: Tree,
        node: TreeNode,
        to: ArrayPlace,
        operands: Sequence[ArrayPlace],
        coefficient: float,
        cleared: int,
    ) -> None:
        number = self.coefficients.setdefault(coefficient, len(self.coefficients))
        sides = [TapeOperand(union(o.indices), place) for o, place in zip(node.operands, operands)]
        turned = self._turned(tree, node, to, sides)
        loops = loops_of(tree, node, to, turned)
        inner = fastest(loops)
        left, right = (side.place for side in (*turned, TapeOperand((), ArrayPlace(-1, 0, ())))[:2])
        if inner is not None and loops[inner][1:] == (1, 1, 0) and right.buffer >= 0:
            # Neighbouring elements are those of the right operand.
            left, right = right, left
            loops = [(n, o, b, a) for n, o, a, b in loops]
        kind, nest = ordered(loops, inner)
        header = (to.buffer, left.buffer, right.buffer, number, kind, cleared)
        self._write(header, (to.offset, left.offset, right.offset), nest)
        for before, after in zip(sides, turned):
            if after is not before:
                self._release(after.place, tree.size(after.labels))

    def _turned(self, tree: Tree, node: TreeNode, to: ArrayPlace, sides: list[TapeOperand]) -> list[TapeOperand]:
        """Return the operands, with one copied if its new axes make the step a product of matrices."""
        loops = loops_of(tree, node, to, sides)
        inner = fastest(loops)
        if len(sides) < 2 or inner is None or loops[inner][1:] in ((1, 1, 0), (1, 0, 1)):
            return sides
        for k, (side, other) in enumerate(zip(sides, sides[::-1])):
            for label, stride in zip(node.indices, to.strides):
                worth = tree.size(node.loops) >= WORTH * tree.size(side.labels) and tree.extent(label) > 2
                if stride == 1 and label in side.labels and label not in other.labels and worth:
                    return [*sides[:k], self._copied(tree, side, label), *sides[k + 1 :]]
        return sides

    def _copied(self, tree: Tree, side: TapeOperand, last: str) -> TapeOperand:
        """Return a copy of an operand in which the elements along one label are neighbours."""
        labels = (*(label for label in side.labels if label != last), last)
        copy = TapeOperand(labels, self._reserved(tree, labels))
        node = TreeNode("copy", labels, (Leaf("whole", side.labels, 0),))
        loops = loops_of(tree, node, copy.place, [side])
        kind, nest = ordered(loops, fastest(loops))
        header = (copy.place.buffer, side.place.buffer, -1, 0, kind, tree.size(labels))
        self._write(header, (copy.place.offset, side.place.offset, 0), nest)
        return copy

    def _write(self, header: Sequence[int], offsets: Sequence[int], loops: Sequence[Loop]) -> None:
        self.code += [*header, len(loops), *offsets, *(number for loop in loops for number in loop)]
