"""Steps that run once over each symmetric pair: counts, results, and the choice of pairs against all orders."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from itertools import combinations
from math import comb

import numpy as np
import pytest

from trnqc.contraction import einsum_plan
from trnqc.contraction.lower.lowering import lower
from trnqc.contraction.lower.steps import Packed
from trnqc.contraction.order import symmetric_pairs
from trnqc.contraction.order.operations import minimise
from trnqc.contraction.order.symmetric_pairs import packed, spread, symmetric_work, unique, with_pairs
from trnqc.contraction.run.execute import run_steps
from trnqc.expression.operand import Leaf
from trnqc.expression.spaces import Index
from trnqc.expression.symmetry import Symmetry

EVEN, ODD = 1, -1
PAIRS = {"odd": ((0, 1, ODD), (2, 3, ODD)), "even": ((0, 1, EVEN), (2, 3, EVEN)), "crossed": ((0, 2, ODD),), "none": ()}
# expression -> symmetry of each operand
CASES = {
    "ladder": ("abcd,cdij->abij", ("odd", "odd")),
    "even ladder": ("abcd,cdij->abij", ("even", "even")),
    "one operand": ("abcd,cdij->abij", ("odd", "none")),
    "signs that differ": ("abcd,cdij->abij", ("even", "odd")),
    "labels turned": ("bdac,dicj->jbia", ("crossed", "crossed")),
    "to a number": ("abcd,abcd->", ("odd", "odd")),
    "kept by both": ("abcd,abcd->abcd", ("odd", "even")),
    "a pair cut by a third": ("abcd,cdij,ax->xbij", ("odd", "odd", "none")),
    "quadratic": ("klcd,cdij,abkl->abij", ("odd", "odd", "odd")),
}


def extents(inputs, n=5, m=4):
    return {x: (m if x in "ijklx" else n) for labels in inputs for x in labels}


def symmetrised(rng, shape, pairs):
    x = rng.standard_normal(shape)
    for one, two, sign in pairs:
        x = x + sign * x.swapaxes(one, two)
    return x


def example(name, price, square=False):
    text, kinds = CASES[name]
    left, output = text.split("->")
    inputs = left.split(",")
    size = extents(inputs)
    rng = np.random.default_rng(4)
    if any(kind == "crossed" for kind in kinds):
        size = dict.fromkeys(size, 5)
    operands = [symmetrised(rng, [size[x] for x in labels], PAIRS[kind]) for labels, kind in zip(inputs, kinds)]
    leaves = [Leaf(f"x{k}", tuple(labels), k) for k, labels in enumerate(inputs)]
    symmetries = {f"x{k}": tuple(Symmetry((a, b), s) for a, b, s in PAIRS[kind]) for k, kind in enumerate(kinds)}
    indices = {x: Index(x, n, x) for x, n in size.items()}
    tree = minimise(leaves, tuple(output), indices, symmetries=[symmetries[leaf.name] for leaf in leaves])
    return with_pairs(tree, symmetries, price), operands, text, symmetries


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("kind", ["numpy", "torch"])
def test_packed_steps_compute_the_product(name, kind):
    tree, operands, text, _ = example(name, 0)
    expected = np.einsum(text, *operands, optimize=True)
    library = pytest.importorskip(kind)
    values = {f"x{k}": library.asarray(x) for k, x in enumerate(operands)}
    result = np.asarray(run_steps(library, lower(tree), values))
    np.testing.assert_allclose(result, expected, rtol=1e-12, atol=1e-12 * np.abs(expected).max(initial=1))


@pytest.mark.parametrize(
    ("name", "steps"),
    [
        ("ladder", [comb(5, 2) * comb(5, 2) * comb(4, 2)]),
        ("even ladder", [comb(6, 2) * comb(6, 2) * comb(5, 2)]),
        ("one operand", [comb(5, 2) * 5 * 5 * 4 * 4]),
        ("kept by both", [comb(5, 2) ** 2]),
        ("a pair cut by a third", [comb(5, 2) * comb(5, 2) * comb(4, 2), 4 * 5 * 5 * comb(4, 2)]),
    ],
)
def test_pairs_are_run_over_once(name, steps):
    tree, *_ = example(name, 0)
    assert [unique(tree, node.loops, dict(tree.pairs).get(node.name, ())) for node in tree.nodes] == steps


def test_pairs_that_cost_more_to_pack_than_they_save_are_left():
    tree, *_ = example("ladder", 10**6)
    assert tree.pairs == () and not any(isinstance(step.operation, Packed) for step in lower(tree))


def by_all_orders(inputs, output, size, signs):
    """Least passes over all binary trees: sets of labels with their pairs, none of the code under test."""

    def cost(one, two, rest):
        (a, p), (b, q) = one, two
        outside = set(output).union(*(labels for labels, _ in rest))
        result = frozenset((a | b) & outside)
        work, kept, seen = 1, {}, set()
        for x, y in dict(p) | dict(q):
            have = [dict(s).get((x, y)) for s in (p, q)]
            if any(h is None and {x, y} & labels for h, labels in zip(have, (a, b))):
                continue
            sign = (have[0] or 1) * (have[1] or 1)
            if {x, y} <= result or (not {x, y} & result and None not in have and sign == 1):
                one_sign = sign if x in result else have[0]
                work *= comb(size[x], 2) if one_sign < 0 else comb(size[x] + 1, 2)
                seen |= {x, y}
                if x in result:
                    kept[x, y] = sign
        for x in (a | b) - seen:
            work *= size[x]
        return work, (result, tuple(sorted(kept.items())))

    @cache
    def best(tensors):
        if len(tensors) == 1:
            return 0
        collected = []
        for i, j in combinations(range(len(tensors)), 2):
            rest = tuple(t for k, t in enumerate(tensors) if k not in (i, j))
            work, result = cost(tensors[i], tensors[j], rest)
            collected.append(work + best((*rest, result)))
        return min(collected)

    start = tuple((frozenset(labels), tuple(sorted(s.items()))) for labels, s in zip(inputs, signs))
    return best(start)


@pytest.mark.parametrize("sizes", [(5, 4), (4, 7), (9, 3), (8, 9)])
@pytest.mark.parametrize(
    "text",
    [
        "klcd,cdij,abkl->abij",
        "klcd,acik,bdjl->abij",
        "klcd,ci,dj,ak,bl->abij",
        "klcd,ckla,bdij->abij",
    ],
)
def test_the_order_is_the_best_of_all(text, sizes):
    left, output = text.split("->")
    inputs = left.split(",")
    size = extents(inputs, *sizes)
    kinds = ["odd" if len(x) == 4 and size[x[0]] == size[x[1]] and size[x[2]] == size[x[3]] else "none" for x in inputs]
    symmetries = {f"x{k}": tuple(Symmetry((a, b), s) for a, b, s in PAIRS[kind]) for k, kind in enumerate(kinds)}
    leaves = [Leaf(f"x{k}", tuple(labels), k) for k, labels in enumerate(inputs)]
    indices = {x: Index(x, n, x) for x, n in size.items()}
    tree = with_pairs(minimise(leaves, tuple(output), indices, symmetries=list(symmetries.values())), symmetries, 0)
    signs = [
        {(min(x[s.axes[0]], x[s.axes[1]]), max(x[s.axes[0]], x[s.axes[1]])): s.sign for s in symmetries[f"x{k}"]}
        for k, x in enumerate(inputs)
    ]
    assert symmetric_work(tree, 0) == by_all_orders(inputs, output, size, signs)


@pytest.mark.parametrize("sign", [EVEN, ODD])
@pytest.mark.parametrize("axis", [0, 1, 2])
def test_spreading_undoes_packing(sign, axis):
    rng = np.random.default_rng(axis)
    shape = [3, 4, 5]
    shape[axis : axis + 1] = [6, 6]
    x = symmetrised(rng, shape, [(axis, axis + 1, sign)])
    small = packed(np, x, axis, sign, weighted=False)
    assert small.shape[axis] == (15 if sign < 0 else 21)
    np.testing.assert_array_equal(spread(np, small, axis, 6, sign), x)
    heavy = packed(np, x * x, axis, EVEN, weighted=True)
    np.testing.assert_allclose(heavy.sum(axis), (x * x).sum((axis, axis + 1)), rtol=1e-13)


PROGRAM = """
space o = 4
space v = 6
index i j k l : o
index a b c d : v
tensor t[v,v,o,o] antisymmetric(0,1) antisymmetric(2,3)
tensor g[o,o,v,v] antisymmetric(0,1) antisymmetric(2,3)
tensor w[v,v,v,v] antisymmetric(0,1) antisymmetric(2,3)
R[a,b,i,j]  = 1/2 * w[a,b,c,d] * t[c,d,i,j]
R[a,b,i,j] += 1/4 * g[k,l,c,d] * t[c,d,i,j] * t[a,b,k,l]
"""


@pytest.mark.parametrize("price", [0, symmetric_pairs.GATHER])
def test_programs_use_what_their_tensors_declare(monkeypatch, price):
    rng = np.random.default_rng(9)
    arrays = {
        name: symmetrised(rng, shape, PAIRS["odd"])
        for name, shape in {"t": (6, 6, 4, 4), "g": (4, 4, 6, 6), "w": (6, 6, 6, 6)}.items()
    }
    monkeypatch.setattr(symmetric_pairs.with_pairs, "__defaults__", (price,))
    monkeypatch.setattr(symmetric_pairs.symmetric_work, "__defaults__", (price,))
    plan = einsum_plan(PROGRAM)
    expected = np.einsum("abcd,cdij->abij", arrays["w"], arrays["t"]) / 2
    expected += np.einsum("klcd,cdij,abkl->abij", arrays["g"], arrays["t"], arrays["t"], optimize=True) / 4
    np.testing.assert_allclose(plan.run(arrays), expected, rtol=1e-11, atol=1e-11 * np.abs(expected).max())
    assert (plan.unique_multiply_adds < plan.multiply_adds / 4) == (price == 0)
    assert ("a<b" in str(plan)) == ("of these run" in str(plan)) == (price == 0)
    assert plan.to_dict()["unique_multiply_adds"] == plan.unique_multiply_adds
    plain = replace(plan.trees[0], pairs=())
    assert plan.trees[0].multiply_adds == plain.multiply_adds


def test_large_ladders_pay():
    plan = einsum_plan(PROGRAM.replace("o = 4", "o = 20").replace("v = 6", "v = 80"))
    assert plan.unique_multiply_adds < plan.multiply_adds / 7
    assert "over a<b, c<d, i<j" in str(plan)
