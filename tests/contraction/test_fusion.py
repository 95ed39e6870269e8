"""Loop fusion: the published cases, and every small case against the enumeration of all choices."""

from __future__ import annotations

import random
from itertools import pairwise, product
from math import prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from tests.contraction.workloads import (
    a3a,
    all_fusions,
    exhaustive_front,
    four_factors,
    four_index,
    held,
    ladder,
    leaf,
    small_workloads,
    trees,
)
from trnqc.contraction.cost.counts import MonomialSum
from trnqc.contraction.memory import fusion as search
from trnqc.contraction.memory.fusion import fusion_front, least_memory
from trnqc.contraction.memory.fusion_graph import FusedTree
from trnqc.contraction.memory.loop_blocks import upward
from trnqc.contraction.tree import Tree, TreeNode
from trnqc.errors import InputError


def test_four_factors_need_a_scalar_and_a_matrix():
    fusion = least_memory(four_factors())
    assert held(fusion) == {"T1": "", "T2": "jk"}
    assert set(fusion.fused["T1"]) == set("bcdf") and set(fusion.fused["T2"]) == set("bc")
    assert fusion.memory == 1 + 10 * 10 and fusion.work == four_factors().multiply_adds


@pytest.mark.parametrize(
    ("tree", "choices", "nests"),
    [(four_factors(3, 2), 256, 68), (four_index(2), 4096, 644), (a3a(3, 2), 65536, 1780)],
    ids=["four factors", "four index", "A3A"],
)
def test_the_number_of_loop_nests(tree, choices, nests):
    names = FusedTree(tree).temporaries
    assert prod(2 ** len(FusedTree(tree).arrays[name].indices) for name in names) == choices
    assert sum(1 for _ in all_fusions(tree, False, {})) == nests


def test_the_four_index_transformation_needs_a_matrix_and_two_numbers():
    assert least_memory(four_index(200)).memory == 200 * 200 + 2 == 40_002
    assert least_memory(four_index(230, 30)).memory == 200 * 30 + 200 + 1 == 6_201


def test_fitted_ladder_fuses_over_both_virtuals():
    tree = ladder()
    assert FusedTree(tree).memory == 300**4
    assert least_memory(tree).memory == 1


def test_without_repetition_a3a_does_not_fit():
    tree = a3a()
    assert FusedTree(tree).memory == 2 * 3000**4 + 2 * 3000**3 * 100
    assert least_memory(tree).memory == 3000**3 * 100 + 3000 * 100 + 2


def test_with_repetition_a3a_takes_four_elements():
    tree = a3a()
    front = fusion_front(tree, recompute=True)
    assert front.exact
    points = {fusion.memory: fusion.work / FusedTree(tree).work for fusion in front.fusions}
    assert min(points) == 4 and points[4] == pytest.approx(1936, rel=1e-3)
    # Integrals repeated for one of the two arrays only; the other stays V x O.
    assert points[3000 * 100 + 3] == pytest.approx(969, rel=1e-3)
    assert points[max(points)] == 1


V, O, B, C = (MonomialSum.symbol(name) for name in "VOBC")
ONE = MonomialSum.number(1)
# Space and time of each array: nothing fused; everything fused, integrals repeated; the same in tiles of B.
A3A_TABLE = {
    "X": ((V**4, V**4 * O**2), (ONE, V**4 * O**2), (B**4, V**4 * O**2)),
    "T1": ((V**3 * O, C * V**3 * O), (ONE, C * V**5 * O), (B**2, C * V**5 * O * B**-2)),
    "T2": ((V**3 * O, C * V**3 * O), (ONE, C * V**5 * O), (B**2, C * V**5 * O * B**-2)),
    "Y": ((V**4, V**5 * O), (ONE, V**5 * O), (B**4, V**5 * O)),
    "E": ((ONE, V**4), (ONE, V**4), (ONE, V**4)),
}


@pytest.mark.parametrize("name", A3A_TABLE)
def test_space_and_time_of_a3a_in_symbols(name):
    tree = a3a()
    full = fusion_front(tree, recompute=True).fusions[0]
    tiled = FusedTree(tree, full.fused, dict.fromkeys("aecf", 50))
    forms = [FusedTree(tree), full, tiled]
    result = tuple((form.space(name), form.time(name, dict.fromkeys("aecf", "B"))) for form in forms)
    spaces = tuple(form.space(name, dict.fromkeys("aecf", "B")) for form in forms)
    assert tuple(zip(spaces, (time for _, time in result))) == A3A_TABLE[name]


def test_symbols_and_numbers_agree():
    tree = a3a()
    tiled = FusedTree(tree, fusion_front(tree, recompute=True).fusions[0].fused, dict.fromkeys("aecf", 50))
    values = {"V": 3000, "O": 100, "C": 1000} | {f"B{label}": 50 for label in "aecf"}
    assert sum(tiled.space(name).at(values) for name in tiled.temporaries) == tiled.memory == 2 * 50**4 + 2 * 50**2
    assert sum(tiled.time(name).at(values) for name in tiled.arrays) == tiled.work


