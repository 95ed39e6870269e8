"""Running a fused loop nest: every step is a product of slices, in one arena and one scratch buffer.

The axes of each temporary have the order in which the step that computes it and the step that reads it copy least.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import prod
from typing import Any, Protocol

import numpy as np

from trnqc.contraction.kernels import Gemm
from trnqc.contraction.lower.axis_orders import axis_orders, inside_order
from trnqc.contraction.memory.fusion_graph import ComputedArray
from trnqc.contraction.memory.loop_nest import FusedNest
from trnqc.contraction.memory.nest_items import Allocate, Compute, Item, TiledLoop
from trnqc.contraction.memory.schedule import TreeSchedule
from trnqc.contraction.products.slices import LEAST_SCRATCH, Slice, exchange, multiply
from trnqc.contraction.tape.machine import NestMachine, nest_machine
from trnqc.contraction.tape.nests import NestTape, NestTapes
from trnqc.contraction.tree import union
from trnqc.errors import InputError
from trnqc.expression.operand import Leaf

# A function that takes one slice for each axis and returns that block.
Function = Callable[..., np.ndarray]
Operands = Mapping[str, np.ndarray | Function]
# Name of a temporary -> its labels, slowest axis first.
AxisOrders = Mapping[str, tuple[str, ...]]
# Label -> first and past-the-last element of the current tile.
Ranges = dict[str, tuple[int, int]]


class TileSink(Protocol):
    """A result that is written tile by tile and never held; the last step of the schedule copies into it."""

    dtype: Any
    shape: tuple[int, ...]

    def put(self, cuts: Sequence[slice], tile: np.ndarray) -> None:
        """Write one tile."""


def run_schedule(
    schedule: TreeSchedule,
    operands: Operands,
    out: Any = None,
    gemm: Gemm | None = None,
    first: int = 0,
    turned: Callable[[int], None] | None = None,
    workspace: np.ndarray | None = None,
    orders: AxisOrders | None = None,
    tapes: NestTapes | None = None,
) -> Any:
    """Return the result of a schedule's tree, written to `out` if given.

    An operand that is a function takes one slice per axis and returns that block, or with a method ``into(target,
    cuts)`` fills the target; memory of the functions is not part of the schedule's. An earlier run has done `first`
    turns of the outermost loop; `turned` is called with the number of turns that are done. `workspace` has
    `workspace_of` elements of the result's type. `orders` are the `axis_orders` of the nest, if they are known. Small
    steps run as `tapes` where these can. Raises InputError if an operand is missing or has the wrong shape.
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
    run = _Run(schedule, operands, out, gemm, workspace, orders)
    run.outer, run.first, run.turned = outer_loop(schedule.nest), first, turned
    if tapes and gemm is None and not (first or turned):
        run.machine = nest_machine(tapes, operands, workspace, out)
    run.items(schedule.nest.body, whole)
    return out


def workspace_of(schedule: TreeSchedule) -> int:
    """Return the elements that a run uses beside operands and result."""
    return schedule.nest.arena + max(schedule.scratch, LEAST_SCRATCH)


def _checked(schedule: TreeSchedule, operands: Operands) -> dict[str, np.ndarray]:
    """Return the operands that are arrays; raises InputError for a missing one or a wrong shape."""
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


def outer_loop(nest: FusedNest) -> TiledLoop | None:
    """Return the outermost loop with several turns that are independent of one another; None if there is none.

    Each turn computes its own part of the result from operands and from arrays computed before the loop.
    """
    root = nest.fusion.tree.root
    items: Sequence[Item] = nest.body
    while True:
        around = [
            i for i in items if isinstance(i, TiledLoop) and any(s.name == root.name for s in _all(i.body, Compute))
        ]
        if not around:
            return None
        (loop,) = around
        own = {root.name, *(item.name for item in _all(loop.body, Allocate))}
        free = loop.label in root.indices and all(step.name in own for step in _all(loop.body, Compute))
        if loop.tile < loop.extent:
            return loop if free else None
        items = loop.body


def _all(items: Sequence[Item], kind: type[Any]) -> Iterator[Any]:
    """Yield all items of one class."""
    for item in items:
        if isinstance(item, kind):
            yield item
        if isinstance(item, TiledLoop):
            yield from _all(item.body, kind)


