"""Plans: assignments of sums of trees in order, what they cost, how they read, and how they run."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from types import ModuleType
from typing import Any

import numpy as np

from trnqc.arrays import transform_of
from trnqc.contraction import listing
from trnqc.contraction.cost.counts import Count
from trnqc.contraction.cost.estimate import plan_seconds, quick_seconds, step_seconds
from trnqc.contraction.cost.rates import machine_rates
from trnqc.contraction.distribute.distribution import Distribution, distribute
from trnqc.contraction.distribute.placement import Grid
from trnqc.contraction.ladder.loops import MODEL, LadderLoops, ladder_loops
from trnqc.contraction.ladder.pattern import Ladder
from trnqc.contraction.ladder.run import run_ladder
from trnqc.contraction.memory.schedule import BUFFERS, ElementLimit, Schedule, schedule_within
from trnqc.contraction.order.block_sparsity import Blocked
from trnqc.contraction.order.symmetric_pairs import unique
from trnqc.contraction.pair_energy import PairForm, PairKernel, pair_energies
from trnqc.contraction.run.arrays import (
    Array,
    as_arrays,
    checked_function,
    host_array,
    library_of,
    one_type,
    require_divisors,
    require_exchange,
    require_finite,
    require_numbers,
    require_same,
)
from trnqc.contraction.run.device import run_on_device
from trnqc.contraction.run.execute import Gemm, run_steps
from trnqc.contraction.run.loop_nest import run_schedule
from trnqc.contraction.run.lower import Step, lower
from trnqc.contraction.tree import Tree
from trnqc.errors import InputError, MemoryLimit, SlowPlanWarning
from trnqc.expression.operand import Leaf
from trnqc.expression.symmetry import Exchange

# A plan that is expected to take so many times longer because of its memory limit says so before it runs.
SLOW = 20.0


@dataclass(frozen=True)
class Part:
    """coefficient times what the tree yields. schedule: its fused loops, where it must hold less than step by step.

    ladder: what the tree is, if it is one; loops: over its symmetric pairs, which then take the place of all else.
    """

    coefficient: Fraction
    tree: Tree
    schedule: Schedule | None = None
    ladder: Ladder | None = None
    loops: LadderLoops | None = None

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        return lower(self.tree)

    @property
    def unique_multiply_adds(self) -> int:
        if self.loops:
            return self.loops.work
        pairs = {} if self.schedule else dict(self.tree.pairs)
        return sum(unique(self.tree, node.loops, pairs.get(node.name, ())) for node in self.tree.nodes)

    def held(self, free: bool) -> Iterator[tuple[str, int]]:
        """(name of a step, elements held while it runs) beside operands, and beside the result where that is free."""
        tree = self.tree
        if looped := self.loops or self.schedule:
            yield tree.root.name, looped.memory + (0 if free else tree.size(tree.root.indices))
            return
        functions = sum(tree.size(leaf.indices) for leaf in tree.leaves if leaf.cost)
        alive: dict[str, int] = {}
        for step in self.steps:
            node = step.node
            result = 0 if node is tree.root and free else tree.size(node.indices)
            yield node.name, functions + sum(alive.values()) + result + step.copies(tree)
            for operand in node.operands:
                alive.pop(operand.name, None)
            alive[node.name] = result

    def run(self, library: ModuleType, values: Mapping[str, Any], gemm: Gemm | None) -> tuple[Array, bool]:
        """The result without the coefficient, and whether it is a new array; values by name of leaf."""
        if self.loops:
            return run_ladder(library, self.loops, values, gemm), True
        if self.schedule is None:
            operands = {leaf.name: _value(leaf, self.tree, values[leaf.name]) for leaf in self.tree.leaves}
            # A step that only turns axes yields a view of somebody's array.
            return run_steps(library, self.steps, operands, gemm), self.steps[-1].operation.kind != "copy"
        operands = {leaf.name: values[leaf.name] for leaf in self.tree.leaves}
        there = [x for x in operands.values() if getattr(x, "is_cuda", False)]
        if there:
            return run_on_device(library, self.schedule, operands, there[0], gemm), True
        values = {k: x if callable(x) else host_array(x, k) for k, x in sorted(operands.items())}
        found = run_schedule(self.schedule, values, gemm=gemm)
        return (found if library is np else library.asarray(found)), True


@dataclass(frozen=True)
class Assignment:
    """target[labels] = (or, accumulate, +=) the sum of the parts, each with its axes in the order of the labels."""

    target: str
    labels: tuple[str, ...]
    parts: tuple[Part, ...]
    accumulate: bool = False

    @property
    def reads(self) -> set[str]:
        found = {leaf.name for part in self.parts for leaf in part.tree.leaves}
        return found | {self.target} if self.accumulate else found


@dataclass(frozen=True)
class Machine:
    """Where products of matrices are formed, in words. gemm: None for the library of the arrays; pairs: None where
    pair energies run step by step; kernel: in words, what computes them else."""

    name: str
    gemm: Gemm | None = None
    pairs: PairKernel | None = None
    kernel: str = ""


@dataclass(frozen=True)
class Plan:
    """What to compute in which order. inputs: name and labels of every array to be handed in; outputs: what comes back.

    direct: operations if every product were formed in one loop nest over all of its indices. blocked: where assignments
    are over blocks, how these make up inputs and outputs. grid: of processors on which the trees are distributed.
    pairs: the pair energies that the outputs are, which one kernel of the machine computes where the operands allow it.
    memory: bytes, the limit that the plan was made for. exchanges: of inputs, what was declared, by name. time_limit:
    seconds that planning could take; omitted: in words, what was not searched because they were over.
    """

    title: str
    assignments: tuple[Assignment, ...]
    inputs: tuple[tuple[str, tuple[str, ...]], ...]
    outputs: tuple[str, ...]
    direct: Count
    blocked: Blocked | None = None
    grid: Grid = ()
    pairs: tuple[PairForm, ...] = ()
    machine: Machine = Machine("the library of the arrays")
    memory: int | None = None
    exchanges: tuple[tuple[str, tuple[Exchange, ...]], ...] = ()
    time_limit: float | None = None
    omitted: tuple[str, ...] = ()

    @cached_property
    def trees(self) -> tuple[Tree, ...]:
        return tuple(part.tree for assignment in self.assignments for part in assignment.parts)

    @property
    def multiply_adds(self) -> int:
        """The total over the steps of the product of the extents of each step's indices."""
        return sum(tree.multiply_adds for tree in self.trees)

    @property
    def unique_multiply_adds(self) -> int:
        """The same with each pair of labels in which a step's operands are (anti)symmetric once, where steps run so."""
        return sum(part.unique_multiply_adds for assignment in self.assignments for part in assignment.parts)

    @property
    def function_cost(self) -> int:
        """Multiply-adds of computing every element of every function once for each step that takes it."""
        return sum(tree.function_cost for tree in self.trees)

    @property
    def symbolic_multiply_adds(self) -> Count:
        return sum((tree.symbolic_multiply_adds for tree in self.trees), Count())

    @property
    def operations(self) -> Count:
        """Multiplications and additions, counted apart."""
        return sum((tree.operations for tree in self.trees), Count())

    @cached_property
    def extents(self) -> dict[str, int]:
        """By symbol, as in counts."""
        whole = dict(self.blocked.extents) if self.blocked else {}
        return {index.symbol: index.extent for tree in self.trees for index in tree.indices.values()} | whole

    @cached_property
    def shapes(self) -> dict[str, tuple[int, ...]]:
        """Of the inputs, by name."""
        if self.blocked:
            return {name: self.blocked.inputs[name].shape for name, _ in self.inputs}
        extents = {label: index.extent for tree in self.trees for label, index in tree.indices.items()}
        return {name: tuple(extents[label] for label in labels) for name, labels in self.inputs}

    @cached_property
    def distributions(self) -> tuple[Distribution, ...]:
        """Of the trees, in order, on the grid; none without a grid."""
        return tuple(distribute(tree, self.grid) for tree in self.trees) if self.grid else ()

    @cached_property
    def seconds(self) -> float:
        """The estimated time of a run by NumPy here, from the rates of this machine (`rates.machine_rates`)."""
        return plan_seconds(self, machine_rates())

    @cached_property
    def slowdown(self) -> float:
        """How many times longer a run is expected to take on this machine than without a memory limit; 1.0 where all of
        it fits."""
        parts = [part for assignment in self.assignments for part in assignment.parts]
        if not any(part.schedule for part in parts):
            return 1.0
        rates = machine_rates()
        free = [sum(step_seconds(part.tree, step, rates) for step in part.steps) for part in parts]
        limited = [
            quick_seconds(part.schedule.nest, part.schedule.scratch, rates) if part.schedule else seconds
            for part, seconds in zip(parts, free)
        ]
        return max(1.0, sum(limited) / (sum(free) + self.function_cost * rates.multiply_add))

    def warn(self) -> None:
        """Say as a SlowPlanWarning where the memory limit makes the run more than SLOW times slower."""
        if self.memory is not None and self.slowdown > SLOW:
            message = (
                f"a memory limit of {self.memory} bytes makes this contraction about {self.slowdown:.2g} times slower "
                f"than without a limit: {self.peak} elements at most are held, and many short loops run instead of "
                "matrix products; raise memory_limit if the machine has the memory"
            )
            warnings.warn(message, SlowPlanWarning, stacklevel=4)

    @cached_property
    def _kept(self) -> set[str]:
        """Names in the assignments that are outputs or parts of them."""
        if self.blocked is None:
            return set(self.outputs)
        return {block for name in self.outputs for _, block in self.blocked.targets[name].blocks}

    @cached_property
    def _divisors(self) -> set[str]:
        """Inputs that something is divided by."""
        return {leaf.name for tree in self.trees for leaf in tree.leaves if leaf.reciprocal}

    @cached_property
    def peak(self) -> int:
        """Most elements held at once beside inputs and outputs: temporaries, and copies that steps make of operands."""
        return max((held for _, held in self.held()), default=0)

    def held(self) -> Iterator[tuple[str, int]]:
        """(name of a step, elements held while it runs, its result included)."""
        for part, free, around in self.parts():
            for name, held in part.held(free):
                yield name, held + around

    def parts(self) -> Iterator[tuple[Part, bool, int]]:
        """(part, whether its result is one of the outputs, elements that others hold while it runs)."""
        last = {name: k for k, assignment in enumerate(self.assignments) for name in assignment.reads}
        kept = {leaf.name for tree in self.trees for leaf in tree.leaves if leaf.operand >= 0} | self._kept
        alive: dict[str, int] = {}
        for k, assignment in enumerate(self.assignments):
            for number, part in enumerate(assignment.parts):
                yield part, assignment.target in kept and not number, sum(alive.values())
                if assignment.target not in kept:
                    alive[assignment.target] = part.tree.size(assignment.labels)
            for name in [name for name in alive if last.get(name, -1) <= k]:
                del alive[name]

    def within(self, limit: int | None) -> Plan:
        """The plan that holds at most `limit` elements: parts that hold more become fused loops. Ladders with declared
        symmetry become loops over their pairs where these take less time, also without a limit.

        Raises MemoryLimit, with the least that would do, where even these need more.
        """
        fitted = {id(part): _fitted(part, free, around, limit) for part, free, around in self.parts()}
        assignments = tuple(
            replace(assignment, parts=tuple(fitted[id(part)] for part in assignment.parts))
            for assignment in self.assignments
        )
        return replace(self, assignments=assignments)

    def run(
        self,
        operands: Sequence[Any] | Mapping[str, Any],
        gemm: Gemm | None = None,
        check_finite: bool = True,
    ) -> Any:
        """The outputs: one array for one output, else a dictionary by name.

        operands: in the order of `inputs`, or by name; arrays of one library, or functions that take one slice for each
        axis and return that block. gemm: takes the place of the machine's product of stacked matrices; nothing else is
        run then. Results may be views with transposed axes.
        """
        names = [name for name, _ in self.inputs]
        if not isinstance(operands, Mapping):
            require_same(names, operands)
            operands = dict(zip(names, operands, strict=True)) if len(operands) == len(names) else {}
        if missing := [name for name in names if name not in operands]:
            raise InputError(f"the plan takes {len(names)} operands: {', '.join(names)}; {missing[0]} is missing")
        values = self._accepted({name: operands[name] for name in names}, check_finite)
        arrays = [x for x in values.values() if not callable(x)]
        library = library_of(arrays)
        if self.pairs and self.machine.pairs and gemm is None:
            found = pair_energies(self.pairs, values, self.machine.pairs, self.memory)
            if found is not None:
                return np.float64(found[self.outputs[0]]) if len(self.outputs) == 1 else found
        gemm = gemm or self.machine.gemm
        values = {k: checked_function(k, x, check_finite) if callable(x) else x for k, x in values.items()}
        return self._computed(library, values, gemm)

    def run_planned(self, arrays: Sequence[Any], gemm: Gemm | None, check_finite: bool) -> Any:
        """`run` for arrays of the shapes that the plan was made for, in the order of `inputs`: elements are checked."""
        library = library_of(arrays)
        names = [name for name, _ in self.inputs]
        for name, array in zip(names, arrays):
            require_numbers(array, name)
        values = dict(zip(names, one_type(library, arrays)))
        if check_finite:
            for name, array in values.items():
                self._check(library, name, array)
        return self._computed(library, values, gemm or self.machine.gemm)

    def _computed(self, library: ModuleType, values: dict[str, Any], gemm: Gemm | None) -> Any:
        if len(self.assignments) == 1 and not self.blocked and not self.assignments[0].accumulate:
            return _assign(library, self.assignments[0], values, gemm)
        if self.blocked:
            like = next((x for x in values.values() if not callable(x)), np.zeros(1))
            values = {k: x for name, whole in values.items() for k, x in self.blocked.inputs[name].split(whole).items()}
        last = {name: k for k, assignment in enumerate(self.assignments) for name in assignment.reads}
        for k, assignment in enumerate(self.assignments):
            values[assignment.target] = _assign(library, assignment, values, gemm)
            for name in [name for name in values if last.get(name, -1) <= k and name not in self._kept]:
                del values[name]
        if self.blocked:
            values = {name: self.blocked.targets[name].join(library, values, like) for name in self.outputs}
        if len(self.outputs) == 1:
            return values[self.outputs[0]]
        return {name: values[name] for name in self.outputs}

    def _accepted(self, operands: dict[str, Any], check_finite: bool) -> dict[str, Any]:
        arrays = [name for name, x in operands.items() if not callable(x)]
        library = library_of(found := as_arrays([operands[name] for name in arrays]))
        for name, array in zip(arrays, found):
            require_numbers(array, name)
        for name, array in zip(arrays, one_type(library, found)):
            expected = self.shapes[name]
            if tuple(array.shape) != expected:
                raise InputError(f"operand {name} has the shape {expected} in this plan; found {tuple(array.shape)}")
            if check_finite:
                self._check(library, name, array)
            operands[name] = array
        return operands

    def _check(self, library: ModuleType, name: str, array: Array) -> None:
        """Raise InputError where elements are not finite, divide and are zero, or lack a symmetry that was declared."""
        require_finite(library, array, name)
        if name in self._divisors:
            require_divisors(array, name)
        for declared, exchanges in self.exchanges:
            for exchange in exchanges if declared == name else ():
                require_exchange(library, array, name, exchange.order(array.ndim), exchange.sign)

    def __str__(self) -> str:
        return listing.text(self)

    def to_dict(self) -> dict[str, Any]:
        """All of the plan in lists, dictionaries, strings and numbers."""
        return listing.data(self)


