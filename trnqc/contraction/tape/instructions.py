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

from trnqc.contraction.tape.loops import DEEPEST, DIVIDES, NOWHERE, ArrayPlace
from trnqc.contraction.tape.steps import StepWriter, contiguous
from trnqc.contraction.tree import Tree, TreeNode, union
from trnqc.expression.operand import Leaf

if TYPE_CHECKING:
    from trnqc.contraction.computation import Computation, Part
    from trnqc.contraction.order.block_sparsity import Cut

# A tape is used for plans of at least STEPS steps of less than SMALL multiply-adds in the mean. The compiled loops need
# about a nanosecond for each multiply-add, a call of NumPy some microseconds.
STEPS, SMALL = 4, 30_000
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


def extents_of(tree: Tree) -> dict[str, int]:
    """Return the extent of each label of a tree."""
    return {label: index.extent for label, index in tree.indices.items()}


class _Writer(StepWriter):
    """Writes the instructions of one plan."""

    def __init__(self, plan: Computation) -> None:
        super().__init__()
        self.plan = plan
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
                self.places[target] = self.reserved(assignment.labels, extents_of(tree))
                held[target] = self.places[target], tree.size(assignment.labels)
            for number, part in enumerate(assignment.parts):
                cleared = tree.size(assignment.labels) if is_new and not number else 0
                self._part(part.tree, float(part.coefficient), self.places[target], cleared)
            for name in [name for name in held if last.get(name, -1) <= k]:
                self.release(*held.pop(name))

    def _shape(self, name: str) -> tuple[int, ...]:
        if self.plan.blocked:
            return self.plan.blocked.targets[name].shape
        assignment = next(a for a in self.plan.assignments if a.target == name)
        return tuple(assignment.parts[0].tree.extent(label) for label in assignment.labels)

    def _place_whole(self, name: str, buffer: int, begin: int, shape: tuple[int, ...], cuts: Mapping[str, Cut]) -> None:
        """Note where an array, or each of its blocks, lies in a buffer."""
        strides = contiguous(shape)
        if name not in cuts:
            self.places[name] = ArrayPlace(buffer, begin, strides)
            return
        for slices, block in cuts[name].blocks:
            offset = sum(cut.start * stride for cut, stride in zip(slices, strides))
            self.places[block] = ArrayPlace(buffer, begin + offset, strides)

    def reserved(self, labels: Sequence[str], extents: Mapping[str, int]) -> ArrayPlace:
        """Return a contiguous place of the workspace for an array with these labels."""
        shape = tuple(extents[label] for label in labels)
        size = prod(shape)
        if not (earlier := self.free.get(size)):
            self.size += size
            return ArrayPlace(WORKSPACE, self.size - size, contiguous(shape))
        return ArrayPlace(WORKSPACE, earlier.pop(), contiguous(shape))

    def release(self, place: ArrayPlace, size: int) -> None:
        """Note a place that arrays of this size may take."""
        self.free.setdefault(size, []).append(place.offset)

    def _part(self, tree: Tree, coefficient: float, target: ArrayPlace, cleared: int) -> None:
        """Write the steps of one tree; the last one adds to the target."""
        results: dict[str, ArrayPlace] = {}
        extents = extents_of(tree)
        for node in tree.nodes:
            operands = [self._operand(tree, operand, results) for operand in node.operands]
            if node is tree.root:
                self.step(extents, node, target, operands, coefficient, cleared)
            else:
                results[node.name] = self.reserved(node.indices, extents)
                self.step(extents, node, results[node.name], operands, 1.0, tree.size(node.indices))
            for operand, place in zip(node.operands, operands):
                if isinstance(operand, TreeNode) or operand.reciprocal:
                    self.release(place, tree.size(union(operand.indices)))

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
        to = self.reserved(labels, extents_of(tree))
        loops = [(tree.extent(label), o, s, 0) for label, o, s in zip(labels, to.strides, strides)]
        self.write((0, DIVIDES, 0), (to, place, NOWHERE), loops)
        return to
