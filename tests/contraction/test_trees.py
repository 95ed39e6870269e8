"""Orders of chains, rings and trees of operands against exhaustive enumeration and the search over connected parts."""

from __future__ import annotations

import random

import opt_einsum
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as some

from tests.contraction.test_operations import by_enumeration, evaluated, ours
from trnqc.contraction.order import arcs, exact, heuristic, starts, trees
from trnqc.contraction.order.network import LabelNetwork
from trnqc.contraction.order.operations import best_splits, vectors

KINDS = ("chain", "ring", "tree", "comb", "star")


def pairs_of(kind: str, operands: int, rng: random.Random) -> list[tuple[int, int]]:
    """The operands that share a label."""
    if kind == "comb":
        half = operands // 2
        return [(k - 1, k) for k in range(1, half)] + [(k, k + half) for k in range(operands - half) if k < half]
    if kind == "ring":
        return [(k, (k + 1) % operands) for k in range(operands)]
    before = {"chain": lambda k: k - 1, "star": lambda k: 0, "tree": rng.randrange}[kind]
    return [(before(k), k) for k in range(1, operands)]


def network_in_pairs(kind: str, operands: int, kept: float, seed: int, extents=range(2, 65)):
    """A network in which two operands share each label; `kept`: the share of operands with a label of the result."""
    rng = random.Random(seed)
    inputs: list[list[str]] = [[] for _ in range(operands)]
    letters = iter(map(opt_einsum.get_symbol, range(3 * operands)))
    for pair in pairs_of(kind, operands, rng):
        label = next(letters)
        for k in pair:
            inputs[k].append(label)
    output = []
    for k in range(operands):
        if rng.random() < kept:
            output.append(next(letters))
            inputs[k].append(output[-1])
    used = sorted({label for labels in inputs for label in labels})
    rng.shuffle(inputs)
    return ["".join(labels) for labels in inputs], "".join(output), {x: rng.choice(extents) for x in used}


@given(
    some.sampled_from(KINDS),
    some.integers(3, 6),
    some.sampled_from([0, 0.3, 1]),
    some.integers(0, 10**6),
    some.sampled_from([range(1, 4), range(2, 7), range(2, 65), [5]]),
)
@example("tree", 6, 0.3, 700, range(1, 4))  # two operands are vectors, one by a kept label of extent one
@settings(deadline=None, max_examples=120)
def test_no_order_takes_less_work(kind, operands, kept, seed, extents):
    operands += kind == "comb" and operands % 2
    inputs, output, sizes = network_in_pairs(kind, operands, kept, seed, extents)
    assert ours(inputs, output, sizes) == by_enumeration(inputs, output, sizes)


@pytest.mark.parametrize("kept", [0, 0.3, 1])
@pytest.mark.parametrize("kind", ["chain", "ring", "tree", "star"])
def test_no_order_of_seven_operands_takes_less_work(kind, kept):
    inputs, output, sizes = network_in_pairs(kind, 7, kept, 11)
    assert ours(inputs, output, sizes) == by_enumeration(inputs, output, sizes)


@given(
    some.sampled_from(KINDS),
    some.sampled_from([8, 10, 12]),
    some.sampled_from([0, 0.2, 0.5, 1]),
    some.integers(0, 10**6),
    some.sampled_from([range(2, 5), range(2, 65), [2, 4, 8, 16], [7]]),
)
@example("star", 12, 0, 21323, range(2, 65))  # 2e16 multiply-adds
@settings(deadline=None, max_examples=80)
def test_as_good_as_the_search_over_connected_parts(kind, operands, kept, seed, extents):
    network = LabelNetwork.of(*network_in_pairs(kind, operands, kept, seed, extents))
    splits = trees.cheapest(network) or arcs.cheapest(network)
    known = exact.connected(network, network.everything, float("inf"))
    assert splits is not None and known is not None
    cost = network.cost(splits, network.everything)
    # That search counts in fp64, so that it cannot tell orders apart that differ by rounding.
    assert cost <= network.cost(known, network.everything) <= cost * (1 + 1e-12)
    by_arcs = arcs.cheapest(network)
    # The two ends of a chain may be multiplied first, which is an outer product.
    assert by_arcs is None or network.cost(by_arcs, network.everything) <= cost


