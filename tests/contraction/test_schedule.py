"""Schedules within a limit: tiles against exhaustive search, measured memory, and the least memory in the error."""

from __future__ import annotations

import re
import tracemalloc
from itertools import product

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as some

from tests.contraction.test_loops import by_einsum, operands_of
from tests.contraction.workloads import a3a, batched_chain, four_factors, four_index, ladder, small_workloads, trees
from trnqc.contraction.lower.lowering import lower
from trnqc.contraction.memory.arena import ArenaPacking
from trnqc.contraction.memory.fusion import fusion_front
from trnqc.contraction.memory.fusion_graph import FusedTree
from trnqc.contraction.memory.schedule import schedule, schedule_within
from trnqc.contraction.memory.tiled_loops import TiledLoops
from trnqc.contraction.memory.tiles import best_tiles, doublings, one_by_one
from trnqc.contraction.run.execute import run_steps
from trnqc.contraction.run.loop_nest import run_schedule
from trnqc.errors import MemoryLimit


@pytest.mark.parametrize("name", small_workloads())
def test_the_limit_holds_down_to_the_least_memory(name):
    tree = small_workloads()[name]
    operands = operands_of(tree)
    expected = by_einsum(tree, operands)
    plain = schedule(tree)
    for share in (0.3, 0.05):
        limit = max(int(plain.memory * share), 20)
        try:
            fitted = schedule(tree, limit, scratch=4)
        except MemoryLimit as error:
            least = int(re.search(r"raise it to (\d+)", str(error)).group(1))
            assert least > limit
            fitted = schedule(tree, least, scratch=4)
            with pytest.raises(MemoryLimit):
                schedule(tree, least - 1, scratch=4)
            limit = least
        assert fitted.memory <= limit
        np.testing.assert_allclose(run_schedule(fitted, operands), expected, rtol=1e-11)


def test_the_least_memory_of_a3a_is_printed():
    with pytest.raises(MemoryLimit, match=r"need 4 elements at least, but the limit is 3"):
        schedule(a3a(), 3)
    assert schedule(a3a(), 4).memory == 4


@pytest.mark.parametrize(
    ("tile", "published"),
    [
        pytest.param(10, 20.4, marks=pytest.mark.slow),
        (20, 5.84),
        pytest.param(32, 2.89, marks=pytest.mark.slow),
        pytest.param(50, 1.77, marks=pytest.mark.slow),
        pytest.param(64, 1.47, marks=pytest.mark.slow),
        pytest.param(100, 1.19, marks=pytest.mark.slow),
    ],
)
def test_a3a_repeats_no_more_work_than_the_published_tiles(tile, published):
    """The paper's schedules: everything fused, four tiles alike. It counts parts of turns, we count whole ones."""
    tree = a3a()
    limit = 2 * tile**4 + 2 * tile**2
    full = FusedTree(tree, fusion_front(tree, recompute=True).fusions[0].fused, dict.fromkeys("aecf", tile))
    assert full.memory == limit and full.work / FusedTree(tree).work == pytest.approx(published, rel=1e-2)
    fitted = schedule(tree, limit, goal="work")
    assert fitted.memory <= limit and fitted.work <= full.work


