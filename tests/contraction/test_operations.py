"""Operation minimisation against published closed forms, exhaustive enumeration and the peers' planners."""

from __future__ import annotations

import random
from functools import cache

import cotengra
import opt_einsum
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from trnqc.contraction.cost.counts import MonomialSum
from trnqc.contraction.order import exact, heuristic, starts
from trnqc.contraction.order.network import LabelNetwork
from trnqc.contraction.order.operations import best_splits, minimise, network_of
from trnqc.contraction.order.paths import path, splits_of
from trnqc.contraction.tree import union
from trnqc.errors import InputError
from trnqc.expression.operand import Leaf
from trnqc.expression.spaces import Index
from trnqc.expression.subscripts import operand_name
from trnqc.expression.symmetry import Symmetry

CHEMICAL = dict.fromkeys("ijklmn", 30) | dict.fromkeys("abcdef", 300) | dict.fromkeys("KQ", 1000)
THC = dict.fromkeys("pqrs", 900) | dict.fromkeys("ijkl", 30) | dict.fromkeys("abcd", 300)
# name -> expression, extents, multiply-adds of the best tree as powers of extents.
WORKLOADS = {
    "four factors": ("acik,befl,dfjk,cdel->abij", dict.fromkeys("abcdefijkl", 10), 3 * 10**6),
    "pp ladder": ("abef,efij->abij", CHEMICAL, 300**4 * 30**2),
    "quadratic ring": ("klcd,acik,bdjl->abij", CHEMICAL, 2 * 30**3 * 300**3),
    "quadratic ladder": ("klcd,cdij,abkl->abij", CHEMICAL, 2 * 30**4 * 300**2),
    "fitted ladder": ("Qae,Qbf,efij->abij", CHEMICAL, 300**4 * (1000 + 30**2)),
    "dressed integrals": ("klcd,ci,dj,ak,bl->abij", CHEMICAL, 2 * (30**3 * 300**2 + 30**4 * 300)),
    "fitted pairs": ("Qia,Qjb->iajb", CHEMICAL, 1000 * (30 * 300) ** 2),
    "transformation": ("pqrs,pa,qb,rc,sd->abcd", dict.fromkeys("pqrsabcd", 200), 4 * 200**5),
    "hypercontraction": (
        "ip,ap,pq,jq,bq,ir,ar,rs,js,bs->",
        THC,
        2 * (30 + 300) * 900**2 + 2 * 900**2 + 2 * 900**3 + 900 * 30,
    ),
    "hypercontraction, exchange": ("ip,ap,pq,jq,bq,ir,br,rs,js,as->", THC, None),
}


def evaluated(inputs, output, extents, steps) -> int:
    """The multiply-adds of someone's path, by our rules."""
    network = LabelNetwork.of(inputs, output, extents)
    return network.cost(splits_of(list(steps), len(inputs)), network.everything)


def ours(inputs, output, extents) -> int:
    network = LabelNetwork.of(inputs, output, extents)
    return network.cost(best_splits(network), network.everything)


def by_enumeration(inputs, output, extents, symmetries=()) -> int:
    """The least cost over all binary trees: every order of merges of pairs, on sets of labels, no shared code."""

    def size(labels):
        n = 1
        for label in labels:
            n *= extents[label]
        return n

    def ways(tensors, k):
        others = set(output).union(*(t for i, t in enumerate(tensors) if i != k))
        return [(tensors[k], 0), (tensors[k] & others, size(tensors[k]))]

    @cache
    def best(tensors):
        if len(tensors) == 1:
            return 0
        collected = []
        for i in range(len(tensors)):
            for j in range(i):
                rest = tuple(t for k, t in enumerate(tensors) if k not in (i, j))
                outside = set(output).union(*rest)
                for a, x in ways(tensors, i):
                    for b, y in ways(tensors, j):
                        merged = frozenset((a | b) & outside)
                        collected.append(x + y + size(a | b) + best((*rest, merged)))
        return min(collected)

    return best(tuple(frozenset(labels) for labels in inputs))