@pytest.mark.parametrize("kept", [0, 0.25, 1])
@pytest.mark.parametrize("kind", KINDS)
def test_sixty_four_operands(kind, kept):
    """The exact searches come to an end, and no order that other searches find takes less work.

    Which vectors to multiply with each other is searched by trial; that changes the fifth digit of the work at most.
    """
    inputs, output, sizes = network_in_pairs(kind, 64, kept, 5)
    network = LabelNetwork.of(inputs, output, sizes)
    splits = arcs.cheapest(network) or trees.cheapest(network)
    assert splits is not None
    cost = network.cost(best_splits(network), network.everything)
    assert cost <= network.cost(splits, network.everything)
    greedy = heuristic.improve(network, starts.greedy(network, 0), subtree=6)
    known = network.cost(greedy, network.everything)
    assert cost <= (known if len(vectors(network)) < 2 or kind == "chain" else known + known // 10_000)


@pytest.mark.parametrize(("kind", "kept"), [("ring", 0.3), ("chain", 1), ("tree", 0.3), ("comb", 0.5)])
def test_never_more_than_the_search_of_opt_einsum(kind, kept):
    inputs, output, sizes = network_in_pairs(kind, 20, kept, 3)
    sets = [set(labels) for labels in inputs]
    steps = opt_einsum.paths.DynamicProgramming()(sets, set(output), sizes)
    assert ours(inputs, output, sizes) <= evaluated(inputs, output, sizes, steps)


def test_vectors_at_both_ends_are_multiplied_first():
    inputs, output, sizes = ["a", "abc", "b"], "c", {"a": 2, "b": 10, "c": 100}
    network = LabelNetwork.of(inputs, output, sizes)
    splits = arcs.cheapest(network)
    assert splits is not None and network.cost(splits, 7) == 20 + 2000 == by_enumeration(inputs, output, sizes)


@pytest.mark.parametrize("output", ["ah", "ha", "a", ""])
def test_chains_whose_ends_are_summed(output):
    for seed in range(20):
        rng = random.Random(seed)
        inputs = ["ab", "bc", "cd", "de", "ef", "fg", "gh"]
        rng.shuffle(inputs)
        network = LabelNetwork.of(inputs, output, {x: rng.choice([2, 3, 7]) for x in "abcdefgh"})
        splits = arcs.cheapest(network)
        assert splits is not None
        assert network.cost(splits, network.everything) == exact.subsets(network, [1 << k for k in range(7)])[0]


@pytest.mark.parametrize(
    ("inputs", "output"),
    [(["ab", "bc", "cd"], "abd"), (["ab", "bc", "bd"], "acd"), (["ab", "cd", "ef"], "af"), (["ab", "bc"], "ac")],
)
def test_what_is_no_row_is_left_to_the_other_searches(inputs, output):
    assert arcs.cheapest(LabelNetwork.of(inputs, output, dict.fromkeys("abcdef", 3))) is None


@pytest.mark.parametrize(
    ("inputs", "output"),
    [(["ab", "bc", "cd"], "abd"), (["ab", "bc", "bd"], "acd"), (["ab", "bc", "ca"], ""), (["ab", "bc"], "a")],
)
def test_what_is_no_tree_is_left_to_the_other_searches(inputs, output):
    assert trees.cheapest(LabelNetwork.of(inputs, output, dict.fromkeys("abcd", 3))) is None


def test_a_search_out_of_budget_says_nothing():
    inputs, output, sizes = network_in_pairs("comb", 64, 1, 5)
    network = LabelNetwork.of(inputs, output, sizes)
    assert trees.cheapest(network) is not None
    assert trees.cheapest(network, budget=0) is None


def test_numbers_beyond_fp64_are_left_to_the_other_searches():
    inputs, output, _ = network_in_pairs("chain", 13, 1, 0)
    network = LabelNetwork.of(inputs, output, dict.fromkeys({x for labels in inputs for x in labels}, 10**30))
    assert arcs.cheapest(network) is None
    assert network.everything in best_splits(network)
