"""Last steps that exchange one axis in the memory of the result: when they apply, results and memory."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest

import trnqc
from tests.contraction.test_loops import by_einsum, operands_of
from tests.contraction.workloads import four_index, indices, leaf
from trnqc.contraction.memory.fusion_graph import FusedTree
from trnqc.contraction.memory.loop_nest import inner_operand, nest_of
from trnqc.contraction.memory.schedule import TreeSchedule, schedule, schedule_within
from trnqc.contraction.run.device import run_on_device
from trnqc.contraction.run.loop_nest import run_schedule
from trnqc.contraction.tree import Tree, TreeNode
from trnqc.errors import SlowPlanWarning


def two_steps(result: str, other: str, mirrored: bool = False, **extents: int) -> Tree:
    """X_pbc = A_kpb F_kc, then the result from X and G with these labels."""
    x = TreeNode("X", tuple("pbc"), (leaf("A", "kpb", 0), leaf("F", "kc", 1)))
    last = (x, leaf("G", other, 2))
    space = indices(**{label: (label, extents.get(label, 5)) for label in "kpbcay"})
    root = TreeNode("R", tuple(result), last[::-1] if mirrored else last)
    return Tree(root, {label: index for label, index in space.items() if label in {*"kpbc", *result, *other}})


@pytest.mark.parametrize(
    ("result", "other", "extents"),
    [
        ("abc", "pa", {"a": 7}),
        ("bac", "ap", {"p": 3, "a": 3, "b": 13, "c": 1}),
        ("bca", "pa", {"p": 2, "a": 11}),
        ("cab", "pba", {"p": 5, "b": 7, "c": 3}),
        ("abc", "pa", {"p": 1, "a": 1, "b": 1, "c": 1}),
    ],
)
@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("scratch", [14, 40, 2000])
def test_the_result_is_that_of_einsum(result, other, extents, mirrored, scratch):
    tree = two_steps(result, other, mirrored, **extents)
    schedule = TreeSchedule(nest_of(FusedTree(tree), inner_operand(FusedTree(tree))), scratch)
    assert schedule.nest.inside == "X" and schedule.nest.arena == 0 and "in place" in str(schedule)
    operands = operands_of(tree)
    expected = by_einsum(tree, operands)
    np.testing.assert_allclose(run_schedule(schedule, operands), expected, rtol=1e-12)
    turned = np.empty(expected.shape, order="F")
    np.testing.assert_allclose(run_schedule(schedule, operands, turned), expected, rtol=1e-12)
    torch = pytest.importorskip("torch")
    values = {name: torch.tensor(x) for name, x in operands.items()}
    np.testing.assert_allclose(run_on_device(torch, schedule, values, values["A"]).numpy(), expected, rtol=1e-12)


@pytest.mark.parametrize(
    ("result", "other", "extents"),
    [
        ("abc", "pa", {"p": 6, "a": 5}),  # X is larger than the result
        ("abcy", "pay", {}),  # two labels for one
        ("ab", "pac", {}),  # two labels are summed
        ("bc", "p", {}),  # none is new
    ],
)
def test_what_does_not_fit_into_the_result(result, other, extents):
    assert inner_operand(FusedTree(two_steps(result, other, **extents))) is None


def test_a_fused_operand_has_its_own_memory():
    tree = two_steps("abc", "pa")
    assert inner_operand(FusedTree(tree)) == "X"
    assert inner_operand(FusedTree(tree, {"X": frozenset("b")})) is None


def test_a_scratch_shorter_than_the_axis_needs_another_nest():
    tree = two_steps("abc", "pa", p=40, a=40)
    assert schedule(tree, 200, scratch=43).nest.inside == "X"
    assert schedule(tree, 200, scratch=42).nest.inside is None


def test_the_transformation_holds_little_and_repeats_nothing():
    tree = four_index(24)
    limit = 24**4 // 10
    fitted = schedule_within(tree, limit)
    assert fitted.nest.inside == "T3" and fitted.memory <= limit and fitted.work == tree.multiply_adds
    operands = operands_of(tree)
    out = np.empty([24] * 4)
    run_schedule(fitted, operands, out)
    tracemalloc.start()
    run_schedule(fitted, operands, out)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak <= 8 * limit
    np.testing.assert_allclose(out, by_einsum(tree, operands), rtol=1e-11)


@pytest.mark.parametrize("kind", [np.float32, complex])
def test_other_types(kind):
    rng = np.random.default_rng(0)
    operands = [rng.standard_normal(shape).astype(kind) for shape in ((12,) * 4, *[(12, 12)] * 4)]
    text = "pqrs,pa,qb,rc,sd->abcd"
    with pytest.warns(SlowPlanWarning):
        plan = trnqc.einsum_plan(text, *operands, memory_limit=operands[0].nbytes // 4)
    assert "in place" in str(plan)
    result = plan.run(*operands)
    assert result.dtype == kind
    exact = np.einsum(text, *(x.astype(complex) for x in operands), optimize=True)
    assert abs(result - exact).max() < (1e-4 if kind == np.float32 else 1e-12) * abs(exact).max()
