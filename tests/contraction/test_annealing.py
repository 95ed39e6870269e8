"""Orders of large networks: starts, and annealing from them."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from trnqc.contraction.order import annealing, heuristic, starts
from trnqc.contraction.order.annealing import annealed
from trnqc.contraction.order.network import LabelNetwork, Splits, bits
from trnqc.contraction.order.starts import best_start, greedy, grown
from trnqc.contraction.time_limit import planning


@some.composite
def networks(draw):
    """Networks of 2 to 20 operands without labels of a single operand; labels of several operands, and kept ones."""
    operands = draw(some.integers(2, 20))
    pair = some.lists(some.integers(0, operands - 1), min_size=2, max_size=4, unique=True)
    holders = draw(some.lists(pair, min_size=1, max_size=30))
    sets = [tuple(f"x{n}" for n, ends in enumerate(holders) if k in ends) for k in range(operands)]
    extents = {f"x{n}": draw(some.integers(1, 5)) for n in range(len(holders))}
    output = draw(some.lists(some.sampled_from(sorted(extents)), unique=True, max_size=3))
    return LabelNetwork.of(sets, output, extents)


def lattice_network(rows: int, columns: int) -> LabelNetwork:
    """One bond of extent 2 between neighbours; operand `columns` * row + column."""
    bonds = [(k, k + columns) for k in range((rows - 1) * columns)]
    bonds += [(k, k + 1) for k in range(rows * columns) if (k + 1) % columns]
    sets = [tuple(f"x{n}" for n, ends in enumerate(bonds) if k in ends) for k in range(rows * columns)]
    return LabelNetwork.of(sets, (), dict.fromkeys((f"x{n}" for n in range(len(bonds))), 2))


def parts_below(splits: Splits, part: int) -> int:
    """The operands of a part, found by its steps; fails if a step does not split its part in two."""
    if part not in splits:
        assert part.bit_count() == 1
        return part
    left, right = splits[part]
    assert left & right == 0
    return parts_below(splits, left) | parts_below(splits, right)


def is_order(network: LabelNetwork, splits: Splits) -> bool:
    steps = len(network.operands) - 1
    return len(splits) == steps and parts_below(splits, network.everything) == network.everything


@given(networks(), some.integers(0, 3))
@settings(max_examples=60, deadline=None)
def test_each_start_is_an_order(network, seed):
    for splits in (greedy(network, seed), grown(network, seed % len(network.operands)), best_start(network)):
        assert is_order(network, splits)


@given(networks(), some.floats(0.05, 5))
@settings(max_examples=60, deadline=None)
def test_the_work_is_known_after_any_exchanges(network, temperature):
    tree = annealing._Tree(network, greedy(network, 0))
    for _ in range(5):
        tree.sweep(temperature, random.Random(1))
        splits = tree.splits()
        assert is_order(network, splits)
        assert tree.work() == pytest.approx(math.log2(network.cost(splits, network.everything)), abs=1e-9)


@given(networks())
@settings(max_examples=30, deadline=None)
def test_annealing_never_adds_work(network):
    start = greedy(network, 0)
    splits = annealed(network, start)
    assert is_order(network, splits)
    assert network.cost(splits, network.everything) <= network.cost(start, network.everything)


def test_a_lattice_is_swept_from_one_end():
    """Twelve rows of four: a cut between two rows crosses four bonds, and one within a row five."""
    network = lattice_network(12, 4)
    splits = grown(network, 0)
    assert all(network.kept(part).bit_count() <= 6 for part in splits)
    assert network.cost(splits, network.everything) < network.cost(greedy(network, 0), network.everything)


def test_annealing_leaves_a_poor_order_behind():
    """A part that grows along the first of four columns, then along the next one, keeps up to 13 bonds."""
    network = lattice_network(12, 4)
    rows: list[int] = sorted(range(48), key=lambda k: (k % 4, k // 4))
    start: Splits = {}
    part = 1 << rows[0]
    for k in rows[1:]:
        start[part | 1 << k] = part, 1 << k
        part |= 1 << k
    before, after = (network.cost(s, network.everything) for s in (start, annealed(network, start)))
    assert before > 100 * after


def test_the_same_order_each_time():
    network = lattice_network(6, 6)
    assert heuristic.search(network) == heuristic.search(network)


def test_without_time_the_start_remains():
    network = lattice_network(6, 6)
    start = greedy(network, 0)
    with planning(0.0) as clock:
        assert best_start(network) == start
        assert annealed(network, start) == start
    assert clock.omitted == ("greedy orders", annealing.ANNEALING)


def test_more_work_is_worth_more_sweeps():
    assert annealing._sweeps(0.0) == annealing.FEWEST
    assert annealing._sweeps(math.log2(4000 * annealing.FOR_A_SWEEP)) == pytest.approx(4000)
    assert annealing._sweeps(5000.0) == annealing.MOST


def test_an_extent_of_zero():
    network = LabelNetwork.of(["ab", "bc", "cd", "da"], "", {"a": 0, "b": 3, "c": 2, "d": 2})
    start = greedy(network, 0)
    assert annealed(network, start) == start


def test_parts_without_common_labels_grow_one_after_another():
    network = LabelNetwork.of(["ab", "b", "cd", "d", "a", "c"], "", dict.fromkeys("abcd", 3))
    first = next(part for part in grown(network, 0) if part.bit_count() == 3)
    assert set(bits(first)) == {0, 1, 4}
    assert starts._farthest(network, 4) == 1