def _fitted(part: Part, free: bool, around: int, limit: int | None) -> Part:
    """The part with the loops that it needs within the limit, or that are faster than its steps and hold no more."""
    if limit is None and part.ladder is None:
        return part
    most = max(held for _, held in part.held(free))
    loops = None
    if part.ladder:
        room = most if limit is None else limit - around
        room -= 0 if free else part.tree.size(part.tree.root.indices)
        loops = ladder_loops(part.ladder, room - min(room // 4, BUFFERS))
    if loops and loops.seconds(MODEL) < sum(step_seconds(part.tree, step, MODEL) for step in part.steps):
        return replace(part, loops=loops, tree=loops.ladder.tree)
    if limit is None or around + most <= limit:
        return part
    try:
        return replace(part, schedule=_schedule(part, free, around, limit))
    except MemoryLimit:
        if loops is None:
            raise
        return replace(part, loops=loops, tree=loops.ladder.tree)


def _schedule(part: Part, free: bool, around: int, limit: int) -> Schedule:
    taken = around + (0 if free else part.tree.size(part.tree.root.indices))
    try:
        return schedule_within(part.tree, max(limit - taken, 0))
    except ElementLimit as error:
        raise ElementLimit(error.name, error.needed + taken, limit, taken) from None


def _assign(library: ModuleType, assignment: Assignment, values: Mapping[str, Any], gemm: Gemm | None) -> Array:
    total, ours = (values[assignment.target] if assignment.accumulate else None), False
    for part in assignment.parts:
        found, fresh = part.run(library, values, gemm)
        if part.coefficient != 1:
            found, fresh = _scaled(found, part.coefficient, fresh), True
        if total is None:
            total, ours = found, fresh
        elif ours and total.dtype == found.dtype and not transform_of(found):
            total += found
        else:
            total, ours = total + found, True
    return total


def _scaled(x: Array, coefficient: Fraction, ours: bool) -> Array:
    """The product; whole coefficients keep the element type, in place where x is ours and holds what comes out."""
    factor = int(coefficient) if coefficient.denominator == 1 else float(coefficient)
    holds = isinstance(factor, int) or "float" in str(x.dtype) or "complex" in str(x.dtype)
    if ours and holds and x.ndim:
        x *= factor
        return x
    return x * factor


def _value(leaf: Leaf, tree: Tree, value: Any) -> Array:
    """The array of a leaf; a function is asked for all of its elements."""
    if not callable(value):
        return value
    block: Callable[..., Array] = value
    return block(*(slice(0, tree.extent(label)) for label in leaf.indices))
