"""A kept call is found by what operands hold at the time of the call, whoever changed them, and by any thread."""

from __future__ import annotations

import gc
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import scipy.sparse

from trnqc.sparse import api, contract
from trnqc.sparse.run.kept_call import PLANNED, UNKNOWN, Kept, KeptCall, KeptCalls

SHAPE = (20, 20)


def rows(seed, dtype=np.float64, kind=scipy.sparse.csr_array):
    return kind(scipy.sparse.random_array(SHAPE, density=0.1, rng=np.random.default_rng(seed))).astype(dtype)


def kept(subscripts, *operands, out="auto"):
    """The result of a kept call, or what stands for none."""
    return api._calls((subscripts, out, True), operands)


def is_kept(*call, **options):
    result = kept(*call, **options)
    return result is not UNKNOWN and result is not PLANNED


def dense(x):
    return x.toarray() if scipy.sparse.issparse(x) else x


@pytest.fixture(scope="module", params=[scipy.sparse.csr_array, scipy.sparse.csc_array, scipy.sparse.csr_matrix])
def kind(request):
    """A kind of sparse operands whose calls with an array, and with one another, are kept."""
    a, b, x = rows(1, kind=request.param), rows(2, kind=request.param), np.arange(1.0, 21)
    contract("ij,j->i", a, x)
    contract("ij,jk->ik", a, b, out="sparse")
    assert is_kept("ij,j->i", a, x) and is_kept("ij,jk->ik", a, b, out="sparse")
    return request.param


@pytest.fixture
def operands(kind):
    """Operands of a kept call, new for each test."""
    return rows(1, kind=kind), np.arange(1.0, 21)


def check(a, x):
    np.testing.assert_allclose(contract("ij,j->i", a, x), a @ x, rtol=1e-13)


def test_values_are_read_again(operands):
    a, x = operands
    for _ in range(3):
        a.data *= -3
        x += 1
        assert is_kept("ij,j->i", a, x)
        check(a, x)


def test_indices_that_are_changed_in_place(operands):
    a, x = operands
    first = a.indptr[np.argmax(np.diff(a.indptr) == 1)]
    a.indices[first] = (a.indices[first] + 1) % 20
    assert not is_kept("ij,j->i", a, x)
    check(a, x)
    assert is_kept("ij,j->i", a, x)


def test_positions_that_are_changed_in_place(operands):
    a, x = operands
    row = 1 + int(np.argmax(np.diff(a.indptr)[1:] > 0))
    a.indptr[row] += 1
    a.sort_indices()
    assert not is_kept("ij,j->i", a, x)
    check(a, x)


def test_shapes_that_are_changed_in_place(operands):
    a, x = operands
    a.resize((19, 20))
    assert not is_kept("ij,j->i", a, x)
    check(a, x)
    assert not is_kept("ij,j->i", a, x[:, None])
    with pytest.raises(ValueError):
        contract("ij,j->i", a, x[1:])


