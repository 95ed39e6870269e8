"""Steps that run once over each symmetric pair: counts, results, and the choice of pairs against all orders."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace
from functools import cache
from itertools import combinations
from math import comb

import numpy as np
import pytest

from trnqc.contraction import einsum, einsum_plan
from trnqc.contraction.lower.lowering import lower
from trnqc.contraction.lower.steps import Packed, PairLoop
from trnqc.contraction.order import symmetric_pairs
from trnqc.contraction.order.operations import minimise
from trnqc.contraction.order.symmetric_pairs import packed, spread, symmetric_work, unique, with_pairs
from trnqc.contraction.run.execute import run_steps
from trnqc.errors import InputError
from trnqc.expression.operand import Leaf
from trnqc.expression.spaces import Index
from trnqc.expression.symmetry import Symmetry, parse_symmetries

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
    assert tree.pairs == () and not any(isinstance(step.operation, Packed | PairLoop) for step in lower(tree))


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


REAL = ["pqrs = qprs = pqsr", "pqrs = rspq"]
TRANSFORMATION = "pqrs,pi,qa,rj,sb->iajb"


def integrals(rng, n, sign=1):
    """A[p,q,r,s] with the eight exchanges of real integrals, or antisymmetric (sign -1) in each pair."""
    x = symmetrised(rng, (n, n, n, n), [(0, 1, sign), (2, 3, sign)])
    return x + x.transpose(2, 3, 0, 1)


def transformation(equations, sign, n, columns, price=0):
    """The tree of a four-index transformation with these symmetries, and its operands."""
    rng = np.random.default_rng(n)
    operands = [integrals(rng, n, sign), *(rng.standard_normal((n, m)) for m in columns)]
    inputs = TRANSFORMATION.split("->")[0].split(",")
    leaves = [Leaf(f"x{k}", tuple(labels), k) for k, labels in enumerate(inputs)]
    indices = {x: Index(x, m, x) for labels, array in zip(inputs, operands) for x, m in zip(labels, array.shape)}
    exchanges = parse_symmetries({0: equations}, [x.shape for x in operands])
    singles = [tuple(Symmetry(e.pairs[0], e.sign) for e in some if len(e.pairs) == 1) for some in exchanges]
    tree = minimise(leaves, tuple("iajb"), indices, symmetries=singles)
    names = [leaf.name for leaf in leaves]
    declared = dict(zip(names, exchanges))
    return with_pairs(tree, dict(zip(names, singles)), price, exchanges=declared), operands


def turns(tree):
    return [step.operation for step in lower(tree) if isinstance(step.operation, PairLoop)]


@pytest.mark.parametrize("kind", ["numpy", "torch", "jax.numpy"])
@pytest.mark.parametrize("columns", [(2, 5, 2, 5), (7, 7, 7, 7), (1, 1, 3, 4), (9, 2, 2, 9)])
@pytest.mark.parametrize(
    ("equations", "sign"),
    [(REAL, 1), (["pqrs = qprs"], 1), (["pqrs = pqsr"], 1), (["abcd = -bacd = -abdc", "abcd = cdab"], -1)],
)
def test_transformations_run_over_the_pairs_that_lead(kind, columns, equations, sign):
    tree, operands = transformation(equations, sign, 7, columns)
    library = pytest.importorskip(kind)
    if kind == "jax.numpy":
        pytest.importorskip("jax").config.update("jax_enable_x64", True)
    values = {f"x{k}": library.asarray(x) for k, x in enumerate(operands)}
    expected = np.einsum(TRANSFORMATION, *operands, optimize=True)
    result = np.asarray(run_steps(library, lower(tree), values))
    np.testing.assert_allclose(result, expected, rtol=1e-11, atol=1e-11 * np.abs(expected).max())


@pytest.mark.parametrize("n", [1, 2, 3, 13])
def test_every_number_of_functions(n):
    tree, operands = transformation(REAL, 1, n, (2, 1, 3, 2))
    assert bool(turns(tree)) == (n > 1)
    expected = np.einsum(TRANSFORMATION, *operands, optimize=True)
    result = run_steps(np, lower(tree), {f"x{k}": x for k, x in enumerate(operands)})
    np.testing.assert_allclose(result, expected, rtol=1e-11, atol=1e-11 * np.abs(expected).max())


def test_the_exchange_of_pairs_lets_the_other_pair_lead():
    tree, _ = transformation(REAL, 1, 7, (2, 6, 2, 6))
    (first, *_) = turns(tree)
    node = tree.nodes[0]
    (array,) = (leaf for leaf in node.operands if len(leaf.indices) == 4)
    assert set(array.indices[:2]) == {first.pair.first, first.pair.second} <= set(node.indices)
    assert array.indices[3] in node.summed
    assert unique(tree, node.loops, dict(tree.pairs)[node.name]) == comb(8, 2) * 7 * 7 * 2


def test_slices_carry_derivatives():
    torch = pytest.importorskip("torch")
    tree, operands = transformation(REAL, 1, 5, (2, 3, 2, 3))
    assert turns(tree)
    values = {f"x{k}": torch.tensor(x, requires_grad=k == 1) for k, x in enumerate(operands)}
    run_steps(torch, lower(tree), values).square().sum().backward()
    plain = [torch.tensor(x, requires_grad=k == 1) for k, x in enumerate(operands)]
    torch.einsum(TRANSFORMATION, *plain).square().sum().backward()
    torch.testing.assert_close(values["x1"].grad, plain[1].grad, rtol=1e-10, atol=1e-10)


def test_large_transformations_pay():
    n, o = 47, 13
    rng = np.random.default_rng(2)
    orbitals = rng.standard_normal((n, n))
    occupied, virtual = orbitals[:, :o].copy(), orbitals[:, o:].copy()
    operands = integrals(rng, n), occupied, virtual, occupied, virtual
    plan = einsum_plan(TRANSFORMATION, *operands, symmetries={0: REAL})
    assert "in turns over" in str(plan) and plan.unique_multiply_adds < 0.75 * plan.multiply_adds
    result = einsum(TRANSFORMATION, *operands, symmetries={0: REAL})
    expected = einsum(TRANSFORMATION, *operands)
    np.testing.assert_allclose(result, expected, rtol=1e-10, atol=1e-10 * np.abs(expected).max())
    # A limit below the peak of the steps takes loops over tiles, without the pairs.
    for limit in (plan.peak_bytes, plan.peak_bytes // 4):
        limited = einsum(TRANSFORMATION, *operands, symmetries={0: REAL}, memory_limit=limit, max_slowdown=None)
        np.testing.assert_allclose(limited, expected, rtol=1e-10, atol=1e-10 * np.abs(expected).max())


def test_steps_over_pairs_hold_what_the_plan_says():
    rng = np.random.default_rng(2)
    operands = integrals(rng, 47), *(rng.standard_normal((47, 11)) for _ in range(4))
    plan = einsum_plan(TRANSFORMATION, *operands, symmetries={0: REAL})
    assert "in turns over" in str(plan)
    plan.run(*operands)
    tracemalloc.start()
    plan.run(*operands)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    result = 8 * 11**4
    assert peak <= plan.peak_bytes + result + 100_000


def test_elements_that_are_not_finite_are_found_in_the_result():
    rng = np.random.default_rng(2)
    operands = [integrals(rng, 4), *(rng.standard_normal((4, 3)) for _ in range(4))]
    operands[2][1, 1] = np.nan
    with pytest.raises(InputError, match="1 elements that are not finite"):
        einsum(TRANSFORMATION, *operands, symmetries={0: REAL})
    assert np.isnan(einsum(TRANSFORMATION, *operands, symmetries={0: REAL}, check_finite=False)).any()
    operands[2][:] = operands[4][:] = 1e300
    with pytest.warns(RuntimeWarning):
        assert not np.isfinite(einsum(TRANSFORMATION, *operands, symmetries={0: REAL})).all()


@pytest.mark.parametrize("at", [(1, 3, 5, 2), (3, 1, 5, 2), (5, 2, 3, 1), (2, 5, 1, 3)])
def test_elements_that_no_step_reads_have_to_be_finite_too(at):
    """Of (pq|rs) with r < s only one of two equal elements is read."""
    rng, n, o = np.random.default_rng(11), 64, 12
    A, C = rng.random((n,) * 4), rng.random((n, n))
    for exchanged in ("qprs", "pqsr", "rspq"):
        A = A + np.einsum(f"pqrs->{exchanged}", A)
    operands = A, C[:, :o], C[:, o:], C[:, :o], C[:, o:]
    options = {"symmetries": {0: ["pqrs = qprs = pqsr", "pqrs = rspq"]}}
    assert "in turns over" in str(einsum_plan("pqrs,pi,qa,rj,sb->iajb", *operands, **options))
    A[at] = np.nan
    with pytest.raises(InputError, match="1 elements that are not finite"):
        einsum("pqrs,pi,qa,rj,sb->iajb", *operands, **options)
