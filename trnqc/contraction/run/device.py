"""Fused loop nests on tensors that NumPy cannot reach: the nest and tiles of `run.loop_nest`, run by PyTorch.

Every step is lowered for its slices and runs on the device of the operands. Its copies and temporaries stay within the
scratch of the schedule; a step that needs more is divided in halves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from math import prod
from types import ModuleType
from typing import Any

from trnqc.contraction.kernels import Gemm
from trnqc.contraction.lower.axis_orders import inside_order
from trnqc.contraction.lower.lowering import lower
from trnqc.contraction.lower.steps import LoweredStep
from trnqc.contraction.memory.nest_items import Allocate, Compute, Item, TiledLoop
from trnqc.contraction.memory.schedule import TreeSchedule
from trnqc.contraction.products.arrays import Array, require_no_transform
from trnqc.contraction.run.execute import apply, arranged, leaf
from trnqc.contraction.tree import Tree, TreeNode
from trnqc.expression.operand import Leaf
from trnqc.expression.spaces import Index

Ranges = dict[str, tuple[int, int]]
Labels = tuple[str, ...]
# A view, and a leaf with its labels, which may repeat, and its reciprocal.
LabelledView = tuple[Array, Leaf]


def run_on_device(
    library: ModuleType, schedule: TreeSchedule, operands: Mapping[str, Any], like: Array, gemm: Gemm | None = None
) -> Array:
    """Return the result of a schedule's tree as a PyTorch tensor of the device and type of `like`.

    Operands are tensors or functions by name of leaf, as of `run_schedule`; `gemm` is as of `Kernels`.
    """
    for name, x in operands.items():
        require_no_transform(x, name)
    run = _Run(library, schedule, operands, like, gemm)
    tree = schedule.fusion.tree
    run.items(schedule.nest.body, {label: (0, tree.extent(label)) for label in tree.indices})
    return run.held[tree.root.name]


class _Run:
    """The tensors of one run."""

    def __init__(
        self, library: ModuleType, schedule: TreeSchedule, operands: Mapping[str, Any], like: Array, gemm: Gemm | None
    ) -> None:
        self.library, self.fusion, self.operands, self.gemm = library, schedule.fusion, operands, gemm
        self.scratch = schedule.scratch
        kind = {"dtype": like.dtype, "device": like.device}
        tree = self.fusion.tree
        self.held = {tree.root.name: library.empty([tree.extent(label) for label in tree.root.indices], **kind)}
        arena = library.empty(schedule.nest.arena, **kind)
        for name, offset in schedule.nest.offsets.items():
            shape = self.fusion.shape(name)
            self.held[name] = arena[offset : offset + prod(shape)].reshape(tuple(shape))
        self.inside = schedule.nest.inside
        if self.inside:
            order = inside_order(schedule.nest)
            view = self.held[tree.root.name][(*(slice(0, tree.extent(label)) for label in order), ...)]
            self.held[self.inside] = arranged((view, order), self.fusion.arrays[self.inside].indices)

    def items(self, items: Sequence[Item], ranges: Ranges) -> None:
        """Run items in order, where each label has the current range of its elements."""
        for item in items:
            if isinstance(item, TiledLoop):
                for start in range(0, item.extent, item.tile):
                    self.items(item.body, ranges | {item.label: (start, min(start + item.tile, item.extent))})
            elif isinstance(item, Allocate) and item.zero:
                self._part(item.name, ranges).fill_(0)
            elif isinstance(item, Compute):
                self._step(item.name, item.accumulate, ranges)

    def _part(self, name: str, ranges: Ranges) -> Array:
        """Return the part of an array for these ranges; a tile of a fused index is held from its start."""
        fused = self.fusion.fused.get(name, frozenset())
        cuts = []
        for label in self.fusion.arrays[name].indices:
            start, stop = ranges[label]
            cuts.append(slice(0, stop - start) if label in fused else slice(start, stop))
        return self.held[name][(*cuts, ...)]

    def _step(self, name: str, accumulate: bool, ranges: Ranges) -> None:
        """Compute the part of an array for these ranges."""
        array = self.fusion.arrays[name]
        target = self._part(name, ranges)
        if isinstance(array.source, Leaf):
            block = leaf(self.library, array.source, self._operand(array.source, ranges))
            target.copy_(arranged(block, array.indices))
            return
        computed = iter(array.inputs)
        parts: list[LabelledView] = []
        for operand in array.source.operands:
            if isinstance(operand, Leaf) and not operand.cost:
                parts.append((self._operand(operand, ranges), operand))
            else:
                other = next(computed)
                parts.append((self._part(other, ranges), Leaf(other, self.fusion.arrays[other].indices, -1)))
        if self.inside in array.inputs:
            self._exchange(target, array.indices, parts)
        else:
            self._multiply(target, array.indices, parts, accumulate)

    def _exchange(self, target: Array, labels: Labels, parts: Sequence[LabelledView]) -> None:
        """Multiply in place as `slices.exchange` does: in blocks along the axes that result and operand share."""
        ((inner, own),) = (part for part in parts if part[1].name == self.inside)
        lengths = dict(zip(own.indices, inner.shape))
        cut = next((x for x, n in lengths.items() if x in labels and n > 1), None)
        if cut and 2 * prod(lengths.values()) > self.scratch:
            middle = lengths[cut] // 2
            for start, stop in ((0, middle), (middle, lengths[cut])):
                halves = [(_cut(array, part.indices, cut, start, stop), part) for array, part in parts]
                self._exchange(_cut(target, labels, cut, start, stop), labels, halves)
            return
        apart = [(array.clone() if part is own else array, part) for array, part in parts]
        self._multiply(target, labels, apart, False)

    def _operand(self, operand: Leaf, ranges: Ranges) -> Array:
        """Return the part of an operand for these ranges."""
        cuts = [slice(*ranges[label]) for label in operand.indices]
        value = self.operands[operand.name]
        if not callable(value):
            return value[(*cuts, ...)]
        like = next(iter(self.held.values()))
        return self.library.as_tensor(value(*cuts), dtype=like.dtype, device=like.device)

    def _multiply(self, target: Array, labels: Labels, parts: Sequence[LabelledView], accumulate: bool) -> None:
        """Write or add the product of two views, which is divided in halves until it fits into the scratch."""
        lengths = {x: n for array, part in parts for x, n in zip(part.indices, array.shape)}
        # One array may occur twice with different labels.
        leaves = tuple(replace(part, name=str(k)) for k, (_, part) in enumerate(parts))
        step, extra = _lowered(labels, leaves, tuple(lengths.items()))
        longest = max(lengths, key=lambda label: lengths[label], default="")
        if extra > self.scratch and lengths.get(longest, 1) > 1:
            middle = lengths[longest] // 2
            for start, stop in ((0, middle), (middle, lengths[longest])):
                halves = [(_cut(array, part.indices, longest, start, stop), part) for array, part in parts]
                again = accumulate or (start > 0 and longest not in labels)
                self._multiply(_cut(target, labels, longest, start, stop), labels, halves, again)
            return
        values = {part.name: leaf(self.library, part, array) for (array, _), part in zip(parts, leaves)}
        product = arranged(apply(self.library, step, [values[o.name] for o in step.operands], self.gemm), labels)
        if accumulate:
            target += product
        else:
            target.copy_(product)


def _cut(array: Array, labels: Labels, label: str, start: int, stop: int) -> Array:
    """Return the view cut along one label."""
    return array[(*(slice(start, stop) if x == label else slice(None) for x in labels), ...)]


@lru_cache(maxsize=4096)
def _lowered(labels: Labels, leaves: tuple[Leaf, ...], lengths: tuple[tuple[str, int], ...]) -> tuple[LoweredStep, int]:
    """Return the step on slices of these lengths, and the elements that it needs beside its target."""
    tree = Tree(TreeNode("slice", labels, leaves), {label: Index(label, n, label) for label, n in lengths})
    (step,) = lower(tree)
    return step, step.copies(tree) + tree.size(labels)
