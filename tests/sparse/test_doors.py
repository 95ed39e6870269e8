"""What users of NumPy, SciPy and PyTorch hold, handed to networks: their type comes back, or one clear error."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from pyscf import lib

from trnqc import sparse
from trnqc.errors import OperandError

A = np.triu(np.arange(1.0, 13).reshape(3, 4))
B = np.tril(np.arange(1.0, 21).reshape(4, 5)) / 4
PRODUCT = "ij,jk->ik"


def as_array(actual):
    if isinstance(actual, np.ndarray):
        return actual
    return actual.toarray() if scipy.sparse.issparse(actual) else actual.to_dense()


class Subclass(np.ndarray):
    pass


def on_disk(x, where):
    kept = np.memmap(where / f"{x.shape}", x.dtype, "w+", shape=x.shape)
    kept[...] = x
    return kept


KINDS = {
    "tagged": lambda x, _: lib.tag_array(x, mo_coeff=1),
    "subclass": lambda x, _: x.view(Subclass),
    "memory map": on_disk,
    "masked nowhere": lambda x, _: np.ma.array(x),
    "list": lambda x, _: x.tolist(),
    "reversed": lambda x, _: x[::-1, ::-1].copy()[::-1, ::-1],
    "every other": lambda x, _: np.repeat(np.repeat(x, 2, 0), 2, 1)[::2, ::2],
    "one row": lambda x, _: np.broadcast_to(x[0], x.shape),
    "big-endian": lambda x, _: x.astype(">f8"),
    "int64": lambda x, _: x.astype(np.int64),
    "csr": lambda x, _: scipy.sparse.csr_array(x),
    "dia matrix": lambda x, _: scipy.sparse.dia_matrix(x),
}


@pytest.mark.parametrize("out", ["dense", "sparse"])
@pytest.mark.parametrize("kind", KINDS)
def test_arrays_in_any_dress(kind, out, tmp_path):
    inputs = [KINDS[kind](x, tmp_path) for x in (A, B)]
    plain = [x.toarray() if scipy.sparse.issparse(x) else np.asarray(x) for x in inputs]
    result = sparse.contract(PRODUCT, *inputs, out=out)
    stored = {"csr": scipy.sparse.csr_array, "dia matrix": scipy.sparse.csr_matrix}.get(kind, sparse.SparseTensor)
    assert type(result) is (np.ndarray if out == "dense" else stored)
    assert result.dtype == as_array(result).dtype == np.float64
    np.testing.assert_allclose(as_array(result), plain[0] @ plain[1], rtol=1e-14)
    again = sparse.plan(PRODUCT, A, B, out=out).run(*inputs)
    np.testing.assert_array_equal(as_array(again), as_array(result))


@pytest.mark.parametrize("out", ["dense", "sparse"])
@pytest.mark.parametrize(
    ("form", "dtype"),
    [
        (np.asarray, np.float16),
        (sparse.from_dense, np.float16),
        (np.asarray, np.float32),
        (sparse.from_dense, np.float32),
        (scipy.sparse.csr_array, np.float32),
    ],
)
def test_the_type_of_the_operands_comes_back(form, dtype, out):
    """The product is that of the rounded operands in float64, rounded once."""
    a, b = (A / 3).astype(dtype), (B / 7).astype(dtype)
    result = sparse.contract(PRODUCT, form(a), form(b), out=out)
    assert result.dtype == as_array(result).dtype == dtype
    np.testing.assert_array_equal(as_array(result), (a.astype(float) @ b.astype(float)).astype(dtype))
    if out == "sparse" and form is not scipy.sparse.csr_array:
        assert result.to_coo()[1].dtype == dtype
        assert result.to_scipy().dtype == np.float32  # SciPy has no float16
        assert result.repack((1, 0), ("dense", "compressed")).to_dense().dtype == dtype
    wider = sparse.contract(PRODUCT, form(a), B, out=out)
    assert as_array(wider).dtype == np.float64
    assert sparse.contract(PRODUCT, form(a), B != 0, out=out).dtype == dtype


def test_maps_and_integers_count_in_float64():
    for inputs in ((A != 0, B != 0), (A.astype(np.int8), B.astype(np.int8))):
        result = sparse.contract(PRODUCT, *inputs, out="dense")
        assert result.dtype == np.float64
        np.testing.assert_array_equal(result, inputs[0].astype(float) @ inputs[1].astype(float))


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda x: np.ma.masked_less(x, 2), "operand 0: the array is a masked array with .* masked elements"),
        (lambda x: x.astype(np.clongdouble), "operand 0: values must be .* or complex numbers of two; found dtype c"),
        (lambda x: x.astype(np.longdouble), "operand 0: values must be real numbers of at most 64 bits"),
        (lambda x: x.astype(object), "operand 0: values must be real numbers"),
        (lambda x: None, "operand 0: values must be real numbers"),
    ],
)
def test_refused(make, message):
    with pytest.raises(OperandError, match=message):
        sparse.contract(PRODUCT, make(A), B)


@pytest.mark.filterwarnings("ignore:Sparse:UserWarning")
@pytest.mark.parametrize("name", ["float16", "bfloat16", "float32", "float64"])
def test_types_of_tensors(name):
    torch = pytest.importorskip("torch")
    dtype = getattr(torch, name)
    a, b = (torch.tensor(x, dtype=dtype) for x in (A, B))
    for x in (a, a.to_sparse(), a.to_sparse_csr()):
        for out in ("dense", "sparse"):
            result = sparse.contract(PRODUCT, x, b, out=out)
            assert result.dtype is dtype and result.layout is (torch.strided if out == "dense" else torch.sparse_coo)
            torch.testing.assert_close(result.to_dense(), (a.double() @ b.double()).to(dtype))
    assert sparse.contract(PRODUCT, a, B.astype(np.float32)).dtype is torch.promote_types(dtype, torch.float32)
    parameter = torch.nn.Parameter(a.float())
    assert sparse.contract(PRODUCT, parameter, b.float()).requires_grad
