"""Loops over slices as tapes: the same numbers as those of the loops in Python, alone and mixed with these."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from tests.contraction.test_loops import by_einsum, operands_of
from tests.contraction.workloads import four_factors, leaf, trees
from trnqc.contraction.lower.axis_orders import axis_orders
from trnqc.contraction.memory.fusion import fusion_front
from trnqc.contraction.memory.fusion_graph import FusedTree
from trnqc.contraction.memory.loop_nest import nest_of
from trnqc.contraction.memory.schedule import TreeSchedule
from trnqc.contraction.run.loop_nest import run_schedule
from trnqc.contraction.tape import machine, nests
from trnqc.contraction.tape.nests import NestTape, NestTapes
from trnqc.contraction.tree import Tree, TreeNode
from trnqc.expression.operand import Leaf


def taped(schedule):
    return NestTapes(schedule, axis_orders(schedule.nest))


def four_factor_loops(tiles=None):
    tree = four_factors(4, 3)
    return TreeSchedule(nest_of(FusedTree(tree, {"T1": frozenset("bd"), "T2": frozenset("b")}, tiles or {})), 30)


@pytest.fixture
def counted(monkeypatch):
    """Tapes that ran."""
    ran = []
    run = machine.NestMachine.run
    monkeypatch.setattr(machine.NestMachine, "run", lambda *args: (ran.append(args[1]), run(*args)))
    return ran


@pytest.mark.parametrize("work_of_a_call", [0, 20, 10**9])
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(trees(most=5, functions=True), some.data())
def test_every_nest_computes_the_product(monkeypatch, work_of_a_call, tree, data):
    """Steps of more work than a call stay in Python: all, some and none; tiles that do not divide the extents."""
    monkeypatch.setattr(nests, "CALLS", nests.INSTRUCTION + nests.BY_TAPE * work_of_a_call)
    monkeypatch.setattr(nests, "BY_CALLS", 0.0)
    monkeypatch.setattr(nests, "TAPE", 0.0)
    tiles = {label: data.draw(some.integers(1, 4)) for label in tree.indices}
    fusion = data.draw(some.sampled_from(fusion_front(tree, recompute=True, tiles=tiles, keep=50).fusions))
    operands = operands_of(tree)
    schedule = TreeSchedule(nest_of(fusion), data.draw(some.sampled_from([0, 5, 1000])))
    result = run_schedule(schedule, operands, tapes=taped(schedule))
    np.testing.assert_allclose(result, by_einsum(tree, operands), rtol=1e-11)


@pytest.mark.parametrize("tiles", [{}, {"b": 3}, {"b": 3, "d": 3}])
def test_small_steps_are_one_tape(counted, tiles):
    schedule = four_factor_loops(tiles)
    operands = operands_of(schedule.fusion.tree)
    result = run_schedule(schedule, operands, tapes=taped(schedule))
    assert len(counted) == 1
    np.testing.assert_allclose(result, by_einsum(schedule.fusion.tree, operands), rtol=1e-12)


def test_operands_lie_in_any_way(counted):
    """Transposed, in steps, backwards and repeated; a tape is kept for each layout."""
    schedule = four_factor_loops()
    operands = operands_of(schedule.fusion.tree)
    other = {name: np.asfortranarray(x) for name, x in operands.items()}
    first, second, *_ = operands
    other[first] = np.repeat(operands[first], 2, axis=1)[:, ::2]
    other[second] = np.broadcast_to(operands[second][..., :1], operands[second].shape)
    reverse = {name: x[::-1] for name, x in operands.items()}
    tapes = taped(schedule)
    for given_ in (operands, other, reverse, operands):
        result = run_schedule(schedule, given_, tapes=tapes)
        np.testing.assert_allclose(result, by_einsum(schedule.fusion.tree, given_), rtol=1e-12)
    assert len(counted) == 4 and counted[0] is counted[3] and counted[0] is not counted[1]


@pytest.mark.parametrize("change", ["float32", "unaligned", "no function", "a product", "turns"])
def test_what_tapes_cannot_run_is_run_in_python(monkeypatch, counted, change):
    schedule = four_factor_loops()
    operands = operands_of(schedule.fusion.tree)
    given_, more = dict(operands), {}
    if change == "float32":
        given_ = {name: x.astype(np.float32) for name, x in operands.items()}
    if change == "unaligned":
        (name, x), *_ = operands.items()
        given_[name] = np.frombuffer(b"x" + x.tobytes(), np.uint8)[1:].view(float).reshape(x.shape)
    if change == "no function":
        monkeypatch.setattr(machine, "tape_function", lambda: None)
    if change == "a product":
        more["gemm"] = lambda a_t, b: np.swapaxes(a_t, 1, 2) @ b
    if change == "turns":
        more["turned"] = lambda turn: None
    result = run_schedule(schedule, given_, tapes=taped(schedule), **more)
    assert not counted
    np.testing.assert_allclose(result, by_einsum(schedule.fusion.tree, operands), rtol=1e-5)


def test_reciprocals_and_large_steps_stay_beside_tapes(monkeypatch, counted):
    monkeypatch.setattr(nests, "TAPE", 0.0)
    indices = four_factors(6, 4).indices
    first = TreeNode("T", ("a", "i"), (leaf("F", "aabi", 0), leaf("H", "ab", 3)))
    inner = TreeNode("U", ("a", "i"), (first, Leaf("e", ("i",), 1, reciprocal=True)))
    tree = Tree(TreeNode("R", ("i", "c"), (inner, leaf("G", "ac", 2))), indices)
    fusion = FusedTree(tree, {"T": frozenset("a"), "U": frozenset("a")}, {"a": 4})
    operands = operands_of(tree)
    schedule = TreeSchedule(nest_of(fusion), 50)
    entries = taped(schedule).of(tuple(tuple(s // 8 for s in operands[n].strides) for n in taped(schedule).names))
    assert isinstance(entries.entries(schedule.nest.body, {x: tree.extent(x) for x in tree.indices})[0], NestTape)
    result = run_schedule(schedule, operands, tapes=taped(schedule))
    assert len(counted) > 2
    expected = np.einsum("aabi,ab,i,ac->ic", operands["F"], operands["H"], 1 / operands["e"], operands["G"])
    np.testing.assert_allclose(result, expected, rtol=1e-12)
