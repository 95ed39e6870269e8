"""Running a fused loop nest: every step is a product of slices, all memory is one arena and one scratch buffer.

The axes of each temporary are put in the order in which the step that makes it and the step that takes it copy least.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import permutations
from math import prod
from typing import Any, Protocol

import numpy as np

from trnqc.contraction.kernels import Gemm
from trnqc.contraction.memory.fusion_graph import Array
from trnqc.contraction.memory.loop_nest import Item, Loop, Make, Nest, Step
from trnqc.contraction.memory.schedule import Schedule
from trnqc.contraction.run.slices import LEAST_SCRATCH, Layout, Slice, exchange, multiply, product_plan, row_major
from trnqc.contraction.tree import union
from trnqc.errors import InputError
from trnqc.expression.operand import Leaf

Function = Callable[..., np.ndarray]
Operands = Mapping[str, np.ndarray | Function]
Ranges = dict[str, tuple[int, int]]


class Sink(Protocol):
    """Where the tiles of a result go that is not held; the last step of the schedule copies."""

    dtype: Any
    shape: tuple[int, ...]

    def put(self, cuts: Sequence[slice], found: np.ndarray) -> None: ...


def run_schedule(
    schedule: Schedule,
    operands: Operands,
    out: Any = None,
    gemm: Gemm | None = None,
    first: int = 0,
    turned: Callable[[int], None] | None = None,
    workspace: np.ndarray | None = None,
) -> Any:
    """The result of the schedule's tree; operands by name of their leaves.

    A function takes one slice per axis and returns that block; what it needs itself is not part of the schedule's
    memory. One with a method into(target, cuts) fills the target instead. out: an array for the result, which is
    overwritten, or a Sink. gemm: as of `slices.multiply`. turned: told how many turns of the outermost loop over the
    result are done; first: that many are left out, as an earlier run has done them. workspace: `workspace_of` elements
    of the result's type to use. Errors: InputError for a wrong shape or a missing name.
    """
    fusion = schedule.fusion
    tree = fusion.tree
    arrays = _checked(schedule, operands)
    dtype = np.result_type(*arrays.values()) if arrays else np.dtype(float)
    shape = tuple(tree.extent(label) for label in tree.root.indices)
    if out is None:
        out = np.empty(shape, dtype)
    elif out.shape != shape:
        raise InputError(f"the result has the shape {shape}; out has {out.shape}")
    whole = {label: (0, tree.extent(label)) for label in tree.indices}
    if workspace is None:
        workspace = np.empty(workspace_of(schedule), out.dtype)
    run = _Run(schedule, operands, out, gemm, workspace)
    run.outer, run.first, run.turned = outer_loop(schedule.nest), first, turned
    run.items(schedule.nest.body, whole)
    return out


def workspace_of(schedule: Schedule) -> int:
    """Elements that a run of the schedule uses beside operands and result."""
    return schedule.nest.arena + max(schedule.scratch, LEAST_SCRATCH)


def _checked(schedule: Schedule, operands: Operands) -> dict[str, np.ndarray]:
    tree = schedule.fusion.tree
    arrays = {}
    for leaf in tree.leaves:
        if leaf.name not in operands:
            raise InputError(f"operand {leaf.name} is missing; found {', '.join(sorted(operands)) or 'none'}")
        operand = operands[leaf.name]
        if callable(operand) != bool(leaf.cost):
            expected = "a function, as it has a cost" if leaf.cost else "an array, as it has no cost"
            raise InputError(f"operand {leaf.name} is {expected} in this plan; found {type(operand).__name__}")
        if isinstance(operand, np.ndarray):
            expected_shape = tuple(tree.extent(label) for label in leaf.indices)
            if operand.shape != expected_shape:
                raise InputError(f"operand {leaf.name} has the shape {expected_shape}; found {operand.shape}")
            arrays[leaf.name] = operand
    return arrays


def outer_loop(nest: Nest) -> Loop | None:
    """The outermost loop with several turns of which each makes its own part of the result from nothing but operands
    and what is made before the loop; None if there is none."""
    root = nest.fusion.tree.root
    items: Sequence[Item] = nest.body
    while True:
        around = [i for i in items if isinstance(i, Loop) and any(s.name == root.name for s in _all(i.body, Step))]
        if not around:
            return None
        (loop,) = around
        own = {root.name, *(make.name for make in _all(loop.body, Make))}
        free = loop.label in root.indices and all(step.name in own for step in _all(loop.body, Step))
        if loop.tile < loop.extent:
            return loop if free else None
        items = loop.body


def _all(items: Sequence[Item], kind: type[Any]) -> Iterator[Any]:
    for item in items:
        if isinstance(item, kind):
            yield item
        if isinstance(item, Loop):
            yield from _all(item.body, kind)


class _Run:
    outer: Loop | None = None
    first = 0
    turned: Callable[[int], None] | None = None

    def __init__(
        self, schedule: Schedule, operands: Operands, out: Any, gemm: Gemm | None, workspace: np.ndarray
    ) -> None:
        self.gemm = gemm
        self.out = out
        self.fusion, self.inside = schedule.fusion, schedule.nest.inside
        self.operands = operands
        arena, self.scratch = np.split(workspace[: workspace_of(schedule)], [schedule.nest.arena])
        self.held = {}
        if isinstance(out, np.ndarray):
            self.held[self.fusion.tree.root.name] = Slice(out, self.fusion.tree.root.indices)
        orders = axis_orders(schedule.nest)
        for name, place in schedule.nest.places.items():
            order = orders[name]
            lengths = dict(zip(self.fusion.arrays[name].indices, self.fusion.shape(name)))
            array = arena[place : place + prod(lengths.values())].reshape([lengths[label] for label in order])
            self.held[name] = Slice(array, order)
        if schedule.nest.inside:
            self.held[schedule.nest.inside] = _inside(schedule.nest, out)

    def items(self, items: Sequence[Item], ranges: Ranges) -> None:
        for item in items:
            if isinstance(item, Loop):
                for turn, start in enumerate(range(0, item.extent, item.tile)):
                    if item is self.outer and turn < self.first:
                        continue
                    self.items(item.body, ranges | {item.label: (start, min(start + item.tile, item.extent))})
                    if item is self.outer and self.turned:
                        self.turned(turn + 1)
            elif isinstance(item, Make) and item.zero:
                self._part(item.name, ranges).array.fill(0)
            elif isinstance(item, Step):
                self._step(self.fusion.arrays[item.name], item.accumulate, ranges)

    def _part(self, name: str, ranges: Ranges) -> Slice:
        """The part of an array that belongs to the ranges; a tile of a fused index is held from its start."""
        held = self.held[name]
        fused = self.fusion.fused.get(name, frozenset())
        cuts: list[Any] = []
        for label in held.labels:
            start, stop = ranges[label]
            cuts.append(slice(0, stop - start) if label in fused else slice(start, stop))
        return Slice(held.array[(*cuts, Ellipsis)], held.labels)

    def _step(self, array: Array, accumulate: bool, ranges: Ranges) -> None:
        if array.name not in self.held:
            found = self._part(array.inputs[0], ranges)
            self.out.put([slice(*ranges[label]) for label in array.indices], _ordered(found, array.indices))
            return
        result = self._part(array.name, ranges)
        if isinstance(array.source, Leaf):
            function: Any = self.operands[array.source.name]
            if hasattr(function, "into"):
                labels = array.source.indices
                function.into(_ordered(result, labels), [slice(*ranges[label]) for label in labels])
                return
            value = self._leaf(array.source, ranges)
            np.copyto(_ordered(result, value.labels), 1 / value.array if value.reciprocal else value.array)
            return
        if self.inside in array.inputs:
            (other,) = (o for o in array.source.operands if isinstance(o, Leaf))
            exchange(result, self._part(array.inputs[0], ranges), self._leaf(other, ranges), self.scratch, self.gemm)
            return
        made = iter(array.inputs)
        operands = [
            self._leaf(o, ranges) if isinstance(o, Leaf) and not o.cost else self._part(next(made), ranges)
            for o in array.source.operands
        ]
        multiply(result, operands, accumulate, self.scratch, self.gemm)

    def _leaf(self, leaf: Leaf, ranges: Ranges) -> Slice:
        cuts: list[Any] = [slice(*ranges[label]) for label in leaf.indices]
        operand = self.operands[leaf.name]
        block = operand[(*cuts, Ellipsis)] if isinstance(operand, np.ndarray) else np.asarray(operand(*cuts))
        return Slice(*_diagonal(block, leaf.indices), leaf.reciprocal)


def _diagonal(array: np.ndarray, labels: Sequence[str]) -> tuple[np.ndarray, tuple[str, ...]]:
    """A view with every label once."""
    kept = union(labels)
    if len(kept) == len(labels):
        return array, tuple(labels)
    numbers = [kept.index(label) for label in labels]
    return np.einsum(array, numbers, list(range(len(kept)))), kept


def _ordered(held: Slice, labels: Sequence[str]) -> np.ndarray:
    return held.array.transpose([held.labels.index(label) for label in labels])


def _inside(nest: Nest, out: np.ndarray) -> Slice:
    """The part of the result's memory in which the operand of its last step lies."""
    labels = inside_order(nest)
    cuts: list[Any] = [slice(0, nest.fusion.tree.extent(label)) for label in labels]
    return Slice(out[(*cuts, ...)], labels)


