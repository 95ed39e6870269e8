"""Products of slices against einsum, for every layout, and the memory that they take."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from trnqc.contraction.products.product_plan import product_plan, row_major
from trnqc.contraction.products.slices import Slice, multiply


def letters(labels, table):
    return "".join(table[x] for x in labels)


def expected(result, operands, before, accumulate):
    terms = ",".join("".join(s.labels) for s in operands)
    arrays = [1 / s.array if s.reciprocal else s.array for s in operands]
    value = np.einsum(f"{terms}->{''.join(result.labels)}", *arrays)
    return before + value if accumulate else value


@some.composite
def slices(draw, labels, extents):
    """A view of an array with its axes in any order and, along some, every second element."""
    order = draw(some.permutations(labels))
    steps = [draw(some.sampled_from([1, 1, 1, 2])) for _ in order]
    whole = np.random.default_rng(draw(some.integers(0, 99))).uniform(
        0.5, 1.5, [extents[x] * s for x, s in zip(order, steps)]
    )
    view = whole[(*(slice(None, None, s) for s in steps), ...)]
    return Slice(view.transpose([order.index(x) for x in labels]), tuple(labels))


@some.composite
def products(draw):
    extents = {x: draw(some.integers(1, 5)) for x in "abcdef"}
    parts = some.lists(some.sampled_from("abcdef"), max_size=4, unique=True)
    operands = [draw(slices(draw(parts), extents)) for _ in range(draw(some.integers(1, 2)))]
    operands = [Slice(s.array, s.labels, draw(some.sampled_from([False, False, True]))) for s in operands]
    have = sorted({x for s in operands for x in s.labels})
    labels = draw(some.lists(some.sampled_from(have), unique=True)) if have else []
    return draw(slices(labels, extents)), operands


@settings(max_examples=300, deadline=None)
@given(products(), some.booleans(), some.sampled_from([3, 20, 10_000]))
def test_every_product_is_einsum(case, accumulate, room):
    result, operands = case
    before = result.array.copy()
    multiply(result, operands, accumulate, np.empty(room))
    np.testing.assert_allclose(result.array, expected(result, operands, before, accumulate), rtol=1e-12)


def test_other_dtypes_are_converted_piece_by_piece():
    rng = np.random.default_rng(1)
    a, b = rng.random((7, 5), dtype=np.float32), rng.random((5, 9))
    out = Slice(np.empty((7, 9)), ("i", "j"))
    multiply(out, [Slice(a, ("i", "k")), Slice(b, ("k", "j"))], False, np.empty(8))
    np.testing.assert_allclose(out.array, a.astype(float) @ b, rtol=1e-12)


# Permuted tensors as they stand in coupled-cluster and transformation steps.
CASES = [
    "Qae,Qbf->abef",
    "Qae,Qbf->aebf",
    "abef,efij->abij",
    "aebf,efij->abij",
    "pqrs,pa->aqrs",
    "aqrs,qb->abrs",
    "ae,ae->",
]


@pytest.mark.parametrize("room", [5_000, 30_000])
@pytest.mark.parametrize("accumulate", [False, True])
@pytest.mark.parametrize("case", CASES)
def test_nothing_but_the_scratch_is_used(case, accumulate, room):
    inputs, output = case.split("->")
    rng = np.random.default_rng(2)
    operands = [Slice(rng.random([19] * len(labels)), tuple(labels)) for labels in inputs.split(",")]
    result = Slice(np.zeros([19] * len(output)), tuple(output))
    scratch = np.empty(room)
    multiply(Slice(result.array.copy(), result.labels), operands, accumulate, scratch)  # plans are kept
    tracemalloc.start()
    multiply(result, operands, accumulate, scratch)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # NumPy keeps three buffers of 8192 elements at most; a copy of the largest operand would be 1 MB.
    assert peak < 300_000
    np.testing.assert_allclose(result.array, np.einsum(case, *(s.array for s in operands), optimize=True), rtol=1e-12)


@pytest.mark.parametrize(
    ("case", "loops", "rows", "columns"),
    [
        ("ik,kj->ij", "", "i", "j"),
        ("zik,zkj->zij", "z", "i", "j"),
        ("Qae,Qbf->aebf", "", "ae", "bf"),
        ("ki,kj->ji", "", "i", "j"),
    ],
)
def test_what_lies_well_is_not_copied(case, loops, rows, columns):
    inputs, output = case.split("->")
    size = dict.fromkeys(sorted({*inputs} - {","}), 60)
    operands = tuple(row_major(labels, size) for labels in inputs.split(","))
    plan = product_plan(tuple(size.items()), row_major(output, size), operands, False)
    assert plan.scratch == 0 and not any(plan.packed) and not plan.buffered
    assert ("".join(plan.loops), "".join(plan.rows), "".join(plan.columns)) == (loops, rows, columns)


def test_a_short_scratch_is_met_by_another_plan_or_by_cuts():
    size = dict.fromkeys("Qaebf", 60)
    operands = (row_major("Qae", size), row_major("Qbf", size))
    roomy = product_plan(tuple(size.items()), row_major("abef", size), operands, True, room=60**4)
    assert roomy.scratch == 60**4 and (roomy.rows, roomy.columns) == (("a", "e"), ("b", "f"))
    result = Slice(np.ones((9, 9, 9, 9)), tuple("abef"))
    b = np.random.default_rng(4).random((9, 9, 9))
    multiply(result, [Slice(b, tuple("Qae")), Slice(b, tuple("Qbf"))], True, np.empty(1))
    np.testing.assert_allclose(result.array, 1 + np.einsum("Qae,Qbf->abef", b, b), rtol=1e-12)
