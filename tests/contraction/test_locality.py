"""The model of data movement: closed forms, blocks against exhaustive search, order against a simulated cache."""

from __future__ import annotations

from collections import OrderedDict
from itertools import product

import numpy as np
import pytest

from tests.contraction.workloads import four_factors, indices, ladder, leaf
from trnqc.contraction.memory.fusion import least_memory
from trnqc.contraction.memory.fusion_graph import FusedTree
from trnqc.contraction.memory.locality import MemoryLevel, Repeat, blocked, body_of, inner_lengths, loads, plan_blocks
from trnqc.contraction.memory.loop_nest import nest_of
from trnqc.contraction.memory.tiles import best_tiles, one_by_one
from trnqc.contraction.tree import Tree, TreeNode
from trnqc.errors import InputError


def product_nest(i, j, k):
    tree = Tree(
        TreeNode("C", ("i", "j"), (leaf("A", "ik", 0), leaf("B", "kj", 1))), indices(I=("i", i), J=("j", j), K=("k", k))
    )
    return nest_of(FusedTree(tree))


def test_a_matrix_product_without_blocks():
    body = body_of(product_nest(20, 30, 40))
    assert inner_lengths(body) == {"i": 20, "j": 30, "k": 40}
    # Everything fits; a row of A with all of B; a row and a column; a single element of each.
    everything = 20 * 30 + 20 * 40 + 40 * 30
    assert loads(body, everything) == everything
    assert loads(body, everything - 1) == 20 * (30 + 40 + 40 * 30)
    assert loads(body, 30 + 40 + 40 * 30 - 1) == 20 * 30 * (1 + 40 + 40)
    assert loads(body, 2) == 20 * 30 * 40 * 3


def test_blocks_load_each_operand_once_per_block_it_lacks():
    body = blocked(body_of(product_nest(20, 30, 40)), {"i": 10, "j": 15, "k": 40})
    # Row blocks of A stay beside one column block of B.
    assert loads(body, 10 * 40 + 40 * 15 + 10 * 15) == 2 * 2 * (10 * 40 + 40 * 15 + 10 * 15)


def lru_loads(body, capacity):
    """Run the loops element by element through a memory that drops what was used longest ago."""
    memory: OrderedDict[tuple, None] = OrderedDict()
    count = 0

    def run(part, place):
        nonlocal count
        if isinstance(part, Repeat):
            for turn in range(part.turns):
                for child in part.body:
                    # Positions along one label are written by the loops over it, outermost first.
                    run(child, place | {part.label: (*place.get(part.label, ()), turn)})
            return
        for name, labels in part.arrays:
            key = (name, *(place.get(label) for label in labels))
            if key in memory:
                memory.move_to_end(key)
            else:
                count += 1
                memory[key] = None
                if len(memory) > capacity:
                    memory.popitem(last=False)

    for part in body:
        run(part, {})
    return count


SLOW = pytest.mark.slow


@pytest.mark.parametrize("capacity", [pytest.param(30, marks=SLOW), 120, pytest.param(250, marks=SLOW)])
def test_the_model_bounds_and_orders_what_a_real_memory_loads(capacity):
    body = body_of(product_nest(16, 16, 16))
    trials = [blocked(body, dict(zip("ijk", sizes))) for sizes in product([1, 4, 8, 16], repeat=3)]
    model = np.array([loads(trial, capacity) for trial in trials])
    real = np.array([lru_loads(trial, capacity) for trial in trials])
    assert (real <= model).all()
    assert np.corrcoef(np.log(model), np.log(real))[0, 1] > 0.5
    assert real[model.argmin()] < np.median(real)


@pytest.mark.parametrize("capacity", [50, 300, 1500])
@pytest.mark.parametrize("shape", [(23, 17, 31), (40, 8, 19)])
def test_blocks_are_within_5_percent_of_the_exhaustive_optimum(shape, capacity):
    body = body_of(product_nest(*shape))
    optimum = min(
        loads(blocked(body, dict(zip("ijk", sizes))), capacity) for sizes in product(*(range(1, n + 1) for n in shape))
    )
    result = plan_blocks(product_nest(*shape), [MemoryLevel("cache", capacity)])
    assert result.rows[0][2] <= 1.05 * optimum


@pytest.mark.parametrize("capacity", [100, 1000])
def test_blocks_of_a_fused_nest(capacity):
    """Two steps share the loops over b and c; sizes that are even are all there is to try."""
    body = body_of(nest_of(least_memory(four_factors(6, 3))))
    lengths = inner_lengths(body)
    result = best_tiles(lengths, one_by_one(tuple(lengths), lambda t: float(loads(blocked(body, t), capacity))))
    grids = [[d for d in range(1, n + 1) if n % d == 0] for n in lengths.values()]
    optimum = min(loads(blocked(body, dict(zip(lengths, sizes))), capacity) for sizes in product(*grids))
    assert result[1] <= 1.05 * optimum


def test_a_temporary_that_lost_an_index_is_not_loaded_again():
    """W[e,f] of the ladder is made and used within one turn of a and b."""
    tree = ladder(2, 6, 5)
    fused = body_of(nest_of(FusedTree(tree, {"W": frozenset("ab")})))
    plain = body_of(nest_of(FusedTree(tree)))
    capacity = 150
    assert loads(fused, capacity) < loads(plain, capacity) - 6**4


def test_levels_are_blocked_from_large_to_small():
    result = plan_blocks(product_nest(200, 200, 200), [MemoryLevel("RAM", 20_000, 10.0), MemoryLevel("cache", 500)])
    (_, outer, ram), (_, inner, cache) = result.rows
    assert ram < cache
    assert all(inner.get(x, outer.get(x, 200)) <= outer.get(x, 200) for x in "ijk")
    assert result.cost == 10 * ram + cache and "RAM: " in str(result)
    # Blocks of three squares in a capacity C: every multiply-add loads 3 / sqrt(C / 3) elements.
    assert cache < 1.2 * 3 * 200**3 / np.sqrt(500 / 3)


def test_levels_must_shrink():
    with pytest.raises(InputError, match="large to small"):
        plan_blocks(product_nest(2, 2, 2), [MemoryLevel("cache", 10), MemoryLevel("RAM", 100)])