@pytest.mark.parametrize("name", WORKLOADS)
def test_workloads_take_the_known_least_work(name):
    expression, extents, known = WORKLOADS[name]
    left, output = expression.split("->")
    inputs = left.split(",")
    leaves = [Leaf(operand_name(k), tuple(labels), k) for k, labels in enumerate(inputs)]
    tree = minimise(leaves, tuple(output), {x: Index(x, n, x) for x, n in extents.items()})
    assert tree.multiply_adds == ours(inputs, output, extents)
    if known is not None:
        assert tree.multiply_adds == known
    if len(inputs) < 6:
        assert tree.multiply_adds == by_enumeration(inputs, output, extents)
    assert sorted(leaf.operand for leaf in tree.leaves) == list(range(len(inputs)))


def test_the_four_factors_in_symbols():
    leaves = [Leaf(n, tuple(x), k) for k, (n, x) in enumerate(zip("ABCD", ("acik", "befl", "dfjk", "cdel")))]
    tree = minimise(leaves, tuple("abij"), {x: Index(x, 10, "N") for x in "abcdefijkl"})
    assert tree.operations == 6 * MonomialSum.symbol("N", 6)
    assert [sorted(node.indices) for node in tree.temporaries] == [list("bcdf"), list("bcjk")]


def test_growth_follows_the_factorised_transformation():
    """Five powers of N, not eight."""
    costs = [ours(["pqrs", "pa", "qb", "rc", "sd"], "abcd", dict.fromkeys("pqrsabcd", n)) for n in (8, 16)]
    assert costs[1] == 2**5 * costs[0]


def test_the_ladder_depends_on_the_extents():
    """(v t) t while there are few occupied indices, v (t t) when there are many."""
    inputs = ["klcd", "cdij", "abkl"]
    few, many = (dict.fromkeys("ijkl", o) | dict.fromkeys("abcd", v) for o, v in ((3, 20), (20, 3)))
    trees = [
        minimise([Leaf(n, tuple(x), k) for k, (n, x) in enumerate(zip("vst", inputs))], tuple("abij"), sized(extents))
        for extents in (few, many)
    ]
    assert [sorted(tree.temporaries[0].indices) for tree in trees] == [list("ijkl"), list("abcd")]


def sized(extents):
    return {label: Index(label, extent, label) for label, extent in extents.items()}


@some.composite
def networks(draw, most=5, widest=3):
    """Labels may stand in any number of operands, be alone, be kept everywhere; operands may share nothing."""
    labels = draw(some.lists(some.sampled_from("abcdefg"), min_size=1, max_size=7, unique=True))
    count = draw(some.integers(2, most))
    operand = some.lists(some.sampled_from(labels), max_size=widest, unique=True).map("".join)
    inputs = draw(some.lists(operand, min_size=count, max_size=count))
    used = sorted(union(*inputs))
    output = "".join(draw(some.lists(some.sampled_from(used), unique=True))) if used else ""
    return inputs, output, {label: draw(some.integers(1, 6)) for label in used}


@given(networks())
@settings(deadline=None, max_examples=150)
def test_no_binary_tree_takes_less_work(network):
    inputs, output, extents = network
    assert ours(inputs, output, extents) == by_enumeration(inputs, output, extents)


@given(networks(most=7, widest=4))
@settings(deadline=None, max_examples=60)
def test_never_more_than_the_peers(network):
    inputs, output, extents = network
    sets = [set(labels) for labels in inputs]
    mine = ours(inputs, output, extents)
    assert mine <= evaluated(inputs, output, extents, opt_einsum.paths.DynamicProgramming()(sets, set(output), extents))
    assert mine <= evaluated(inputs, output, extents, opt_einsum.paths.optimal(sets, set(output), extents))


@given(networks(most=7, widest=4))
@settings(deadline=None, max_examples=60)
def test_the_tree_costs_what_the_search_said(network):
    inputs, output, extents = network
    leaves = [Leaf(operand_name(k), tuple(labels), k) for k, labels in enumerate(inputs)]
    tree = minimise(leaves, tuple(output), sized(extents))
    assert tree.multiply_adds == ours(inputs, output, extents)
    steps = path(inputs, output, extents)
    assert evaluated(inputs, output, extents, steps) == tree.multiply_adds
    assert set(tree.root.indices) == set(output)


