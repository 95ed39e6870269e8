"""Sparse arrays of SciPy, PyData and PyTorch: any may be an operand, and results are of the library of the operands."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

from trnqc import sparse
from trnqc.errors import InputError, OperandError

# Blocks of 1 x 1 and of 2 x 2 fit the extents of A.
A = np.triu(np.arange(1.0, 25).reshape(4, 6))
B = np.tril(np.arange(1.0, 31).reshape(6, 5)) / 4
FORMATS = ("csr", "csc", "coo", "bsr", "dia", "lil", "dok")


@pytest.fixture(scope="module")
def pydata():
    return pytest.importorskip("sparse", reason="needs PyData's package sparse")


@pytest.mark.parametrize("out", ["dense", "sparse"])
@pytest.mark.parametrize("kind", ["array", "matrix"])
@pytest.mark.parametrize("form", FORMATS)
def test_products_of_scipy(form, kind, out):
    make = getattr(scipy.sparse, f"{form}_{kind}")
    a, b = make(A), make(B)
    for result in (
        sparse.contract("ij,jk->ik", a, b, out=out),
        sparse.plan("ij,jk->ik", a, b, out=out).run(),
        sparse.plan("ij,jk->ik", A, B, out=out).run(a, b),
        sparse.contract("ij,jk->ik", a, B, out=out),
    ):
        made = getattr(scipy.sparse, f"{'csc' if form == 'csc' else 'csr'}_{kind}")
        assert type(result) is (np.ndarray if out == "dense" else made)
        np.testing.assert_allclose(result if out == "dense" else result.toarray(), A @ B, rtol=1e-14)
    if out == "sparse":
        assert result.has_canonical_format and (sparse.contract("ij,jk->ik", result, B.T) == A @ B @ B.T).all()


def test_arrays_and_formats_of_scipy_that_meet():
    csr, csc = scipy.sparse.csr_array(A), scipy.sparse.csc_array(B)
    assert type(sparse.contract("ij,jk->ik", csr, csc, out="sparse")) is scipy.sparse.csr_array
    matrix = scipy.sparse.csc_matrix(A)
    assert type(sparse.contract("ij,jk->ik", matrix, csc, out="sparse")) is scipy.sparse.csc_array
    ours = sparse.from_scipy(csc)
    assert type(sparse.contract("ij,jk->ik", csr, ours, out="sparse")) is sparse.SparseTensor


def test_results_of_scipy_that_are_no_matrices():
    csr = scipy.sparse.csr_array(A)
    rows = sparse.contract("ij->i", csr, out="sparse")
    assert type(rows) is scipy.sparse.coo_array and rows.shape == (4,)
    np.testing.assert_array_equal(rows.toarray(), A.sum(1))
    cube = sparse.contract("ij,jk->ijk", csr, scipy.sparse.csr_matrix(B), out="sparse")
    assert type(cube) is scipy.sparse.coo_array
    np.testing.assert_array_equal(cube.toarray(), A[:, :, None] * B)
    total = sparse.contract("ij->", csr, out="sparse")
    assert type(total) is np.ndarray and total == A.sum()


def test_single_precision_of_scipy_comes_back():
    csr = scipy.sparse.csr_array(A.astype(np.float32))
    result = sparse.contract("ij,jk->ik", csr, B.astype(np.float32), out="sparse")
    assert type(result) is scipy.sparse.csr_array and result.dtype == np.float32


@pytest.mark.parametrize("out", ["dense", "sparse"])
@pytest.mark.parametrize("names", [("COO", "COO"), ("GCXS", "GCXS"), ("COO", "GCXS"), ("DOK", "COO")])
def test_products_of_pydata(pydata, names, out):
    a, b = (getattr(pydata, name).from_numpy(x) for name, x in zip(names, (A, B)))
    for result in (
        sparse.contract("ij,jk->ik", a, b, out=out),
        sparse.plan("ij,jk->ik", A, B, out=out).run(a, b),
    ):
        made = pydata.GCXS if names == ("GCXS", "GCXS") else pydata.COO
        assert type(result) is (np.ndarray if out == "dense" else made)
        np.testing.assert_allclose(result if out == "dense" else result.todense(), A @ B, rtol=1e-14)
    ours = sparse.contract("ij,jk->ik", a, sparse.from_pydata(b), out="sparse")
    assert type(ours) is sparse.SparseTensor


@pytest.mark.parametrize("compressed", [(0,), (2,), (0, 1), (1, 2)])
def test_compressed_arrays_of_pydata_of_three_modes(pydata, compressed):
    array = np.zeros((3, 4, 2))
    array[[0, 2, 2], [1, 0, 3], [1, 1, 0]] = 1.5, -2.0, 0.5
    gcxs = pydata.GCXS.from_numpy(array, compressed_axes=compressed)
    tensor = sparse.from_pydata(gcxs, kinds=("dense", "compressed", "compressed")).check()
    np.testing.assert_array_equal(tensor.to_dense(), array)
    result = sparse.contract("abc,bd->acd", gcxs, B[:4], out="sparse")
    assert type(result) is pydata.GCXS
    np.testing.assert_allclose(result.todense(), np.einsum("abc,bd->acd", array, B[:4]), rtol=1e-15)


@pytest.mark.parametrize("form", ["coo", "gcxs"])
@pytest.mark.parametrize("shape", [(5,), (4, 6), (3, 1, 7), (0, 3)])
def test_pydata_there_and_back(pydata, shape, form):
    rng = np.random.default_rng(len(shape))
    array = (rng.random(shape) * (rng.random(shape) < 0.4)).astype(np.float32)
    order = tuple(reversed(range(len(shape))))
    back = sparse.from_dense(array, order, ["compressed"] * len(shape)).to_pydata(form)
    assert type(back) is getattr(pydata, form.upper()) and back.dtype == np.float32
    assert back.nnz == np.count_nonzero(array)
    np.testing.assert_array_equal(back.todense(), array)
    np.testing.assert_array_equal(sparse.from_pydata(back).to_dense(), array)


def test_what_pydata_does_not_store_is_zero(pydata):
    with pytest.raises(OperandError, match=r"operand 0: elements that are not stored must be 0; .* fill_value 1"):
        sparse.contract("ij->i", pydata.COO.from_numpy(A, fill_value=1.0))
    with pytest.raises(InputError, match="format is 'coo' or 'gcxs'; found 'csr'"):
        sparse.from_dense(A).to_pydata("csr")


def test_pydata_and_scipy_meet_as_our_tensors(pydata):
    result = sparse.contract("ij,jk->ik", pydata.COO.from_numpy(A), scipy.sparse.csr_array(B), out="sparse")
    assert type(result) is sparse.SparseTensor
    np.testing.assert_allclose(result.to_dense(), A @ B, rtol=1e-14)


@pytest.mark.filterwarnings("ignore:Sparse CS. tensor support is in beta")
@pytest.mark.parametrize("layout", ["to_sparse_coo", "to_sparse_csr", "to_sparse_csc"])
def test_products_of_torch(layout):
    torch = pytest.importorskip("torch")
    a, b = (getattr(torch.from_numpy(x), layout)() for x in (A, B))
    for out, expected in (("dense", torch.strided), ("sparse", torch.sparse_coo)):
        for result in (
            sparse.contract("ij,jk->ik", a, b, out=out),
            sparse.plan("ij,jk->ik", A, B, out=out).run(a, b),
            sparse.contract("ij,jk->ik", a, scipy.sparse.csr_array(B), out=out),
        ):
            assert result.layout is expected
            np.testing.assert_allclose(result.to_dense().numpy(), A @ B, rtol=1e-14)
