"""Loop nests: their text, lifetimes of arrays, and results against einsum for any fusion and tiles."""

from __future__ import annotations

from itertools import combinations
from math import prod

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from tests.contraction.workloads import a3a, all_fusions, four_factors, four_index, leaf, trees
from trnqc.contraction.lower.axis_orders import _operand_layouts, axis_orders
from trnqc.contraction.memory.fusion import fusion_front, least_memory
from trnqc.contraction.memory.fusion_graph import FusedTree
from trnqc.contraction.memory.loop_nest import nest_of
from trnqc.contraction.memory.schedule import TreeSchedule
from trnqc.contraction.products.product_plan import product_plan, row_major
from trnqc.contraction.run.loop_nest import run_schedule
from trnqc.contraction.tree import Tree, TreeNode
from trnqc.errors import InputError
from trnqc.expression.operand import Leaf


def operands_of(tree, seed=0):
    """Random arrays by name; a function is a table of which blocks are handed out."""
    rng = np.random.default_rng(seed)

    def values(operand: Leaf):
        table = rng.uniform(0.5, 1.5, [tree.extent(i) for i in operand.indices])
        return (lambda *cuts: table[cuts].copy()) if operand.cost else table

    return {operand.name: values(operand) for operand in tree.leaves}


def by_einsum(tree, operands):
    """The whole product at once, by the definition."""
    labels = {label: k for k, label in enumerate(tree.indices)}
    terms = []
    for operand in tree.leaves:
        values = operands[operand.name]
        array = values(*(slice(0, tree.extent(i)) for i in operand.indices)) if operand.cost else values
        terms += [1 / array if operand.reciprocal else array, [labels[i] for i in operand.indices]]
    return np.einsum(*terms, [labels[i] for i in tree.root.indices], optimize=True)


def test_the_text_of_the_four_factor_nest():
    assert str(nest_of(least_memory(four_factors()))).splitlines() == [
        "S[a,b,i,j] = 0",
        "for b in 0..99:",
        "    for c in 0..99:",
        "        T2[j,k] = 0",
        "        for d in 0..99:",
        "            for f in 0..99:",
        "                T1 = sum(e,l) B[b,e,f,l] * D[c,d,e,l]",
        "                T2[j,k] += sum(d,f) T1 * C[d,f,j,k]",
        "        S[a,b,i,j] += sum(c,k) T2[j,k] * A[a,c,i,k]",
    ]


def test_a_loop_of_one_turn_adds_nothing_up():
    tree = four_index(6)
    whole = nest_of(FusedTree(tree, {"T1": frozenset("q")}, {"q": 6}))
    assert "+=" not in str(whole) and " = 0" not in str(whole)
    assert "+=" in str(nest_of(FusedTree(tree, {"T1": frozenset("q")}, {"q": 5})))


def test_the_text_of_tiled_loops_over_functions():
    fusion = fusion_front(a3a(), recompute=True).fusions[0]
    text = str(nest_of(FusedTree(fusion.tree, fusion.fused, dict.fromkeys("aecf", 50))))
    assert "for a in 0..2999 step 50:" in text
    assert "T1[c:50,e:50] = T1(c, e, b, k)" in text
    assert "Y[c:50,e:50,a:50,f:50] += sum(b,k) T1[c:50,e:50] * T2[a:50,f:50]" in text


def test_arrays_that_do_not_meet_share_their_place():
    nest = nest_of(FusedTree(four_index(5)))
    assert nest.fusion.memory == 3 * 5**4 and nest.arena == 2 * 5**4
    assert nest.offsets["T1"] == nest.offsets["T3"]


@settings(max_examples=50, deadline=None)
@given(trees(most=5), some.data())
def test_what_lives_together_does_not_overlap(tree, data):
    fusion = data.draw(some.sampled_from([FusedTree(tree), *fusion_front(tree, recompute=True).fusions]))
    nest = nest_of(fusion)
    assert nest.arena <= fusion.memory
    for one, two in combinations(fusion.temporaries, 2):
        (first, last), (begin, end) = nest.lives[one], nest.lives[two]
        if first <= end and begin <= last:
            spans = [(nest.offsets[n], nest.offsets[n] + prod(fusion.shape(n))) for n in (one, two)]
            assert max(spans)[0] >= min(spans)[1]


@settings(max_examples=80, deadline=None)
@given(trees(most=5, functions=True), some.data())
def test_every_nest_computes_the_product(tree, data):
    tiles = {label: data.draw(some.integers(1, 4)) for label in tree.indices}
    fusion = data.draw(some.sampled_from(fusion_front(tree, recompute=True, tiles=tiles, keep=50).fusions))
    operands = operands_of(tree)
    result = run_schedule(TreeSchedule(nest_of(fusion), data.draw(some.sampled_from([0, 5, 1000]))), operands)
    np.testing.assert_allclose(result, by_einsum(tree, operands), rtol=1e-11)