def test_attributes_that_are_replaced(operands):
    a, x = operands
    a.data = a.data[: len(a.data) // 2]
    assert not is_kept("ij,j->i", a, x)
    a, _ = rows(1, kind=type(a)), x
    a.data, a.indices = np.repeat(a.data, 2)[::2], np.repeat(a.indices, 2)[::2]
    assert is_kept("ij,j->i", a, x) and not a.data.flags.c_contiguous
    check(a, x)


@pytest.mark.parametrize("dtype", [np.float32, np.int64, np.int32, np.complex128, bool, ">f8", np.float16])
def test_other_types_of_elements(operands, dtype):
    a, x = operands
    assert not is_kept("ij,j->i", a, x.astype(dtype))
    other = a.astype(np.float64)
    other.data = other.data.astype(dtype)
    assert not is_kept("ij,j->i", other, x)


def test_indices_of_another_type_and_rows_of_another_kind(operands):
    a, x = operands
    other = a.copy()
    other.indices, other.indptr = a.indices.astype(np.int64), a.indptr.astype(np.int64)
    assert not is_kept("ij,j->i", other, x)
    assert not is_kept("ij,j->i", a.tocoo(), x) and not is_kept("ij,j->i", a.toarray(), x)
    assert not is_kept("ij,j->i", a, x.view(np.matrix)) and not is_kept("ij,j->i", a, list(x))


def test_zeros_and_ones_of_values(operands):
    a, x = operands
    x[3] = 0
    assert not is_kept("ij,j->i", a, x)
    assert not is_kept("ij,j->i", a, np.ones(20))
    a.data[:] = 1
    assert not is_kept("ij,j->i", a, np.arange(1.0, 21))


def test_unsorted_rows_are_planned_each_time():
    a = scipy.sparse.csr_array((np.array([1.0, 2, 3, 4]), np.array([2, 0, 1, 1]), np.array([0, 2, 4])), shape=(2, 3))
    x = np.array([3.0, 5, 7])
    check(a, x)
    assert kept("ij,j->i", a, x) is PLANNED
    check(a, x)


def test_strides_are_followed(operands):
    a, x = operands
    for strided in (np.repeat(x, 2)[::2], x[::-1].copy()[::-1]):
        assert is_kept("ij,j->i", a, strided)
        check(a, strided)
    matrix = np.random.default_rng(3).random((20, 5))
    expected = contract("ij,jk->ik", a, matrix)
    assert is_kept("ij,jk->ik", a, np.asfortranarray(matrix))
    np.testing.assert_array_equal(contract("ij,jk->ik", a, np.asfortranarray(matrix)), expected)
    read_only = matrix.copy()
    read_only.flags.writeable = False
    np.testing.assert_array_equal(contract("ij,jk->ik", a, read_only), expected)


def test_operands_that_share_memory(operands):
    a, _ = operands
    b = a.copy()
    b.data = a.data
    for out in ("dense", "sparse"):
        for other in (b, a):
            expected = (a @ b).toarray()
            for _ in range(2):
                np.testing.assert_allclose(dense(contract("ij,jk->ik", a, other, out=out)), expected, rtol=1e-13)
                assert is_kept("ij,jk->ik", a, other, out=out)


def test_sparse_results_own_their_memory_and_are_sorted(kind):
    a, b = rows(1, kind=kind), rows(2, kind=kind)
    results = [kept("ij,jk->ik", n * a, b, out="sparse") for n in (1, 2)]
    for n, result in zip((1, 2), results):
        expected = n * a @ b
        assert type(result) is type(expected) and result.shape == expected.shape
        assert result.dtype == expected.dtype and result.indices.dtype == expected.indices.dtype
        result.check_format(full_check=True)
        assert result.has_canonical_format
        np.testing.assert_allclose(result.toarray(), expected.toarray(), rtol=1e-13)
        result.data[:] = 0
        result.indices[:] = 0
    np.testing.assert_allclose(kept("ij,jk->ik", a, b, out="sparse").toarray(), (a @ b).toarray(), rtol=1e-13)


def test_threads_that_change_their_own_operands(kind):
    patterns = [rows(seed, kind=kind) for seed in (1, 4)]
    x = np.arange(1.0, 21)

    def work(number):
        a = patterns[number % 2].copy()
        for _ in range(200):
            a.data *= 1.01
            check(a, x)
            product = contract("ij,jk->ik", a, patterns[0], out="sparse")
            np.testing.assert_allclose(product.toarray(), (a @ patterns[0]).toarray(), rtol=1e-12)

    for pattern in patterns:
        contract("ij,jk->ik", pattern, patterns[0], out="sparse")
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(work, range(8)))


def test_references_are_returned(operands):
    a, x = operands
    b = rows(2, kind=type(a))
    held = (a, x, b, a.data, a.indices, a.indptr, type(a), type(x))
    gc.collect()
    before = [sys.getrefcount(each) for each in held]
    for _ in range(100):
        kept("ij,j->i", a, x)
        kept("ij,jk->ik", a, b, out="sparse")
        kept("ij,j->i", a, x[1:])
        kept("ij,j->i", a, None)
    gc.collect()
    assert [sys.getrefcount(each) for each in held] == before


def test_the_oldest_calls_are_dropped():
    calls = KeptCalls(2, 1 << 30)
    for asked in ("a", "a", "b", "c"):
        calls.add(asked, KeptCall(0), Kept())
    assert calls("a", ()) is UNKNOWN
    assert calls("b", ()) is calls("c", ()) is PLANNED
