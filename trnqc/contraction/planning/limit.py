"""Plans within a memory limit: parts that would hold too much run as fused loops."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TypeVar

import numpy as np

from trnqc.contraction.computation import Computation, Part
from trnqc.contraction.cost.rates import RELATIVE_RATES
from trnqc.contraction.estimate import step_seconds
from trnqc.contraction.ladder.tiles import ladder_loops
from trnqc.contraction.lower.axis_orders import nest_scratch
from trnqc.contraction.memory.assignment_order import Task, demand_order
from trnqc.contraction.memory.loop_nest import nest_of
from trnqc.contraction.memory.schedule import (
    BUFFERS,
    LARGE_SCRATCH,
    ElementLimit,
    TreeSchedule,
    schedule_within,
    with_scratch,
)
from trnqc.contraction.memory.slicing import sliced_loops
from trnqc.contraction.tree import Tree
from trnqc.errors import InputError, MemoryLimit

AnyComputation = TypeVar("AnyComputation", bound=Computation)


def within_bytes(plan: AnyComputation, memory_limit: int | None, itemsize: int) -> AnyComputation:
    """Return the plan that holds at most `memory_limit` bytes, in elements of `itemsize` bytes.

    Raises
    ------
    InputError
        If the limit is not a number.
    MemoryLimit
        If no loops hold that little. The message states the least sufficient limit.
    """
    if memory_limit is None:
        return within_elements(plan, None)
    if not isinstance(memory_limit, int | float | np.number):
        raise InputError(f"memory_limit is a number of bytes; found {memory_limit!r}")
    try:
        return within_elements(plan, int(memory_limit // itemsize))
    except ElementLimit as error:
        least = error.needed * itemsize
        raise MemoryLimit(
            f"{error.what} need {least} bytes of memory at least; memory_limit is {memory_limit} bytes: "
            f"raise it to {least} or more"
        ) from None


def within_elements(plan: AnyComputation, limit: int | None) -> AnyComputation:
    """Return the plan that holds at most `limit` elements.

    Parts that hold more become fused loops. Ladders with declared symmetry become loops over their pairs where these
    take less time, also without a limit. Assignments change places if the plan would hold more otherwise. Raises the
    ElementLimit of the part that needs most, if a part needs more even as fused loops.
    """
    if limit is not None and plan.peak > limit:
        plan = min(plan, on_demand(plan), key=lambda candidate: candidate.peak)
    fitted: dict[int, Part] = {}
    failures: list[ElementLimit] = []
    for part, is_output, others in plan.parts_in_memory():
        try:
            fitted[id(part)] = fitted_part(part, is_output, others, limit)
        except ElementLimit as error:
            failures.append(error)
    if failures:
        raise max(failures, key=lambda error: error.needed)
    assignments = tuple(
        replace(assignment, parts=tuple(fitted[id(part)] for part in assignment.parts))
        for assignment in plan.assignments
    )
    return replace(plan, assignments=assignments)


def on_demand(plan: AnyComputation) -> AnyComputation:
    """Return the plan with each assignment where the first output needs it."""
    kept = plan.kept | plan.read_inputs
    tasks = [
        Task(a.target, frozenset(a.reads), 0 if a.target in kept else a.parts[0].tree.size(a.labels))
        for a in plan.assignments
    ]
    return replace(plan, assignments=tuple(plan.assignments[number] for number in demand_order(tasks)))


def fitted_part(part: Part, is_output: bool, others: int, limit: int | None) -> Part:
    """Return the part with the loops that the limit requires, or that are faster than its steps and hold no more.

    `others` are the elements of the limit that other arrays hold. Raises ElementLimit if no loops keep the limit.
    """
    if limit is None and (part.ladder is None or part.schedule):
        return part
    most = max(elements for _, elements in part.held(is_output))
    loops = None
    if part.ladder:
        room = most if limit is None else limit - others
        room -= 0 if is_output else part.tree.size(part.tree.root.indices)
        loops = ladder_loops(part.ladder, room - min(room // 4, BUFFERS))
    if loops:
        by_steps = sum(step_seconds(part.tree, step, RELATIVE_RATES) for step in part.steps)
        if loops.seconds(RELATIVE_RATES) < by_steps:
            return replace(part, loops=loops, tree=loops.ladder.tree)
    if limit is None or others + most <= limit:
        return part
    if part.schedule:
        # Slices that fit with less room for copies are kept. Else our loops over the same order take their place.
        taken = others + (0 if is_output else part.tree.size(part.tree.root.indices))
        if fitting := with_scratch(part.schedule, limit - taken):
            return replace(part, schedule=fitting)
    try:
        schedule = _schedule(part, is_output, others, limit)
        return replace(part, schedule=schedule, tree=schedule.reordered or part.tree)
    except MemoryLimit:
        if loops is None:
            raise
        return replace(part, loops=loops, tree=loops.ladder.tree)


def scheduled_slices(tree: Tree, labels: Sequence[str]) -> TreeSchedule | None:
    """Return the loops over single elements of these labels; None if no temporary has one of them."""
    fusion = sliced_loops(tree, labels)
    if not fusion.fused:
        return None
    nest = nest_of(fusion)
    return TreeSchedule(nest, min(nest_scratch(nest), LARGE_SCRATCH))


def _schedule(part: Part, is_output: bool, others: int, limit: int) -> TreeSchedule:
    """Return fused loops within the memory that other results and the part's own result leave of the limit."""
    taken = others + (0 if is_output else part.tree.size(part.tree.root.indices))
    try:
        found = schedule_within(part.tree, max(limit - taken, 0))
    except ElementLimit as error:
        raise ElementLimit(error.name, error.needed + taken, limit, taken) from None
    # Loops without temporaries fit into nothing, but what is held meanwhile may exceed the limit alone.
    if taken > limit:
        raise ElementLimit(part.tree.root.name, taken + found.memory, limit, taken)
    return found
