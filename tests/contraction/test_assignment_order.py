"""Orders of assignments: nothing is read before it is there, and what is held at once is little."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trnqc.contraction import einsum_plan
from trnqc.contraction.memory.assignment_order import Task, demand_order

NAMES = "ABCDEF"


@st.composite
def chains_of_tasks(draw):
    """Tasks over few names, so that arrays change and are read between the changes; letters are of the caller."""
    tasks = []
    for _ in range(draw(st.integers(1, 12))):
        reads = draw(st.frozensets(st.sampled_from(NAMES), max_size=3))
        tasks.append(Task(draw(st.sampled_from(NAMES)), reads, draw(st.integers(0, 9))))
    return tasks


def values(tasks, order):
    """For each task what it computes, as the nested tuple of all that went into it, and what the names stand for."""
    known = {name: name for name in NAMES}
    computed = {}
    for number in order:
        task = tasks[number]
        computed[number] = number, tuple(known[name] for name in sorted(task.reads))
        known[task.target] = computed[number]
    return computed, known


@settings(deadline=None)
@given(chains_of_tasks())
def test_every_task_computes_the_same_in_the_new_order(tasks):
    order = demand_order(tasks)
    assert sorted(order) == list(range(len(tasks)))
    assert values(tasks, order) == values(tasks, range(len(tasks)))


def test_blocks_are_used_where_they_are_made():
    """All of X, then all of Y: in the new order one X and one Y at a time."""
    written = [Task(f"X{k}", frozenset("A"), 5) for k in range(4)]
    written += [Task(f"Y{k}", frozenset([f"X{k}"]), 5) for k in range(4)]
    written += [Task(f"Z{k}", frozenset([f"Y{k}"]), 0) for k in range(4)]
    assert [written[number].target for number in demand_order(written)] == [f"{x}{k}" for k in range(4) for x in "XYZ"]


def test_outputs_that_need_what_is_held_come_first():
    """P and Q read the same W; R, which is written between them, needs another."""
    tasks = [Task("W", frozenset("A"), 9), Task("V", frozenset("B"), 9), Task("P", frozenset("W"), 0)]
    tasks += [Task("R", frozenset("V"), 0), Task("Q", frozenset("W"), 0)]
    assert [tasks[number].target for number in demand_order(tasks)] == ["W", "P", "Q", "V", "R"]


def test_long_chains_need_no_recursion():
    tasks = [Task(f"x{k}", frozenset([f"x{k - 1}"]), 1) for k in range(3000)]
    assert demand_order(tasks) == tuple(range(3000))


CHAINS = """
    space o = 12
    index i j k : o
    tensor A[o,o,o]
    tensor B[o,o]
    {first}
    {second}
    E = {sums}
"""


def test_a_limit_is_kept_by_the_order_before_work_is_repeated():
    count = range(4)
    text = CHAINS.format(
        first="\n    ".join(f"X{k}[i,j,k] = {k + 1} * A[i,j,k] * A[j,k,i]" for k in count),
        second="\n    ".join(f"Y{k}[i,k] = X{k}[i,j,k] * B[j,k]" for k in count),
        sums=" + ".join(f"Y{k}[i,j] * B[i,j]" for k in count),
    )
    rng = np.random.default_rng(1)
    arrays = {"A": rng.standard_normal((12, 12, 12)), "B": rng.standard_normal((12, 12))}
    free = einsum_plan(text, arrays)
    plan = einsum_plan(text, arrays, memory_limit=free.peak_bytes // 2)
    assert plan.peak_bytes <= free.peak_bytes // 2
    assert plan.executed_multiply_adds == free.executed_multiply_adds
    assert plan.run(arrays) == pytest.approx(free.run(arrays), rel=1e-12)