# The others have more than a million choices with repetition.
REPEATED = ["four factors", "ladder", "quadratic ring", "quadratic ladder", "MP2 energy"]


@pytest.mark.parametrize(
    ("name", "recompute"), [*((name, False) for name in small_workloads()), *((name, True) for name in REPEATED)]
)
def test_no_workload_is_worse_than_enumeration(name, recompute):
    tree = small_workloads()[name]
    result = fusion_front(tree, recompute=recompute)
    assert result.exact
    assert [(f.memory, f.work) for f in result.fusions] == exhaustive_front(tree, recompute)


@settings(max_examples=60, deadline=None)
@given(trees(most=5))
def test_least_memory_of_random_trees(tree):
    assert [(least_memory(tree).memory, least_memory(tree).work)] == exhaustive_front(tree, recompute=False)


TREES = [trees(most=3, labels="abcd", functions=True), trees(most=5, labels="abc"), trees(most=4, labels="abcd")]


@settings(max_examples=25, deadline=None)
@given(some.one_of(TREES))
def test_front_of_random_trees(tree):
    tiles = {"a": 2, "c": 3}
    result = fusion_front(tree, recompute=True, tiles=tiles)
    assert [(f.memory, f.work) for f in result.fusions] == exhaustive_front(tree, recompute=True, tiles=tiles)


def test_a_search_cut_short_says_so():
    front = fusion_front(a3a(), recompute=True, keep=5)
    assert not front.exact and "cut short" in str(front)
    assert front.fusions[-1].work == FusedTree(a3a()).work


def test_a_function_that_stands_twice_is_made_twice():
    two = (leaf("f", "ab", 0, 9), leaf("f", "bc", 0, 9))
    tree = Tree(TreeNode("R", ("a", "c"), two), four_factors().indices)
    assert list(FusedTree(tree).arrays) == ["f", "f'2", "R"]
    assert least_memory(tree).memory == 100 + 1


def nested(blocks, loops):
    """The pairs of loops (outer, inner) that blocks require, by the definition."""
    levels = [[i for i in range(loops) if block >> i & 1] for block in blocks]
    levels.append([i for i in range(loops) if not sum(blocks) >> i & 1])
    return {(i, j) for k, outer in enumerate(levels) for inner in levels[k + 1 :] for i in outer for j in inner}


@pytest.mark.parametrize("loops", [1, 3, 5])
def test_what_dominates_is_found_among_many(loops):
    """Nestings of random blocks, some of them of all loops, against the definition."""
    rng = random.Random(loops)
    partials = []
    for _ in range(300):
        places = rng.sample(range(loops), rng.randint(0, loops))
        cuts = sorted({0, len(places), *rng.choices(range(len(places) + 1), k=2)})
        blocks = tuple(sum(1 << i for i in places[i:j]) for i, j in pairwise(cuts))
        partials.append(search.Partial("T", 0, blocks, rng.randrange(40), 10 ** rng.randrange(30), ()))
    pairs = [frozenset(nested(one.blocks, loops)) for one in partials]
    expected = {
        (one.memory, one.work, mine)
        for one, mine in zip(partials, pairs)
        if not any(
            (p.memory, p.work, other) != (one.memory, one.work, mine)
            and p.memory <= one.memory
            and p.work <= one.work
            and other <= mine
            for p, other in zip(partials, pairs)
        )
    }
    best = search._best(partials, (1 << loops) - 1)
    assert {(p.memory, p.work, frozenset(nested(p.blocks, loops))) for p in best} == expected
    assert len(expected) == len(best) < 300


def test_loops_that_must_go_on_to_the_consumer():
    for merged, allowed, needed in product([(0b1, 0b110), (0b11, 0b100), ()], [0b11110, 0b11111, 0b101], range(8)):
        if not needed & ~sum(merged):
            every = [blocks for blocks in upward(merged, allowed) if not needed & ~sum(blocks)]
            assert list(upward(merged, allowed, needed)) == every


@pytest.mark.parametrize(
    ("fused", "word"),
    [
        ({"T1": frozenset("bd"), "T2": frozenset("bj")}, "one must hold the other"),
        ({"T1": frozenset("e")}, "cannot share a loop over e"),
        ({"S": frozenset("a")}, "cannot share"),
    ],
)
def test_choices_without_a_loop_nest_are_refused(fused, word):
    with pytest.raises(InputError, match=word):
        FusedTree(four_factors(), fused)


def test_the_printed_table():
    text = str(least_memory(four_factors()))
    assert text.splitlines()[1].split() == ["T1", "b,c,d,f", "scalar", "1", "-", "1e+11"]
    assert text.splitlines()[-1].split()[:2] == ["total", "101"]
