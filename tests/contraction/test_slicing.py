"""Plans of others are followed: paths, planners and trees of cotengra, with loops over their sliced indices."""

from __future__ import annotations

import cotengra
import numpy as np
import opt_einsum
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trnqc
from trnqc.contraction.memory.loop_nest import nest_of
from trnqc.contraction.memory.schedule import TreeSchedule
from trnqc.contraction.memory.slicing import Slices, sliced_loops
from trnqc.contraction.order.heuristic import improve
from trnqc.contraction.order.narrow import narrowed, peak
from trnqc.contraction.order.operations import network_of
from trnqc.contraction.order.starts import greedy
from trnqc.contraction.run.loop_nest import run_schedule
from trnqc.errors import ArgumentError, InputError, UnsupportedError

CHAIN = "ab,bc,cd,de->ae"
SHAPES = ((3, 4), (4, 5), (5, 6), (6, 2))
QUICK = {"methods": ["greedy"], "max_repeats": 4, "parallel": False, "progbar": False}


def random_arrays(shapes, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape) for shape in shapes]


def lattice(length, bond, sliced):
    """Inputs, result and extents of a square lattice, and cotengra's tree with so many sliced indices."""
    inputs, output, _, extents = cotengra.utils.lattice_equation([length, length], d_min=bond, d_max=bond)
    tree = cotengra.GreedyOptimizer().search(inputs, output, extents)
    for label in sorted(extents)[:: max(1, len(extents) // max(sliced, 1))][:sliced]:
        tree.remove_ind_(label)
    return inputs, output, extents, tree


def interleaved(inputs, output, arrays):
    return [x for pair in zip(arrays, map(list, inputs)) for x in pair] + [list(output)]


def test_a_path_is_followed_by_plans_too():
    # From the right: de has 2 columns, so that each product has 2.
    plan = trnqc.einsum_plan(CHAIN, *SHAPES, optimize=[(2, 3), (1, 2), (0, 1)])
    assert plan.multiply_adds == 5 * 6 * 2 + 4 * 5 * 2 + 3 * 4 * 2
    other = trnqc.einsum_plan(CHAIN, *SHAPES, optimize=[(0, 1), (0, 2), (0, 1)])
    assert other.multiply_adds == 3 * 4 * 5 + 3 * 5 * 6 + 3 * 6 * 2
    assert other.executed_multiply_adds == other.multiply_adds


@pytest.mark.parametrize(
    "planner",
    [
        cotengra.HyperOptimizer(**QUICK),
        cotengra.ReusableHyperOptimizer(**QUICK),
        cotengra.HyperOptimizer(slicing_opts={"target_slices": 3}, **QUICK),
        cotengra.GreedyOptimizer(),
        opt_einsum.DynamicProgramming(),
        opt_einsum.contract_path(CHAIN, *SHAPES, shapes=True)[1],
        np.einsum_path(CHAIN, *map(np.ones, SHAPES))[0],
    ],
    ids=["hyper", "reusable", "sliced", "greedy", "dynamic programming", "PathInfo", "NumPy"],
)
def test_plans_of_every_kind_are_run(planner):
    arrays = random_arrays(SHAPES)
    np.testing.assert_allclose(trnqc.einsum(CHAIN, *arrays, optimize=planner), np.linalg.multi_dot(arrays), rtol=1e-12)


def test_slices_of_a_planner_become_loops():
    text, shapes = "ab,bc,cd,de,ef->af", [(8, 8)] * 5
    planner = cotengra.HyperOptimizer(slicing_opts={"target_slices": 8}, **QUICK)
    plan = trnqc.einsum_plan(text, *shapes, optimize=planner)
    arrays = random_arrays(shapes)
    assert "for " in str(plan.parts[0].schedule.nest)
    np.testing.assert_allclose(plan.run(*arrays), np.linalg.multi_dot(arrays), rtol=1e-12)


@pytest.mark.parametrize("sliced", [1, 2, 5, 9])
def test_sliced_lattices_have_cotengras_numbers_for_less_work(sliced):
    inputs, output, extents, tree = lattice(4, 2, sliced)
    arrays = random_arrays([tuple(extents[x] for x in labels) for labels in inputs])
    operands = interleaved(inputs, output, arrays)
    plan = trnqc.einsum_plan(*operands, optimize=tree)
    np.testing.assert_allclose(plan.run(*arrays), tree.contract(arrays), rtol=1e-10)
    np.testing.assert_allclose(trnqc.einsum(*operands, optimize=tree), tree.contract(arrays), rtol=1e-10)
    # cotengra repeats every step in each of its slices.
    assert plan.multiply_adds <= plan.executed_multiply_adds <= tree.contraction_cost()
    if plan.executed_multiply_adds > plan.multiply_adds:
        assert f"{plan.executed_multiply_adds:.4g}, " in str(plan)


@settings(max_examples=15, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_random_networks_with_random_slices(seed):
    """Hyperedges, free indices and any slices, of the result too; each step is counted as often as it is computed."""
    rng = np.random.default_rng(seed)
    inputs, output, shapes, extents = cotengra.utils.rand_equation(
        int(rng.integers(3, 9)), 3, n_out=int(rng.integers(0, 3)), n_hyper_in=1, d_max=3, seed=seed
    )
    tree = cotengra.GreedyOptimizer(temperature=1.0).search(inputs, output, extents)
    for label in rng.choice(sorted(extents), rng.integers(1, min(len(extents), 5)), replace=False):
        tree.remove_ind_(str(label))
    arrays = random_arrays(shapes, seed)
    expected = opt_einsum.contract(*interleaved(inputs, output, arrays))
    plan = trnqc.einsum_plan(*interleaved(inputs, output, arrays), optimize=tree)
    np.testing.assert_allclose(plan.run(*arrays), expected, rtol=1e-9, atol=1e-9)
    if schedule := plan.parts[0].schedule:
        nest = schedule.nest
        tree, arrays_of = nest.fusion.tree, nest.fusion.arrays
        counted = 0
        for step, around in nest.steps:
            turns = tree.size(around)
            counted += turns * tree.size(x for x in arrays_of[step.name].loops if x not in around)
        assert counted == plan.executed_multiply_adds == schedule.work


def test_a_step_without_the_inner_index_is_computed_before_its_loop():
    # S = (AB)(CD) with b inside AB and d inside CD: neither product is repeated for the other's slices.
    text, shapes = "abx,bcx,cdy,aey,edz->xyz", [(6, 6, 2), (6, 6, 2), (6, 6, 2), (6, 6, 2), (6, 6, 2)]
    plan = trnqc.einsum_plan(text, *shapes, optimize=[(0, 1), (0, 1), (0, 1), (0, 1)])
    loops = sliced_loops(plan.trees[0], ["a", "e"])
    every = [Slices(plan.trees[0], ["a", "e"]).executed_in(order) for order in ((0, 1), (1, 0))]
    assert loops.work == min(every)
    assert not sliced_loops(plan.trees[0], ["b"]).fused  # no temporary has b


def test_a_loop_that_has_to_end_later_adds_partial_results_there():
    """T1 sums over a and is inside the loop over b; with b innermost, the loop over a ends where that over b ends."""
    text, shapes = "ai,ij,bja,bk->ik", [(5, 3), (3, 4), (6, 4, 5), (6, 2)]
    arrays = random_arrays(shapes)
    plan = trnqc.einsum_plan(text, *shapes, optimize=[(0, 1), (0, 2), (0, 1)])
    slices = Slices(plan.trees[0], ["a", "b"])
    numbers = [slices.fusion(order) for order in ((0, 1), (1, 0))]
    assert {fusion.work for fusion in numbers} == {slices.executed_in(order) for order in ((0, 1), (1, 0))}
    later = numbers[0]
    assert "a" in next(node for node in later.tree.nodes if node.name == "T2").indices
    operands = dict(zip("ABCD", arrays))
    for fusion in numbers:
        result = run_schedule(TreeSchedule(nest_of(fusion), 100), operands)
        np.testing.assert_allclose(result, np.einsum(text, *arrays), rtol=1e-12)


@settings(max_examples=25, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_elements_that_slices_hold_are_those_of_their_nest(seed):
    rng = np.random.default_rng(seed)
    inputs, output, shapes, extents = cotengra.utils.rand_equation(
        int(rng.integers(3, 14)), 3, n_out=int(rng.integers(0, 3)), n_hyper_in=1, d_min=2, d_max=3, seed=seed
    )
    path = cotengra.GreedyOptimizer(temperature=1.0).search(inputs, output, extents).get_path()
    plan = trnqc.einsum_plan(*interleaved(inputs, output, shapes), optimize=path)
    slices = Slices(plan.trees[0], sorted(plan.trees[0].indices))
    order = tuple(int(k) for k in rng.permutation(len(slices.labels))[: rng.integers(0, 7)])
    scopes = slices.scopes(order)
    held, live = slices.fullest(scopes)
    nest = nest_of(slices.fusion(order))
    sizes = {name: np.prod(nest.fusion.shape(name)) for name in nest.temporaries}
    assert held == pytest.approx(sum(sizes[name] for name in nest.fullest))
    assert sum(sizes[plan.trees[0].nodes[k].name] for k in live) == pytest.approx(held)
    assert nest.fusion.work == slices.executed(scopes)
    for number in set(range(len(slices.labels))) - set(order):
        for trial in slices.longer(order, scopes, number):
            longer = slices.scopes((*order[: trial.place], number, *order[trial.place :]))
            assert longer == scopes | {number: trial.scope}


def test_deep_trees_are_sliced_without_recursion():
    """A path from one end to the other through more matrices than Python allows nested calls."""
    n, extent = 1100, 20
    operands = [x for k in range(n) for x in ((extent, extent), [k, k + 1])]
    path = [(0, 1), *((0, n - k) for k in range(2, n))]
    free = trnqc.einsum_plan(*operands, [0, n], optimize=path)
    plan = trnqc.einsum_plan(*operands, [0, n], optimize=path, memory_limit=free.peak_bytes * 2 // 3)
    assert plan.peak_bytes <= free.peak_bytes * 2 // 3
    assert plan.executed_multiply_adds == free.multiply_adds == (n - 1) * extent**3


def test_a_memory_limit_keeps_slices_that_fit_and_replaces_others():
    inputs, output, extents, tree = lattice(3, 6, 2)
    arrays = random_arrays([tuple(extents[x] for x in labels) for labels in inputs])
    operands = interleaved(inputs, output, arrays)
    free = trnqc.einsum_plan(*operands, optimize=tree)
    same = trnqc.einsum_plan(*operands, optimize=tree, memory_limit=2 * free.peak_bytes)
    assert same.parts[0].schedule.fusion == free.parts[0].schedule.fusion
    small = trnqc.einsum_plan(*operands, optimize=tree, memory_limit=free.peak_bytes // 2, max_slowdown=None)
    assert small.peak_bytes <= free.peak_bytes // 2
    np.testing.assert_allclose(small.run(*arrays), tree.contract(arrays), rtol=1e-10)


def test_labels_of_a_tree_may_be_any_values():
    tree = cotengra.array_contract_tree(
        [(("x", 0), 7), (7, "long"), ("long", 3.5)], (3.5, ("x", 0)), shapes=[(4, 5), (5, 6), (6, 2)], optimize="greedy"
    )
    arrays = random_arrays([(4, 5), (5, 6), (6, 2)])
    np.testing.assert_allclose(trnqc.einsum("pq,qr,rs->sp", *arrays, optimize=tree), np.linalg.multi_dot(arrays).T)


OTHERS = {
    "operands": ("ab,bc->ac", [(3, 4), (4, 5)]),
    "extents": (CHAIN, [(3, 4), (4, 7), (7, 6), (6, 2)]),
    "indices": ("ab,bc,cd,be->ae", [(3, 4), (4, 5), (5, 6), (4, 2)]),
    "axes": ("ab,bc,cd,def->aef", [(3, 4), (4, 5), (5, 6), (6, 2, 2)]),
    "result": ("ab,bc,cd,de->a", SHAPES),
    "repeated indices": ("ab,bc,cd,da->a", [(3, 4), (4, 5), (5, 6), (6, 3)]),
}


@pytest.mark.parametrize("text, shapes", OTHERS.values(), ids=OTHERS)
def test_a_tree_of_another_network_is_refused(text, shapes):
    tree = cotengra.array_contract_tree(
        [tuple(x) for x in CHAIN.split("->")[0].split(",")], tuple("ae"), shapes=SHAPES, optimize="greedy"
    )
    with pytest.raises(InputError, match=r"tree of another contraction: .* make a tree of these subscripts and shapes"):
        trnqc.einsum_plan(text, *shapes, optimize=tree)


def test_what_a_tree_cannot_be_is_named():
    tree = cotengra.array_contract_tree(
        [tuple(x) for x in CHAIN.split("->")[0].split(",")], tuple("ae"), shapes=SHAPES, optimize="greedy"
    )
    arrays = random_arrays(SHAPES)
    with pytest.raises(UnsupportedError, match="one element of the index 'c' only"):
        trnqc.einsum(CHAIN, *arrays, optimize=tree.remove_ind("c", project=1))
    with pytest.raises(UnsupportedError, match="without slices"):
        trnqc.einsum(CHAIN, *arrays, optimize=tree.remove_ind("c"), semiring="min-plus")
    with pytest.raises(ArgumentError, match="a path, a contraction tree, a planner"):
        trnqc.einsum(CHAIN, *arrays, optimize=3)
    with pytest.raises(InputError, match="goes with subscripts"):
        trnqc.einsum_plan("space o = 2\nindex i : o\ntensor a[o]\nx = a[i] * a[i]", optimize=[(0, 1)])


def test_axes_of_extent_one_are_spread_beside_a_tree():
    tree = cotengra.array_contract_tree(
        [("a", "b"), ("b", "c"), ("c", "d")], ("a", "d"), shapes=[(3, 4), (4, 5), (5, 2)], optimize="greedy"
    )
    arrays = random_arrays([(3, 4), (1, 5), (5, 2)])
    found = trnqc.einsum("ab,bc,cd->ad", *arrays, optimize=tree)
    np.testing.assert_allclose(found, np.einsum("ab,bc,cd->ad", arrays[0], np.repeat(arrays[1], 4, 0), arrays[2]))


@pytest.mark.filterwarnings("ignore::trnqc.errors.SlowPlanWarning")
@pytest.mark.parametrize("fraction", [2, 4])
def test_networks_of_many_operands_run_within_a_limit(fraction):
    """More steps than the search for fusions follows: labels are sliced, and steps without them are not repeated."""
    inputs, output, extents, _ = lattice(5, 2, 0)
    arrays = random_arrays([tuple(extents[x] for x in labels) for labels in inputs])
    operands = interleaved(inputs, output, arrays)
    free = trnqc.einsum_plan(*operands)
    limit = free.peak_bytes // fraction
    plan = trnqc.einsum_plan(*operands, memory_limit=limit, max_slowdown=None)
    assert plan.peak_bytes <= limit
    assert plan.executed_multiply_adds < 3 * fraction * free.multiply_adds
    np.testing.assert_allclose(plan.run(*arrays), opt_einsum.contract(*operands), rtol=1e-10)


def test_larger_tiles_are_used_where_they_fit():
    """Each of 20 matrices has a batch label of 16 elements; a limit of half of them leaves room for half a batch."""
    text = ",".join(f"z{chr(97 + k)}{chr(98 + k)}" for k in range(20)) + "->za" + "u"
    shapes = [(16, 4, 4)] * 20
    free = trnqc.einsum_plan(text, *shapes)
    plan = trnqc.einsum_plan(text, *shapes, memory_limit=free.peak_bytes * 3 // 5)
    fusion = plan.parts[0].schedule.fusion
    assert plan.executed_multiply_adds == free.multiply_adds
    assert max(fusion.tile(label) for label in fusion.tiles) >= 2
    arrays = random_arrays(shapes)
    np.testing.assert_allclose(plan.run(*arrays), free.run(*arrays), rtol=1e-9, atol=1e-7)


def test_orders_for_slices_hold_less_for_little_more_work():
    inputs, output, extents, _ = lattice(6, 3, 0)
    network = network_of(inputs, output, extents, ())
    before = improve(network, greedy(network, 0))
    room = peak(network, before) // 10
    after = narrowed(network, before, room)
    assert set(after) >= {network.everything} and len(after) == len(before)
    assert network.cost(after, network.everything) < 3 * network.cost(before, network.everything)
    assert narrowed(network, before, peak(network, before)) == before
