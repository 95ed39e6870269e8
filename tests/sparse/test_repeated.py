"""Repeated calls on small operands compute with other values at the same places, and are planned for other places."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from trnqc.errors import InputError
from trnqc.sparse import api, contract, plan
from trnqc.sparse.run import repeated
from trnqc.sparse.run.kept_call import KeptCalls
from trnqc.sparse.tensors.storage import SparseTensor

NETWORKS = ("ij,jk->ki", "ji,jk->ik", "ij,ij->j", "ij,jk,k->i")
EXTENTS = {"i": 5, "j": 7, "k": 3}


def as_dense(x):
    x = x.to_dense() if isinstance(x, SparseTensor) else x
    return x.toarray() if scipy.sparse.issparse(x) else np.asarray(x)


def check(subscripts, *operands, out="auto", threads=1):
    arrays = [as_dense(x).astype(np.float64) for x in operands]
    result = contract(subscripts, *operands, out=out, threads=threads)
    np.testing.assert_allclose(as_dense(result), np.einsum(subscripts, *arrays), rtol=1e-6, atol=1e-6)
    return result


def is_kept(monkeypatch, subscripts, *operands, out="auto", threads=1):
    """Whether another call does without a plan."""
    with monkeypatch.context() as patched:
        patched.setattr(api, "_planned", lambda *_, **__: pytest.fail("planned"))
        try:
            check(subscripts, *operands, out=out, threads=threads)
        except pytest.fail.Exception:
            return False
    return True


@st.composite
def calls(draw):
    """Operands, with other values for each of them at the same places."""
    subscripts = draw(st.sampled_from(NETWORKS))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    first, second = [], []
    for labels in subscripts.split("->")[0].split(","):
        stored = rng.random([EXTENTS[index] for index in labels]) < draw(st.sampled_from((0.1, 0.5, 1.0)))
        kinds = ["array", "csr", "csc"] if stored.ndim == 2 else ["array"]
        kind, dtype = draw(st.sampled_from(kinds)), draw(st.sampled_from((np.float64, np.float32, np.int64)))
        for operands in (first, second):
            ones = draw(st.booleans())
            array = np.where(stored, 1 if ones else rng.integers(2, 9, stored.shape), 0).astype(dtype)
            array = np.asfortranarray(array) if draw(st.booleans()) else array
            operands.append(array if kind == "array" else scipy.sparse.csr_array(array).asformat(kind))
    return subscripts, first, second


# Most examples have a plan and a kernel of their own, which take longer than the calls.
@settings(max_examples=12, deadline=None)
@given(calls(), st.sampled_from(("auto", "sparse")))
def test_other_values_at_the_same_places(call, out):
    subscripts, first, second = call
    a = check(subscripts, *first, out=out)
    b = check(subscripts, *first, out=out)
    np.testing.assert_array_equal(as_dense(a), as_dense(b))
    assert type(a) is type(b) and a.dtype == b.dtype
    check(subscripts, *second, out=out)
    check(subscripts, *first, out=out)


def small(rng, shape=(20, 20), nonzeros=40):
    return scipy.sparse.random_array(shape, density=nonzeros / np.prod(shape), format="csr", rng=rng)


@pytest.mark.parametrize("kind", [scipy.sparse.csr_array, scipy.sparse.csc_array, scipy.sparse.csr_matrix])
def test_calls_on_small_operands_are_kept(monkeypatch, kind):
    rng = np.random.default_rng(1)
    a, b = kind(small(rng)), kind(small(rng))
    for subscripts, other in (("ij,jk->ik", b), ("ij,jk->ik", rng.random((20, 7))), ("ij,j->i", rng.random(20))):
        check(subscripts, a, other)
        assert is_kept(monkeypatch, subscripts, a, other)
        assert is_kept(monkeypatch, subscripts, 3 * a, other)
        assert not is_kept(monkeypatch, subscripts, a[::-1], other)
    large = rng.random((20, 1 + repeated.LARGEST // 20))
    check("ij,jk->ik", a, large)
    assert not is_kept(monkeypatch, "ij,jk->ik", a, large)


@pytest.mark.parametrize("kind", [scipy.sparse.csr_array, scipy.sparse.csc_array, scipy.sparse.csr_matrix])
def test_calls_with_a_sparse_result_are_kept(monkeypatch, kind):
    rng = np.random.default_rng(8)
    a, b = kind(small(rng, (31, 47), 60)), kind(small(rng, (47, 23), 60))
    for subscripts in ("ij,jk->ik", "ij,jk->ki"):
        first = check(subscripts, a, b, out="sparse")
        assert is_kept(monkeypatch, subscripts, -2 * a, b, out="sparse")
        second = contract(subscripts, a, b, out="sparse")
        assert type(second) is type(first) and second.format == first.format
        assert second.has_canonical_format and second.indices.dtype == (a @ b).indices.dtype
        assert (first != second).nnz == 0 and first.nnz == (a @ b).nnz


def test_sparse_results_of_arrays_and_of_more_modes_are_kept(monkeypatch):
    rng = np.random.default_rng(9)
    a, b, c = ((rng.random(shape) < 0.2) * rng.random(shape) for shape in ((7, 5), (5, 6), (6, 3)))
    for subscripts, operands in (("ij,jk->ik", (a, b)), ("ij,jk,kl->ikl", (a, b, c)), ("ij,ij->i", (a, a.copy()))):
        first = check(subscripts, *operands, out="sparse")
        assert isinstance(first, SparseTensor)
        assert is_kept(monkeypatch, subscripts, *(3 * x for x in operands), out="sparse")
        assert contract(subscripts, *operands, out="sparse").check().nnz == first.nnz


@pytest.mark.parametrize("out", ["dense", "sparse"])
@pytest.mark.parametrize("size", [20, 400])
def test_results_are_not_changed_by_later_calls(monkeypatch, size, out):
    rng = np.random.default_rng(10)
    a, b = small(rng, (size, size), 2 * size), small(rng, (size, size), 2 * size)
    check("ij,jk->ik", a, b, out=out)
    assert is_kept(monkeypatch, "ij,jk->ik", a, b, out=out)
    results = [contract("ij,jk->ik", n * a, b, out=out) for n in range(1, 5)]
    for n, result in enumerate(results, 1):
        np.testing.assert_allclose(as_dense(result), (n * a @ b).toarray(), rtol=1e-14, atol=0)


@pytest.mark.parametrize(("width", "view"), [(3000, True), (20, False)])
@pytest.mark.parametrize("kind", ["csr", "csc"])
def test_large_results_are_written_once(monkeypatch, kind, width, view):
    rng = np.random.default_rng(13)
    # The terms of the product are the bound of its elements, and few of them are added where columns are many.
    a = small(rng, (300, 200), 4000)
    b = scipy.sparse.csr_array(np.pad(small(rng, (200, width), 4000).toarray(), ((0, 0), (0, 3000 - width))))
    a, b = (a, b) if kind == "csr" else (b.T.asformat("csc"), a.T.asformat("csc"))
    check("ij,jk->ik", a, b, out="sparse")
    assert is_kept(monkeypatch, "ij,jk->ik", a, b, out="sparse")
    results = [contract("ij,jk->ik", n * a, b, out="sparse") for n in (1, 2)]
    for n, result in enumerate(results, 1):
        assert result.nnz > repeated.DIRECT and result.has_canonical_format
        np.testing.assert_allclose(result.toarray(), (n * a @ b).toarray(), rtol=1e-13, atol=1e-13)
        for array in (result.indices, result.data):
            assert len(array) == result.nnz
            assert (array.base is not None) == view
            assert not view or len(array.base) < 2 * len(array)


def test_threads_do_not_share_memory():
    rng = np.random.default_rng(11)
    a, b = small(rng, (60, 60), 900), rng.random((60, 9))
    contract("ij,jk->ik", a, b)
    with ThreadPoolExecutor(8) as pool:
        results = list(pool.map(lambda n: contract("ij,jk->ik", n * a, b), range(200)))
    for n, result in enumerate(results):
        np.testing.assert_allclose(result, n * a @ b, rtol=1e-13)


@pytest.mark.parametrize(("name", "threads"), [("LONGEST", 1), ("LONGEST_OF_THREADS", 2)])
def test_long_calls_are_not_kept(monkeypatch, name, threads):
    rng = np.random.default_rng(7)
    a, x = small(rng), rng.random(20)
    monkeypatch.setattr(api, "_calls", KeptCalls(10, 1 << 20))
    monkeypatch.setattr(repeated, name, 0.0)
    for asked in (1, 2):
        check("ij,j->i", a, x, threads=asked)
        assert is_kept(monkeypatch, "ij,j->i", a, x, threads=asked) == (asked != threads)


def test_the_oldest_calls_give_way_to_others(monkeypatch):
    rng = np.random.default_rng(13)
    x, matrices = rng.random(20), [small(rng) for _ in range(3)]
    monkeypatch.setattr(api, "_calls", KeptCalls(10, 1 << 20))
    check("ij,j->i", matrices[0], x)
    ((_, _, kept),) = api._calls._order
    monkeypatch.setattr(api, "_calls", KeptCalls(10, int(2.5 * kept.bytes)))
    for a in matrices:
        check("ij,j->i", a, x)
    assert [is_kept(monkeypatch, "ij,j->i", a, x) for a in matrices] == [False, True, True]
    monkeypatch.setattr(api, "_calls", KeptCalls(10, 0))
    check("ij,j->i", matrices[0], x)
    assert is_kept(monkeypatch, "ij,j->i", matrices[0], x)


def test_arrays_with_other_zeros_are_planned_again(monkeypatch):
    rng = np.random.default_rng(2)
    a, b = small(rng), rng.random((20, 5))
    check("ij,jk->ik", a, b)
    b[3] = 0
    assert not is_kept(monkeypatch, "ij,jk->ik", a, b)
    check("ij,jk->ik", a, b)
    assert is_kept(monkeypatch, "ij,jk->ik", a, b)


def test_what_is_kept_is_not_the_memory_of_the_operands(monkeypatch):
    rng = np.random.default_rng(3)
    a, b = small(rng), rng.random(20)
    before = a.copy()
    check("ij,j->i", a, b)
    a.indices[:], a.indptr[:] = 0, 0
    assert is_kept(monkeypatch, "ij,j->i", before, b)


def test_the_same_operand_twice(monkeypatch):
    rng = np.random.default_rng(4)
    a = small(rng)
    check("ij,jk->ik", a, a.copy())
    assert not is_kept(monkeypatch, "ij,jk->ik", a, a)
    check("ij,jk->ik", a, a)
    assert is_kept(monkeypatch, "ij,jk->ik", a, a)


def test_rows_that_are_not_sorted_or_have_duplicates():
    a = scipy.sparse.csr_array((np.array([1.0, 2, 3, 4]), np.array([2, 0, 1, 1]), np.array([0, 2, 4])), shape=(2, 3))
    for _ in range(2):
        check("ij,j->i", a, np.array([3.0, 5, 7]))
        check("ij,jk->ik", a, np.arange(1.0, 13).reshape(3, 4))


def test_infinities_and_nan_are_multiplied_as_by_the_plan():
    a, b = small(np.random.default_rng(6)), np.arange(1.0, 21)
    check("ij,j->i", a, b)
    b[3], b[7] = np.inf, np.nan
    np.testing.assert_array_equal(contract("ij,j->i", a, b), plan("ij,j->i", a, b).run())


def test_options_are_checked_in_every_call():
    a, b = small(np.random.default_rng(5)), np.arange(20.0)
    check("ij,j->i", a, b)
    for options in ({"out": "coo"}, {"out": ["dense"]}, {"threads": 0}, {"threads": 1.5}, {"form": "fast"}):
        with pytest.raises(InputError):
            contract("ij,j->i", a, b, **options)