@pytest.mark.parametrize("cap", [40, 400, 6000])
def test_tiles_are_within_5_percent_of_the_exhaustive_optimum(cap):
    """Of the work of A3A with everything fused, over all 13^4 sizes of the four repeated indices."""
    tree = a3a(13, 3, 50)
    form = TiledLoops(fusion_front(tree, recompute=True).fusions[0])
    sizes = np.array(list(product(range(1, 14), repeat=4)))
    a, e, c, f = sizes.T
    memory = 2 * a * e * c * f + c * e + a * f
    turns = -(-13 // sizes)
    work = 50 * 13**3 * 3 * (turns[:, 0] * turns[:, 3] + turns[:, 1] * turns[:, 2]) + 13**4 * 9 + 13**5 * 3 + 13**4
    optimum = work[memory <= cap].min()
    result, value = best_tiles(form.extents, form.within(cap, "work"))
    assert value <= 1.05 * optimum
    fusion = form.tiled(result).fusion
    assert value == fusion.work and fusion.memory <= cap


@pytest.mark.parametrize("name", small_workloads())
def test_tables_agree_with_the_nests_of_their_rows(name):
    tree = small_workloads()[name]
    rng = np.random.default_rng(2)
    for fusion in fusion_front(tree, recompute=True).fusions[:3]:
        form = TiledLoops(fusion)
        trials = np.array([[rng.integers(1, n + 1) for n in form.extents.values()] for _ in range(8)])
        nests = [form.tiled(dict(zip(form.extents, row.tolist()))) for row in trials]
        assert form.arena(trials).tolist() == [nest.arena for nest in nests]
        assert form.work(trials).tolist() == [nest.fusion.work for nest in nests]


def test_a_roomy_limit_shares_fewer_loops():
    """With a third of the temporaries no form of least memory is as fast as one that shares less."""
    tree = four_index(40, 12)
    room = sum(tree.size(node.indices) for node in tree.temporaries) // 3
    forms = [TiledLoops(fusion) for fusion in fusion_front(tree, recompute=True).fusions]
    tight = min(best_tiles(form.extents, form.within(room, "time"))[1] for form in forms)
    assert estimated_time(schedule(tree, room)) < tight


def estimated_time(fitted):
    """The time of a schedule in the model by which it was chosen."""
    fused = {name: labels for name, labels in fitted.fusion.fused.items() if labels}
    form = TiledLoops(FusedTree(fitted.fusion.tree, fused))
    return form.time(np.array([[fitted.fusion.tile(label) for label in form.extents]]))[0]


@pytest.mark.parametrize(
    ("batch", "extents", "shares"),
    [
        (20, [32] * 13, (0.5, 1.0, 1.5)),
        (7, [50] * 13, (0.5, 1.5)),
        (23, [31, 1, 29, 17, 13, 7, 37, 11, 5, 19, 3, 23, 29], (0.6, 1.1)),
    ],
    ids=["long batch", "short batch", "primes"],
)
def test_loops_of_a_batched_chain_are_no_worse_than_the_best_tile_of_the_batch(batch, extents, shares):
    """A search that keeps loops of one turn finds a shorter tile: their temporaries live longer."""
    tree = batched_chain(batch, *extents)
    form = TiledLoops(FusedTree(tree, {node.name: frozenset("n") for node in tree.temporaries}))
    tiles = np.arange(1, batch + 1)[:, None]
    for share in shares:
        room = int(share * max(tree.size(node.indices) for node in tree.temporaries))
        fitted = schedule(tree, room)
        assert fitted.memory <= room
        assert estimated_time(fitted) <= form.within(room, "time")(tiles).min() < np.inf


def first_fit(order, sizes, lives):
    """Offsets of arrays that take the lowest free range in turn, by trying every element."""
    offsets = {}
    for k in order:
        meet = [j for j in offsets if lives[j][0] <= lives[k][1] and lives[k][0] <= lives[j][1]]
        offsets[k] = next(
            at
            for at in range(sum(sizes) + 1)
            if all(at >= offsets[j] + sizes[j] or at + sizes[k] <= offsets[j] for j in meet)
        )
    return offsets


@settings(max_examples=60, deadline=None)
@given(some.data(), some.integers(0, 6))
def test_arenas_of_many_sizes(data, arrays):
    moments = data.draw(some.permutations(range(2 * arrays)))
    lives = [tuple(sorted(moments[2 * k : 2 * k + 2])) for k in range(arrays)]
    table = [data.draw(some.lists(some.integers(0, 6), min_size=arrays, max_size=arrays)) for _ in range(4)]
    arena = ArenaPacking(lives)
    rows = np.array(table, float).reshape(4, arrays)
    ends = []
    for sizes, offsets in zip(table, arena.offsets(rows)):
        orders = range(arrays), sorted(range(arrays), key=lambda k: -sizes[k])
        tries = [first_fit(order, sizes, lives) for order in orders]
        ends.append(min(max((at + sizes[k] for k, at in places.items()), default=0) for places in tries))
        assert max(offsets + sizes, default=0) == ends[-1]
    assert arena.elements(rows).tolist() == ends
    for room in (0, 5, 12):
        assert arena.fits(rows, room).tolist() == [end <= room for end in ends]


@settings(max_examples=40, deadline=None)
@given(some.lists(some.integers(1, 25), min_size=1, max_size=3), some.integers(0, 3), some.integers(1, 2000))
def test_tiles_of_a_separable_cost(extents, seed, cap):
    """The cost of a blocked product: every operand is read again for each tile of the index that it lacks."""
    extents = dict(zip("ijk", extents))
    weight = dict(zip("ijk", np.random.default_rng(seed).integers(1, 50, 3)))

    def cost(tiles):
        if np.prod(list(tiles.values())) > cap:
            return None
        return float(sum(weight[x] * -(-extents[x] // n) for x, n in tiles.items()))

    every = [dict(zip(extents, sizes)) for sizes in product(*(range(1, n + 1) for n in extents.values()))]
    optimum = min(value for tiles in every if (value := cost(tiles)) is not None)
    assert best_tiles(extents, one_by_one(tuple(extents), cost))[1] <= 1.05 * optimum


def test_no_tiles_where_nothing_fits():
    assert best_tiles({"a": 4}, one_by_one("a", lambda tiles: None)) is None
    assert best_tiles({}, one_by_one("", lambda tiles: 3.0)) == ({}, 3.0)
    assert doublings(1) == [1] and doublings(8) == [1, 2, 4, 8] and doublings(9) == [1, 2, 4, 8, 9]


@settings(max_examples=10, deadline=None)
@given(trees(most=4, labels="abcd", functions=True), some.integers(4, 60))
def test_any_tree_within_any_limit(tree, limit):
    operands = operands_of(tree)
    try:
        fitted = schedule(tree, limit, scratch=2)
    except MemoryLimit as error:
        least = int(re.search(r"raise it to (\d+)", str(error)).group(1))
        assume(least < 10_000)
        fitted = schedule(tree, least, scratch=2)
        limit = least
    assert fitted.memory <= limit
    np.testing.assert_allclose(run_schedule(fitted, operands), by_einsum(tree, operands), rtol=1e-11)


@pytest.mark.parametrize("tree", [ladder(4, 40, 50), four_index(36), four_factors(32, 6)], ids=["ladder", "AO", "four"])
def test_the_measured_peak_is_below_a_tenth_of_the_temporaries(tree):
    limit = sum(tree.size(node.indices) for node in tree.temporaries) // 10
    fitted = schedule_within(tree, limit)
    operands = operands_of(tree)
    out = np.empty([tree.extent(label) for label in tree.root.indices])
    run_schedule(fitted, operands, out)
    tracemalloc.start()
    run_schedule(fitted, operands, out)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert fitted.memory <= limit and peak <= 8 * limit
    assert fitted.work == tree.multiply_adds
    np.testing.assert_allclose(out, run_steps(np, lower(tree), operands), rtol=1e-10)


def test_the_printed_schedule():
    text = str(schedule(four_factors(), 10_000))
    assert "tiles: " in text and "elements in one arena" in text and "for b in 0..99" in text