def random_network(operands: int, degree: int, seed: int, hyper: bool = False):
    """A connected random network: a spanning tree, then edges (of three ends where hyper) up to the degree."""
    rng = random.Random(seed)
    inputs: list[list[str]] = [[] for _ in range(operands)]
    ends = [(k, rng.randrange(k)) for k in range(1, operands)]
    while 2 * len(ends) < operands * degree:
        ends.append(tuple(rng.sample(range(operands), 3 if hyper and rng.random() < 0.3 else 2)))
    letters = [opt_einsum.get_symbol(k) for k in range(len(ends) + 2)]
    for label, group in zip(letters, ends):
        for k in group:
            inputs[k].append(label)
    output = letters[len(ends) :]
    for label in output:
        inputs[rng.randrange(operands)].append(label)
    return ["".join(labels) for labels in inputs], "".join(output), {x: rng.randint(2, 7) for x in letters}


CORPUS = [
    (n, degree, seed, hyper)
    for n, degree in ((4, 2), (8, 3), (12, 3), (13, 3), (17, 3), (20, 2))
    for seed in (1, 2, 3)
    for hyper in (False, True)
]


@pytest.mark.parametrize(("operands", "degree", "seed", "hyper"), CORPUS)
def test_corpus_of_random_networks(operands, degree, seed, hyper):
    inputs, output, extents = random_network(operands, degree, seed, hyper)
    sets = [set(labels) for labels in inputs]
    mine = ours(inputs, output, extents)
    assert mine <= evaluated(inputs, output, extents, opt_einsum.paths.DynamicProgramming()(sets, set(output), extents))
    greedy = cotengra.RandomGreedyOptimizer(max_repeats=32, seed=seed, parallel=False, accel=False)
    assert mine <= evaluated(inputs, output, extents, greedy(sets, set(output), extents))


@pytest.mark.slow
@pytest.mark.parametrize(("operands", "degree"), [(24, 3), (30, 2), (30, 3), (30, 4)])
@pytest.mark.parametrize("seed", [1, 2])
def test_corpus_of_large_random_networks(operands, degree, seed):
    inputs, output, extents = random_network(operands, degree, seed)
    sets = [set(labels) for labels in inputs]
    mine = ours(inputs, output, extents)
    if operands * degree <= 90:
        dp = opt_einsum.paths.DynamicProgramming()(sets, set(output), extents)
        assert mine <= evaluated(inputs, output, extents, dp)
    hyper = cotengra.HyperOptimizer(
        methods=["greedy"],
        max_repeats=64,
        reconf_opts={},
        parallel=False,
        progbar=False,
        optlib="random",
        minimize="flops",
    )
    assert mine <= evaluated(inputs, output, extents, hyper(sets, set(output), extents))


def test_the_two_exact_searches_agree():
    for seed in range(6):
        inputs, output, extents = random_network(9, 3, seed, hyper=bool(seed % 2))
        network = LabelNetwork.of(inputs, output, extents)
        result = exact.subsets(network, [1 << k for k in range(9)])
        splits = exact.connected(network, network.everything, float("inf"))
        assert result is not None and splits is not None
        assert result[0] == network.cost(result[1], network.everything)
        # Outer products may pay; a plan without them is never better.
        assert result[0] <= network.cost(splits, network.everything)


def test_a_search_out_of_budget_says_nothing():
    inputs, output, extents = random_network(14, 4, 1)
    network = LabelNetwork.of(inputs, output, extents)
    assert exact.connected(network, network.everything, float("inf"), budget=50) is None
    assert exact.connected(network, network.everything, 1.0) is None


@pytest.mark.parametrize(("operands", "seed"), [(22, 710161), pytest.param(23, 216783, marks=pytest.mark.slow)])
def test_best_trees_without_parts_of_some_size(operands, seed):
    """No part of some size is worth having here, while larger ones made of smaller ones are."""
    inputs, output, extents = random_network(operands, 3, seed, hyper=True)
    dp = opt_einsum.paths.DynamicProgramming()([set(labels) for labels in inputs], set(output), extents)
    assert ours(inputs, output, extents) <= evaluated(inputs, output, extents, dp)


def test_improving_never_makes_a_plan_worse():
    inputs, output, extents = random_network(22, 3, 5)
    network = LabelNetwork.of(inputs, output, extents)
    for seed in range(4):
        start = starts.greedy(network, seed)
        better = heuristic.improve(network, start, subtree=6)
        assert network.cost(better, network.everything) <= network.cost(start, network.everything)