class _Run:
    """The arrays of one run."""

    outer: TiledLoop | None = None
    first = 0
    turned: Callable[[int], None] | None = None
    machine: NestMachine | None = None

    def __init__(
        self,
        schedule: TreeSchedule,
        operands: Operands,
        out: Any,
        gemm: Gemm | None,
        workspace: np.ndarray,
        orders: AxisOrders | None,
    ) -> None:
        self.gemm = gemm
        self.out = out
        self.fusion, self.inside = schedule.fusion, schedule.nest.inside
        self.operands = operands
        arena, self.scratch = np.split(workspace[: workspace_of(schedule)], [schedule.nest.arena])
        self.held = {}
        if isinstance(out, np.ndarray):
            self.held[self.fusion.tree.root.name] = Slice(out, self.fusion.tree.root.indices)
        orders = axis_orders(schedule.nest) if orders is None else orders
        for name, offset in schedule.nest.offsets.items():
            order = orders[name]
            lengths = dict(zip(self.fusion.arrays[name].indices, self.fusion.shape(name)))
            array = arena[offset : offset + prod(lengths.values())].reshape([lengths[label] for label in order])
            self.held[name] = Slice(array, order)
        if schedule.nest.inside:
            self.held[schedule.nest.inside] = _inside(schedule.nest, out)

    def items(self, items: Sequence[Item], ranges: Ranges) -> None:
        """Run items in order, where each label has the current range of its elements."""
        for item in self.machine.entries(items, ranges) if self.machine else items:
            if isinstance(item, NestTape):
                assert self.machine
                self.machine.run(item, ranges)
            elif isinstance(item, TiledLoop):
                for turn, start in enumerate(range(0, item.extent, item.tile)):
                    if item is self.outer and turn < self.first:
                        continue
                    self.items(item.body, ranges | {item.label: (start, min(start + item.tile, item.extent))})
                    if item is self.outer and self.turned:
                        self.turned(turn + 1)
            elif isinstance(item, Allocate) and item.zero:
                self._part(item.name, ranges).array.fill(0)
            elif isinstance(item, Compute):
                self._step(self.fusion.arrays[item.name], item.accumulate, ranges)

    def _part(self, name: str, ranges: Ranges) -> Slice:
        """Return the part of an array for these ranges; a tile of a fused index is held from its start."""
        held = self.held[name]
        fused = self.fusion.fused.get(name, frozenset())
        cuts: list[Any] = []
        for label in held.labels:
            start, stop = ranges[label]
            cuts.append(slice(0, stop - start) if label in fused else slice(start, stop))
        return Slice(held.array[(*cuts, Ellipsis)], held.labels)

    def _step(self, array: ComputedArray, accumulate: bool, ranges: Ranges) -> None:
        """Compute the part of an array for these ranges."""
        if array.name not in self.held:
            tile = self._part(array.inputs[0], ranges)
            self.out.put([slice(*ranges[label]) for label in array.indices], _ordered(tile, array.indices))
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
        computed = iter(array.inputs)
        operands = [
            self._leaf(o, ranges) if isinstance(o, Leaf) and not o.cost else self._part(next(computed), ranges)
            for o in array.source.operands
        ]
        multiply(result, operands, accumulate, self.scratch, self.gemm)

    def _leaf(self, leaf: Leaf, ranges: Ranges) -> Slice:
        """Return the part of an operand for these ranges."""
        cuts: list[Any] = [slice(*ranges[label]) for label in leaf.indices]
        operand = self.operands[leaf.name]
        block = operand[(*cuts, Ellipsis)] if isinstance(operand, np.ndarray) else np.asarray(operand(*cuts))
        return Slice(*_diagonal(block, leaf.indices), leaf.reciprocal)


def _diagonal(array: np.ndarray, labels: Sequence[str]) -> tuple[np.ndarray, tuple[str, ...]]:
    """Return a view with every label once."""
    kept = union(labels)
    if len(kept) == len(labels):
        return array, tuple(labels)
    numbers = [kept.index(label) for label in labels]
    return np.einsum(array, numbers, list(range(len(kept)))), kept


def _ordered(held: Slice, labels: Sequence[str]) -> np.ndarray:
    """Return a view with its axes in the order of `labels`."""
    return held.array.transpose([held.labels.index(label) for label in labels])


def _inside(nest: FusedNest, out: np.ndarray) -> Slice:
    """Return the part of the result's memory in which the operand of its last step lies."""
    labels = inside_order(nest)
    cuts: list[Any] = [slice(0, nest.fusion.tree.extent(label)) for label in labels]
    return Slice(out[(*cuts, ...)], labels)