def test_every_feasible_fusion_of_four_factors_computes_the_product():
    tree = four_factors(4, 3)
    operands = operands_of(tree)
    expected = by_einsum(tree, operands)
    tiles = {"b": 3, "d": 2, "f": 3, "j": 2}
    count = 0
    for fused, *_ in all_fusions(tree, False, tiles):
        result = run_schedule(TreeSchedule(nest_of(FusedTree(tree, fused, tiles)), 100), operands)
        np.testing.assert_allclose(result, expected, rtol=1e-11)
        count += 1
    assert count == 68


def test_diagonals_reciprocals_and_a_given_result():
    indices = four_factors(6, 4).indices
    inner = TreeNode("T", ("a", "i"), (leaf("F", "aabi", 0), Leaf("e", ("b", "i"), 1, reciprocal=True)))
    tree = Tree(TreeNode("R", ("i", "c"), (inner, leaf("G", "ac", 2))), indices)
    operands = operands_of(tree)
    out = np.full((4, 6), np.nan)
    fusion = FusedTree(tree, {"T": frozenset("a")}, {"a": 4})
    assert run_schedule(TreeSchedule(nest_of(fusion), 50), operands, out) is out
    expected = np.einsum("aabi,bi,ac->ic", operands["F"], 1 / operands["e"], operands["G"])
    np.testing.assert_allclose(out, expected, rtol=1e-12)


def scratch_wanted(nest):
    """Return the elements of scratch with which no product is divided."""
    fusion = nest.fusion
    orders = {**axis_orders(nest), fusion.tree.root.name: fusion.tree.root.indices}

    def layout(name):
        return row_major(orders[name], dict(zip(fusion.arrays[name].indices, fusion.shape(name))))

    wanted = 0
    for step, around in nest.steps:
        array = fusion.arrays[step.name]
        if not isinstance(array.source, Leaf):
            extents = tuple((i, fusion.tile(i) if i in around else fusion.tree.extent(i)) for i in array.loops)
            operands = tuple(_operand_layouts(array, fusion.tree.extent, layout))
            wanted = max(wanted, product_plan(extents, layout(step.name), operands, step.accumulate).scratch)
    return wanted


def test_axes_are_ordered_so_that_the_transformation_copies_nothing():
    fused = {"T1": frozenset("ar"), "T2": frozenset("a"), "T3": frozenset("ab")}
    fusion = FusedTree(four_index(40), fused, {"a": 8, "r": 5, "b": 5})
    assert set(axis_orders(nest_of(fusion))) == {"T1", "T2", "T3"}
    assert scratch_wanted(nest_of(fusion)) == 0


@pytest.mark.parametrize(
    ("change", "word"),
    [
        (lambda o: o.pop("t"), "operand t is missing"),
        (lambda o: o.update(t=np.zeros((2, 2))), "has the shape"),
        (lambda o: o.update(T1=np.zeros((3, 3, 3, 2))), "a function, as it has a cost"),
        (lambda o: o.update(t=len), "an array, as it has no cost"),
    ],
)
def test_wrong_operands_are_named(change, word):
    tree = a3a(3, 2)
    operands = operands_of(tree)
    change(operands)
    with pytest.raises(InputError, match=word):
        run_schedule(TreeSchedule(nest_of(least_memory(tree)), 10), operands)


def test_a_result_of_another_shape_is_refused():
    tree = four_factors(3, 2)
    with pytest.raises(InputError, match="the result has the shape"):
        run_schedule(TreeSchedule(nest_of(least_memory(tree)), 10), operands_of(tree), np.empty((2, 2)))


def test_a_step_is_not_summed_again_in_a_loop_it_does_not_have():
    indices = four_factors(6, 4).indices
    inner = TreeNode("T", ("a",), (leaf("F", "ac", 0, cost=5), leaf("G", "c", 1)))
    tree = Tree(TreeNode("R", (), (inner, leaf("H", "ab", 2))), indices)
    with pytest.raises(InputError, match="T would be summed again in every turn of the loop over b"):
        FusedTree(tree, {"F": frozenset("b")})
    fusion, operands = FusedTree(tree, {"F": frozenset("b"), "T": frozenset("b")}, {"b": 4}), operands_of(tree)
    expected = by_einsum(tree, operands)
    np.testing.assert_allclose(run_schedule(TreeSchedule(nest_of(fusion), 100), operands), expected, rtol=1e-12)