def inside_order(nest: Nest) -> tuple[str, ...]:
    """The labels of the operand that lies in the result's memory, axis by axis of the result."""
    assert nest.inside is not None
    root, mine = nest.fusion.tree.root.indices, nest.fusion.arrays[nest.inside].indices
    (gone,) = set(mine) - set(root)
    return tuple(label if label in mine else gone for label in root)


def axis_orders(nest: Nest) -> dict[str, tuple[str, ...]]:
    """For each temporary the order of its axes, slowest first, with the least estimated time of the steps it is in."""
    fusion = nest.fusion
    around = {step.name: labels for step, labels in nest.steps}
    accumulate = {step.name: step.accumulate for step, _ in nest.steps}
    orders = {name: fusion.arrays[name].indices for name in fusion.arrays}
    consumer = {child: name for name, array in fusion.arrays.items() for child in array.inputs}

    def cost(name: str) -> float:
        array = fusion.arrays[name]
        if isinstance(array.source, Leaf):
            return 0.0
        extents = tuple((i, fusion.tile(i) if i in around[name] else fusion.tree.extent(i)) for i in array.loops)
        return product_plan(
            extents, layout(name), tuple(_operand_layouts(fusion.arrays[name], fusion.tree.extent, layout)),
            accumulate[name],
        ).cost  # fmt: skip

    def layout(name: str) -> Layout:
        return row_major(orders[name], dict(zip(fusion.arrays[name].indices, fusion.shape(name))))

    if nest.inside:
        orders[nest.inside] = inside_order(nest)
    for name in nest.temporaries:
        best = None
        for order in _orders_worth_trying(fusion.arrays[name], fusion.arrays[consumer[name]]):
            orders[name] = order
            value = cost(name) + cost(consumer[name])
            if best is None or value < best[0]:
                best = (value, order)
        assert best is not None
        orders[name] = best[1]
    del orders[fusion.tree.root.name]
    return orders


