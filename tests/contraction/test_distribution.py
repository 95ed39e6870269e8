"""Placements and moves against counting elements one by one; the search against all assignments of placements."""

from __future__ import annotations

from itertools import product
from math import ceil, prod

import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from tests.contraction.workloads import four_factors, indices, leaf, trees
from trnqc.contraction.distribute.distribution import distribute, restricted
from trnqc.contraction.distribute.placement import (
    COPY,
    FIRST,
    block,
    combined,
    moved,
    placements,
    processors,
    transfers,
)
from trnqc.contraction.tree import Tree, TreeNode, union
from trnqc.errors import InputError
from trnqc.expression.operand import Leaf

EXTENTS = {"a": 5, "b": 3, "c": 4}


def holders(labels, where, grid):
    """Element -> the processors that hold it, each element asked for itself."""
    places = {}
    for element in product(*(range(EXTENTS[x]) for x in labels)):
        places[element] = set()
        for at in processors(grid):
            fits = True
            for entry, place, parts in zip(where, at, grid):
                if entry == FIRST:
                    fits &= place == 0
                elif entry != COPY:
                    value = element[labels.index(entry)]
                    fits &= value // ceil(EXTENTS[entry] / parts) == place
            if fits:
                places[element].add(at)
    return places


@pytest.mark.parametrize("grid", [(2, 2), (3, 2), (4,)])
def test_moves_are_counted_as_by_asking_every_element(grid):
    every = list(placements("ab", len(grid)))
    for source, target in product(every, every):
        have, want = holders("ab", source, grid), holders("ab", target, grid)
        assert moved("ab", EXTENTS, source, target, grid) == sum(len(want[x] - have[x]) for x in want)


@pytest.mark.parametrize("grid", [(2, 2), (3, 2), (4,)])
def test_messages_bring_exactly_what_is_missing(grid):
    every = list(placements("ab", len(grid)))
    for source, target in product(every, every):
        have, want = holders("ab", source, grid), holders("ab", target, grid)
        count = 0
        for sender, receiver, part in transfers("ab", EXTENTS, source, target, grid):
            for element in product(*(range(*interval) for interval in part)):
                assert sender in have[element] and receiver not in have[element] and receiver in want[element]
                have[element].add(receiver)
                count += 1
        assert all(want[element] <= have[element] for element in want)
        assert count == moved("ab", EXTENTS, source, target, grid)


def test_blocks_are_those_of_torch_chunk():
    assert [block(5, 4, k) for k in range(4)] == [(0, 2), (2, 4), (4, 5), (5, 5)]


def test_partial_sums_meet_along_one_dimension():
    # 2 x 3 processors, a along the first; sums over the second: each line of three joins its blocks of a.
    assert combined("a", EXTENTS, ("a", "x"), 1, (2, 3), copy=False) == 5 * 2
    assert combined("a", EXTENTS, ("a", "x"), 1, (2, 3), copy=True) == 5 * 2 * 2
    assert combined("a", EXTENTS, (FIRST, "x"), 1, (2, 3), copy=False) == 5 * 2


def cheapest_by_all_assignments(tree, grid, move_cost):
    """The least cost over a placement of loops, of met sums and of every operand of every step, nothing shared."""
    extents = {label: index.extent for label, index in tree.indices.items()}
    kept: dict = {}

    def move(labels, source, target):
        key = (labels, source, target)
        if key not in kept:
            kept[key] = moved(labels, extents, source, target, grid)
        return kept[key]

    def of(item, target, choice):
        """Cost of having the operand in the placement, under one choice of loops and sums for every step below."""
        if isinstance(item, Leaf):
            labels = union(item.indices)
            return move_cost * min(move(labels, s, target) for s in placements(labels, len(grid), FIRST))
        loops, symbols = choice[item.name]
        along = {entry: grid[d] for d, entry in enumerate(loops)}
        cost = prod(ceil(extents[x] / along.get(x, 1)) for x in item.loops)
        where = loops
        for d, entry in enumerate(loops):
            if entry in item.summed:
                shown = tuple(COPY if e in item.summed else e for e in where)
                cost += move_cost * combined(item.indices, extents, shown, d, grid, symbols[d] == COPY)
                where = (*where[:d], symbols[d], *where[d + 1 :])
        cost += sum(of(o, restricted(loops, union(o.indices)), choice) for o in item.operands)
        return cost + move_cost * move(item.indices, where, target)

    options = [
        [
            (node.name, (loops, s))
            for loops in placements(node.loops, len(grid))
            for s in product("*1", repeat=len(grid))
        ]
        for node in tree.nodes
    ]
    finals = [f for f in placements(tree.root.indices, len(grid)) if FIRST not in f]
    return min(of(tree.root, final, dict(chosen)) for chosen in product(*options) for final in finals)


@pytest.mark.parametrize("grid", [(2,), (2, 2), (2, 4)])
@pytest.mark.parametrize("move_cost", [0.1, 3.0, 100.0])
def test_no_assignment_is_cheaper_for_one_step(grid, move_cost):
    tree = Tree(
        TreeNode("C", ("i", "j"), (leaf("A", "ik", 0), leaf("B", "kj", 1))), indices(I=("i", 6), J=("j", 5), K=("k", 9))
    )
    assert distribute(tree, grid, move_cost).cost == pytest.approx(cheapest_by_all_assignments(tree, grid, move_cost))


@pytest.mark.parametrize(("grid", "extents"), [((2, 2), (6, 4, 9)), ((2,), (3, 20, 4)), ((4,), (8, 2, 16))])
@pytest.mark.parametrize("move_cost", [0.5, 20.0])
def test_no_assignment_is_cheaper_for_two_steps(grid, extents, move_cost):
    inner = TreeNode("T", ("i",), (leaf("A", "ik", 0), leaf("x", "k", 1)))
    tree = Tree(TreeNode("y", ("j",), (leaf("B", "ji", 2), inner)), indices(**dict(zip("IJK", zip("ijk", extents)))))
    assert distribute(tree, grid, move_cost).cost == pytest.approx(cheapest_by_all_assignments(tree, grid, move_cost))


@settings(max_examples=15, deadline=None)
@given(trees(most=4, labels="abc"), some.sampled_from([0.5, 20.0]))
def test_no_assignment_is_cheaper_on_a_line(tree, move_cost):
    assert distribute(tree, (2,), move_cost).cost == pytest.approx(cheapest_by_all_assignments(tree, (2,), move_cost))


def test_costs_are_the_sum_of_work_and_moves():
    distribution = distribute(four_factors(20, 6), (2, 2), 7.0)
    assert distribution.cost == distribution.longest + 7.0 * distribution.volume
    assert distribution.longest == four_factors(20, 6).multiply_adds / 4
    text = str(distribution)
    assert "elements received" in text and text.splitlines()[0].startswith("T1<")


def test_dear_moves_keep_everything_where_it_is():
    tree = four_factors(6, 3)
    assert distribute(tree, (2, 2), 1e9).volume < distribute(tree, (2, 2), 1e-6).volume
    assert distribute(tree, (1, 1)).volume == 0


def test_functions_are_computed_where_they_are_needed():
    tree = Tree(TreeNode("R", ("a",), (leaf("f", "ab", 0, 3), leaf("x", "b", 1))), indices(V=("ab", 8)))
    distribution = distribute(tree, (2,), 1.0)
    assert distribution.steps[0].sources[0] is None
    assert distribution.longest == 3 * 8 * 4 + 8 * 4


def test_a_grid_has_processors():
    with pytest.raises(InputError, match="one or more processors"):
        distribute(four_factors(), (2, 0))