def test_parts_that_share_nothing():
    inputs = ["ab", "bc"] * 4 + ["de", "ef", "fg"] * 2 + ["h"]
    extents = dict(zip("abcdefgh", (2, 3, 4, 5, 2, 3, 4, 6)))
    sets = [set(labels) for labels in inputs]
    dp = opt_einsum.paths.DynamicProgramming()(sets, set("adh"), extents)
    assert ours(inputs, "adh", extents) <= evaluated(inputs, "adh", extents, dp)


def test_extents_of_zero_and_one():
    assert ours(["ab", "bc", "cd"], "ad", {"a": 0, "b": 3, "c": 1, "d": 2}) == by_enumeration(
        ["ab", "bc", "cd"], "ad", {"a": 0, "b": 3, "c": 1, "d": 2}
    )


def test_a_path_says_when_the_limit_is_too_small():
    args = (["ab", "bc", "cd"], "ad", dict.fromkeys("abcd", 10))
    assert path(*args, memory_limit=100)
    with pytest.raises(InputError, match="100 elements; the limit is 99"):
        path(*args, memory_limit=99)
    with pytest.raises(InputError, match="at least one operand"):
        path([], "", {})


PAIRS = (Symmetry((0, 1), -1), Symmetry((2, 3), -1))


def test_antisymmetric_pairs_are_counted_once():
    """Ladder over unique pairs: (v choose 2)^2 (o choose 2) passes; loops that no operand pair shares stay whole."""
    o, v = 4, 7
    extents = dict.fromkeys("ijkl", o) | dict.fromkeys("abcd", v)
    ladder = LabelNetwork.of(["abcd", "cdij"], "abij", extents, [PAIRS, PAIRS])
    assert ladder.cost({3: (1, 2)}, 3) == 21 * 21 * 6
    ring = LabelNetwork.of(["akic", "bcjk"], "abij", extents, [(), PAIRS])
    assert ring.cost({3: (1, 2)}, 3) == o**3 * v**3
    mixed = LabelNetwork.of(["abcd", "cdij"], "abij", extents, [PAIRS, ()])
    assert mixed.cost({3: (1, 2)}, 3) == 21 * v * v * o * o


def test_symmetric_groups_of_three():
    extents = dict.fromkeys("abcx", 5)
    network = LabelNetwork.of(["abcx", "abc"], "x", extents, [(Symmetry((0, 1, 2)),), (Symmetry((0, 1, 2), -1),)])
    assert network.cost({3: (1, 2)}, 3) == 10 * 5
    network = LabelNetwork.of(["abcx", "abc"], "x", extents, [(Symmetry((0, 1, 2)),), (Symmetry((0, 1, 2)),)])
    assert network.cost({3: (1, 2)}, 3) == 35 * 5


def test_symmetry_can_change_the_order():
    """Pairs make the ladder's first product cheaper than the other order, which costs less without them."""
    inputs, extents = ["klcd", "cdij", "abkl"], dict.fromkeys("ijkl", 8) | dict.fromkeys("abcd", 9)
    plain = LabelNetwork.of(inputs, "abij", extents)
    paired = LabelNetwork.of(inputs, "abij", extents, [PAIRS] * 3)
    cost = paired.cost(best_splits(paired), 7)
    assert cost == 28 * 28 * 36 + 36 * 28 * 28
    assert plain.cost(best_splits(plain), 7) > 4 * cost


@pytest.mark.parametrize(("extent", "pairs"), [(2, heuristic.LEAST_PAIRS), (1000, heuristic.MOST_PAIRS)])
def test_the_exact_search_is_no_longer_than_a_small_product_is_worth(monkeypatch, extent, pairs):
    """A tree of 14 matrices; with extent 2 it takes some hundred multiply-adds."""
    branches = [(str(k // 2), str(k + 1)) for k in range(14)]
    allowed = []

    def connected(network, part, bound, budget):
        allowed.append(budget)
        return exact.connected(network, part, bound, budget)

    monkeypatch.setattr(heuristic, "connected", connected)
    leaves_of_tree = {str(k) for k in range(15)} - {x for x, _ in branches}
    network = network_of(branches, sorted(leaves_of_tree)[:3], {str(k): extent for k in range(15)}, ())
    assert network.everything in best_splits(network)
    assert allowed == [pairs]