def _operand_layouts(array: Array, extent: Callable[[str], int], layout: Callable[[str], Layout]) -> Iterator[Layout]:
    made = iter(array.inputs)
    assert not isinstance(array.source, Leaf)
    for operand in array.source.operands:
        if isinstance(operand, Leaf) and not operand.cost:
            labels = union(operand.indices)
            yield Layout(row_major(labels, {i: extent(i) for i in labels}).strides, operand.reciprocal)
        else:
            yield layout(next(made))


def _orders_worth_trying(array: Array, consumer: Array) -> Iterator[tuple[str, ...]]:
    """All orders of a few axes; of many, those that keep together what becomes one axis of a matrix."""
    yield array.indices
    if len(array.indices) <= 4:
        yield from permutations(array.indices)
        return
    for step in (array, consumer):
        if isinstance(step.source, Leaf):
            continue
        sides = [set(operand.indices) for operand in step.source.operands] + [set(step.indices)]
        groups: dict[tuple[bool, ...], list[str]] = {}
        for label in array.indices:
            groups.setdefault(tuple(label in side for side in sides), []).append(label)
        for order in permutations(groups.values()):
            yield tuple(label for group in order for label in group)


def scratch_wanted(nest: Nest) -> int:
    """Elements of scratch with which no product has to be cut."""
    fusion = nest.fusion
    orders: dict[str, Any] = {**axis_orders(nest), fusion.tree.root.name: fusion.tree.root.indices}

    def layout(name: str) -> Layout:
        return row_major(orders[name], dict(zip(fusion.arrays[name].indices, fusion.shape(name))))

    wanted = 0
    for step, around in nest.steps:
        array = fusion.arrays[step.name]
        if not isinstance(array.source, Leaf):
            extents = tuple((i, fusion.tile(i) if i in around else fusion.tree.extent(i)) for i in array.loops)
            operands = tuple(_operand_layouts(array, fusion.tree.extent, layout))
            wanted = max(wanted, product_plan(extents, layout(step.name), operands, step.accumulate).scratch)
    return wanted
