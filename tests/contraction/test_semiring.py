"""Contractions in semirings against direct evaluation, and shortest paths against SciPy."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import scipy.sparse.csgraph
from hypothesis import given, settings
from hypothesis import strategies as some

import trnqc
from trnqc.contraction import Semiring
from trnqc.contraction import semiring as semirings
from trnqc.errors import ArgumentError, InputError, UnsupportedError

NAMES = list(semirings.SEMIRINGS)


def directly(subscripts, arrays, name):
    """Sum the products over all values of all labels, one by one."""
    ring = semirings.SEMIRINGS[name]
    left, output = subscripts.split("->")
    inputs = left.split(",")
    extents = {x: n for labels, array in zip(inputs, arrays) for x, n in zip(labels, array.shape)}
    result = np.full([extents[x] for x in output], ring.zero)
    for values in itertools.product(*(range(n) for n in extents.values())):
        at = dict(zip(extents, values))
        value = ring.one
        for labels, array in zip(inputs, arrays):
            value = ring.multiply(value, array[tuple(at[x] for x in labels)])
        place = tuple(at[x] for x in output)
        result[place] = ring.add(result[place], value)
    return result


def elements(name, shape, seed):
    """Elements of a semiring, zeros among them."""
    rng = np.random.default_rng(seed)
    if name == "or-and":
        return rng.random(shape) < 0.4
    # Whole numbers, so that sums and products are exact in any order.
    values = rng.integers(0 if name == "max-times" else -9, 9, shape).astype(float)
    return np.where(rng.random(shape) < 0.2, semirings.SEMIRINGS[name].zero, values)


EXPRESSIONS = [
    "ij,jk->ik",
    "ij,jk,kl,lm->im",
    "bij,bjk,bkl->bil",
    "ab,b,bc->ac",
    "ab,cd->acbd",
    "ab,ab->ab",
    "ab,ab->",
    "ijk->ki",
    "ijj->i",
    "ab,bc,ca->",
    "aix,ibj,jcy->abc",
]


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("subscripts", EXPRESSIONS)
@given(some.lists(some.sampled_from([1, 2, 3, 5]), min_size=4, max_size=4))
@settings(deadline=None, max_examples=4)
def test_equal_to_direct_evaluation(name, subscripts, sizes):
    inputs = subscripts.split("->")[0].split(",")
    extents = dict(zip(sorted(set("".join(inputs))), [*sizes, 1, 2, 1]))
    arrays = [elements(name, [extents[x] for x in labels], k) for k, labels in enumerate(inputs)]
    result = trnqc.einsum(subscripts, *arrays, semiring=name)
    np.testing.assert_array_equal(result, directly(subscripts, arrays, name))
    assert result.dtype == (bool if name == "or-and" else float)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("z", "m", "n", "k"), [(1, 1, 1, 70_001), (2, 300, 2, 131), (1, 3, 2053, 37), (5000, 2, 3, 4), (1, 130, 131, 127)]
)
def test_more_than_one_block(name, z, m, n, k):
    a, b = elements(name, (z, m, k), 1), elements(name, (z, k, n), 2)
    ring = semirings.SEMIRINGS[name]
    expected = np.full((z, m, n), ring.zero)
    for j in range(k):
        expected = ring.add(expected, ring.multiply(a[:, :, j, None], b[:, None, j]))
    np.testing.assert_array_equal(trnqc.einsum("zmk,zkn->zmn", a, b, semiring=name), expected)


def test_no_block_holds_all_products(monkeypatch):
    held = []

    class Recorded(Semiring):
        def __post_init__(self):
            pass

    def multiply(a, b):
        held.append(np.broadcast(a, b).size)
        return a + b

    ring = Recorded("min-plus", np.minimum, multiply, np.inf, 0.0)
    a, b = np.random.default_rng(0).random((2, 1, 200, 200))
    np.testing.assert_array_equal(ring.matmul(a, b), semirings.SEMIRINGS["min-plus"].matmul(a, b))
    assert sum(held) == 200**3 and max(held) <= semirings.BLOCK


def test_shortest_paths_by_squaring_agree_with_scipy():
    rng = np.random.default_rng(3)
    n = 67
    lengths = np.where(rng.random((n, n)) < 0.05, rng.integers(1, 30, (n, n)), np.inf)
    expected = scipy.sparse.csgraph.shortest_path(np.where(np.isinf(lengths), 0, lengths), method="D")
    np.fill_diagonal(lengths, 0)
    paths = lengths
    for _ in range(n.bit_length()):
        paths = trnqc.einsum("ij,jk->ik", paths, paths, semiring="min-plus")
    np.testing.assert_array_equal(paths, expected)
    # Paths of four edges at most, as one network.
    four = trnqc.einsum("ij,jk,kl,lm->im", *[lengths] * 4, semiring="min-plus")
    two = (lengths[:, :, None] + lengths).min(1)
    np.testing.assert_array_equal(four, (two[:, :, None] + two).min(1))
    reached = trnqc.einsum("ij,jk->ik", np.isfinite(paths), np.isfinite(paths), semiring="or-and")
    np.testing.assert_array_equal(reached, np.isfinite(expected))


def test_the_best_sequence_of_a_hidden_markov_model():
    rng = np.random.default_rng(5)
    start, steps = rng.random(4), [rng.random((4, 4)) for _ in range(6)]
    operands = ",".join(["a", "ab", "bc", "cd", "de", "ef", "fg"])
    best = trnqc.einsum(operands + "->", start, *steps, semiring="max-times")
    logs = trnqc.einsum(operands + "->", np.log(start), *map(np.log, steps), semiring="max-plus")
    score = start
    for step in steps:
        score = (score[:, None] * step).max(0)
    np.testing.assert_allclose([best, np.exp(logs)], score.max(), rtol=1e-13)


def test_nothing_to_sum_is_the_zero():
    assert (
        trnqc.einsum("ij,jk->ik", np.ones((2, 0)), np.ones((0, 3)), semiring="min-plus").tolist() == [[np.inf] * 3] * 2
    )
    assert trnqc.einsum("ij->i", np.ones((2, 0)), semiring="max-plus").tolist() == [-np.inf] * 2


def test_types_and_paths():
    a = np.array([[1, 2], [3, 4]])
    assert trnqc.einsum("ij,jk->ik", a, a, semiring="min-plus").tolist() == [[2, 3], [4, 5]]
    assert trnqc.einsum(a, [0, 1], a, [1, 2], [0, 2], semiring="min-plus").dtype == np.float64
    assert trnqc.einsum("ij,jk->ik", a.astype("f4"), a.astype("f4"), semiring="max-times").dtype == np.float32
    path = [(0, 1), (0, 1)]
    expected = trnqc.einsum("ij,jk,kl->il", a, a, a, semiring="min-plus")
    np.testing.assert_array_equal(trnqc.einsum("ij,jk,kl->il", a, a, a, semiring="min-plus", optimize=path), expected)


def test_own_semirings():
    rng = np.random.default_rng(7)
    a, b = rng.random((3, 5)), rng.random((5, 4))
    bottleneck = Semiring("max-min", np.maximum, np.minimum, -np.inf, np.inf)
    expected = np.minimum(a[:, :, None], b).max(1)
    np.testing.assert_array_equal(trnqc.einsum("ij,jk->ik", a, b, semiring=bottleneck), expected)
    numbers = Semiring("plus-times", np.add, np.multiply, 0.0, 1.0)
    np.testing.assert_allclose(trnqc.einsum("ij,jk->ik", a, b, semiring=numbers), a @ b, rtol=1e-14)


@pytest.mark.parametrize(
    ("add", "multiply", "zero", "one", "message"),
    [
        (np.minimum, np.add, None, 0.0, "the zero of a semiring is a number or truth value; found None"),
        (np.minimum, np.add, np.nan, 0.0, "the zero of a semiring is a number or truth value; found nan"),
        (np.minimum, np.add, 1e9, 0.0, r"multiply\(zero, x\) is zero, 1000000000.0; found 2000000000.0"),
        (np.maximum, np.add, 0.0, 0.0, "zero and one of a semiring differ"),
        (np.maximum, np.multiply, -np.inf, 1.0, r"multiply\(zero, x\) is zero, -inf; found inf"),
        (np.add, np.multiply, 0.0, 2.0, r"multiply\(one, x\) is x"),
        (np.maximum, np.add, -1.0, 0.0, r"multiply\(zero, x\) is zero, -1.0; found -2.0"),
        (np.logical_xor, np.logical_or, False, True, r"multiply\(one, x\) is x"),
        (np.add, np.hypot, np.inf, 0.0, r"add\(zero, x\) is x; found inf"),
        (min, np.add, np.inf, 0.0, "add of a semiring is a ufunc of two arrays"),
        (np.minimum, np.negative, np.inf, 0.0, "multiply of a semiring is a ufunc of two arrays"),
    ],
)
def test_what_is_no_semiring(add, multiply, zero, one, message):
    with pytest.raises(InputError, match=message):
        Semiring("own", add, multiply, zero, one)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("min-plus", -np.inf, r"operand 0 has -inf at \(1, 0\)"),
        ("max-plus", np.inf, r"operand 0 has inf at \(1, 0\)"),
        ("max-times", -1.0, r"operand 0 has -1.0 at \(1, 0\)"),
        ("min-plus", np.nan, r"operand 0 has nan at \(1, 0\)"),
    ],
)
def test_elements_outside_of_the_semiring(name, value, message):
    a = np.ones((2, 2))
    a[1, 0] = value
    with pytest.raises(InputError, match=message):
        trnqc.einsum("ij,jk->ik", a, np.ones((2, 2)), semiring=name)
    trnqc.einsum("ij,jk->ik", a, np.ones((2, 2)), semiring=name, check_finite=False)


def test_arguments_that_are_refused():
    a = np.ones((2, 2))
    with pytest.raises(ArgumentError, match="semiring is one of min-plus, max-plus, max-times, or-and, or a Semiring"):
        trnqc.einsum("ij,jk->ik", a, a, semiring="min-times")
    with pytest.raises(InputError, match="or-and takes arrays of truth values; operand 0 has the type float64"):
        trnqc.einsum("ij,jk->ik", a, a, semiring="or-and")
    with pytest.raises(InputError, match="min-plus takes arrays of real numbers; operand 1 has the type complex128"):
        trnqc.einsum("ij,jk->ik", a, a + 0j, semiring="min-plus")
    with pytest.raises(UnsupportedError, match="semiring does not go with memory_limit"):
        trnqc.einsum("ij,jk->ik", a, a, semiring="min-plus", memory_limit=1000)
    torch = pytest.importorskip("torch")
    with pytest.raises(UnsupportedError, match="semirings go with NumPy arrays; operand 0 is Tensor"):
        trnqc.einsum("ij,jk->ik", torch.ones(2, 2), torch.ones(2, 2), semiring="min-plus")
