"""Complex operands of every library beside NumPy, with its element types, and derivatives beside PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from trnqc import sparse
from trnqc.errors import InputError, OperandError

TEXT, SHAPES = "ijk,jr,kr->ir", [(7, 5, 11), (5, 3), (11, 3)]


def arrays(shapes=SHAPES, which="ccc", seed=1, dtype=np.complex128):
    """Arrays of which a part is zero; "c" for complex ones, "r" for real ones."""
    rng = np.random.default_rng(seed)
    made = []
    for shape, kind in zip(shapes, which):
        numbers = rng.standard_normal(shape).astype(dtype)
        numbers += 1j * rng.standard_normal(shape)
        made.append((numbers if kind == "c" else numbers.real) * (rng.random(shape) < 0.5))
    return made


def tensor_of(x):
    return sparse.from_dense(x, kinds=["compressed"] * x.ndim)


def dense(x):
    if isinstance(x, np.ndarray):
        return x
    return x.toarray() if scipy.sparse.issparse(x) else np.asarray(x.to_dense())


@pytest.mark.parametrize("out", ["dense", "sparse"])
@pytest.mark.parametrize("form", ["fused", "dense", "nary", "unfused", "unfused-rows"])
@pytest.mark.parametrize("which", ["crr", "rcr", "rrc", "ccr", "ccc"])
def test_every_form(which, form, out):
    operands = arrays(which=which)
    first = tensor_of(operands[0])
    chosen = sparse.plan(TEXT, first, *operands[1:], form=form, out=out)
    result = chosen.run()
    assert result.dtype == dense(result).dtype == np.complex128
    np.testing.assert_allclose(dense(result), np.einsum(TEXT, *operands), rtol=1e-13, atol=1e-13)
    assert f"{2 ** which.count('c')} runs with their real and imaginary parts" in str(chosen)
    others = arrays(which=which, seed=2)
    again = chosen.run(first, *others[1:], threads=2)
    np.testing.assert_allclose(dense(again), np.einsum(TEXT, operands[0], *others[1:]), rtol=1e-13, atol=1e-13)


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32 - 1), st.tuples(*[st.integers(1, 5)] * 3), st.sampled_from(["cc", "cr", "rc"]))
def test_matrix_products_of_any_extent(seed, extents, which):
    i, j, k = extents
    a, b = arrays([(i, j), (j, k)], which, seed)
    for out in ("dense", "sparse"):
        result = sparse.contract("ij,jk->ik", tensor_of(a), tensor_of(b), out=out, form="nary")
        np.testing.assert_allclose(dense(result), a @ b, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("out", ["dense", "sparse"])
@pytest.mark.parametrize(
    ("types", "expected"),
    [
        ((np.complex64, np.complex64), np.complex64),
        ((np.complex64, np.float32), np.complex64),
        ((np.complex64, np.float64), np.complex128),
        ((np.complex64, np.int64), np.complex128),
        ((np.complex64, np.bool_), np.complex64),
        ((np.complex128, np.float32), np.complex128),
    ],
)
def test_types_are_those_of_numpy(types, expected, out):
    """Products are exact in float64 here, so that the result is rounded once."""
    a, b = (np.arange(12).reshape(3, 4) % 5).astype(types[0]), (np.arange(20).reshape(4, 5) % 3).astype(types[1])
    a = a * np.array(1 + 2j, types[0]) / 3
    result = sparse.contract("ij,jk->ik", tensor_of(a), b, out=out)
    assert result.dtype == dense(result).dtype == expected
    exact = a.astype(np.complex128) @ b.astype(np.complex128)
    np.testing.assert_allclose(dense(result), exact.astype(expected), rtol=2e-15 if expected == np.complex128 else 1e-7)


def test_one_operand_twice_and_a_scalar_product():
    (x,) = arrays([(6, 6)], "c")
    tensor = tensor_of(x)
    gram = sparse.plan("ki,kj->ij", tensor, tensor)
    np.testing.assert_allclose(dense(gram.run()), x.T @ x, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(dense(gram.run(tensor, tensor)), x.T @ x, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(sparse.contract("ij,ij->", tensor, x.conj(), out="dense"), np.vdot(x, x), rtol=1e-13)
    np.testing.assert_allclose(sparse.contract("ii->", tensor, out="dense"), np.trace(x), rtol=1e-13)
    np.testing.assert_allclose(dense(sparse.contract("ii,ij->ij", x, tensor)), np.diagonal(x)[:, None] * x, rtol=1e-13)


def test_numbers_of_unit_modulus_are_no_map():
    """Their moduli are 1 where stored, their parts are not."""
    phases = np.exp(1j * np.arange(20.0)).reshape(4, 5) * (np.arange(20).reshape(4, 5) % 3 == 0)
    for x in (phases, np.abs(phases).astype(complex)):
        result = sparse.contract("ij,jk->ik", tensor_of(x), np.eye(5), form="fused", out="dense")
        np.testing.assert_allclose(result, x, rtol=1e-15)


def test_what_is_not_finite_stays_in_its_part():
    x = sparse.from_coo((2, 2), [[0, 1], [1, 0]], [complex(np.inf, 1.0), complex(2.0, np.nan)])
    result = sparse.contract("ij->ij", x, form="nary", out="dense")
    np.testing.assert_array_equal([result[0, 1].real, result[0, 1].imag, result[1, 0].real], [np.inf, 1.0, 2.0])
    assert np.isnan(result[1, 0].imag)


def test_a_plan_of_real_operands_takes_complex_ones():
    real, (x, y) = arrays([(4, 5), (5, 3)], "rr"), arrays([(4, 5), (5, 3)], "cr", seed=3)
    chosen = sparse.plan("ij,jk->ik", *real, out="dense")
    np.testing.assert_allclose(chosen.run(x, y), x @ y, rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(sparse.plan("ij,jk->ik", x, y, out="dense").run(*real), real[0] @ real[1], rtol=1e-13)


def test_tensors_hold_complex_numbers(tmp_path):
    (x,) = arrays([(3, 4, 5)], "c", dtype=np.complex64)
    tensor = tensor_of(x).check()
    assert tensor.dtype == np.complex64 and tensor.values.dtype == np.complex128
    for kinds in (("compressed", "dense", "dense"), ("dense", "compressed", "dense"), ("dense",) * 3):
        packed = tensor.repack((2, 0, 1), kinds).check()
        assert packed.to_dense().dtype == np.complex64 and packed.to_coo()[1].dtype == np.complex64
        np.testing.assert_array_equal(packed.to_dense(), x)
    twice = sparse.from_coo((2,), [[1, 1, 0]], [1 + 2j, 3 - 1j, 1j])
    np.testing.assert_array_equal(twice.to_dense(), [1j, 4 + 1j])
    assert tensor.to_scipy().dtype == np.complex64
    np.testing.assert_array_equal(tensor.to_scipy().toarray(), x)


@pytest.mark.parametrize("form", ["csr", "csc", "coo", "bsr", "dia"])
def test_complex_arrays_of_scipy(form):
    a, b = arrays([(4, 6), (6, 5)], "cc")
    held = [scipy.sparse.coo_array(x).asformat(form) for x in (a, b)]
    np.testing.assert_array_equal(sparse.from_scipy(held[0]).to_dense(), a)
    result = sparse.contract("ij,jk->ik", *held, out="sparse")
    assert scipy.sparse.issparse(result) and result.dtype == np.complex128
    np.testing.assert_allclose(result.toarray(), a @ b, rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("name", ["COO", "GCXS"])
def test_complex_arrays_of_pydata(name):
    pydata = pytest.importorskip("sparse", reason="needs PyData's package sparse")
    a, b = arrays([(4, 6), (6, 5)], "cr", dtype=np.complex64)
    result = sparse.contract("ij,jk->ik", *(getattr(pydata, name).from_numpy(x) for x in (a, b)), out="sparse")
    assert type(result) is getattr(pydata, name) and result.dtype == np.complex64
    np.testing.assert_allclose(result.todense(), a @ b, rtol=1e-5, atol=1e-6)


@pytest.mark.filterwarnings("ignore:Sparse CS. tensor support is in beta")
@pytest.mark.parametrize("out", ["dense", "sparse"])
@pytest.mark.parametrize("layout", ["to_dense", "to_sparse_coo", "to_sparse_csr", "to_sparse_csc"])
def test_complex_tensors_of_torch(layout, out):
    torch = pytest.importorskip("torch")
    a, b = arrays([(4, 6), (6, 5)], "cc")
    held = getattr(torch.from_numpy(a), layout)() if layout != "to_dense" else torch.from_numpy(a)
    for other in (torch.from_numpy(b), b, tensor_of(b), torch.from_numpy(b.conj()).conj()):
        result = sparse.contract("ij,jk->ik", held, other, out=out)
        assert result.dtype is torch.complex128
        assert result.layout is (torch.strided if out == "dense" else torch.sparse_coo)
        if out == "sparse":
            torch.sparse_coo_tensor(result.indices(), result.values(), (4, 5), is_coalesced=True, check_invariants=True)
        np.testing.assert_allclose(result.to_dense().numpy(), a @ b, rtol=1e-13, atol=1e-13)
    single = sparse.contract("ij,jk->ik", held.to(torch.complex64), torch.from_numpy(b.real), out=out)
    assert single.dtype is torch.promote_types(torch.complex64, torch.float64)


@pytest.mark.filterwarnings("ignore:Sparse CS. tensor support is in beta")
@pytest.mark.parametrize("out", ["dense", "sparse"])
@pytest.mark.parametrize("layout", ["to_dense", "to_sparse_coo", "to_sparse_csr", "to_sparse_csc"])
def test_derivatives_are_those_of_torch(layout, out):
    torch = pytest.importorskip("torch")
    x, y = (torch.from_numpy(a) for a in arrays([(4, 6), (6, 5)], "cr"))
    held = (getattr(x, layout)() if layout != "to_dense" else x.clone()).requires_grad_()
    real, full, other = y.clone().requires_grad_(), x.clone().requires_grad_(), y.clone().requires_grad_()

    def value(product):
        return (product.to_dense().abs() ** 3).sum()

    found = torch.autograd.grad(value(sparse.contract("ij,jk->ik", held, real, out=out)), (held, real))
    expected = torch.autograd.grad(value(full @ other.to(torch.complex128)), (full, other))
    torch.testing.assert_close(found[0].to_dense(), expected[0] * ((x != 0) | (layout == "to_dense")))
    torch.testing.assert_close(found[1], expected[1])
    assert found[1].dtype is torch.float64


def test_second_derivatives_and_transforms():
    torch = pytest.importorskip("torch")
    x, y = (torch.from_numpy(a).requires_grad_() for a in arrays([(3, 4), (4, 2)], "cc"))
    assert torch.autograd.gradcheck(lambda a, b: sparse.contract("ij,jk->ik", a, b, out="dense"), (x, y))
    assert torch.autograd.gradgradcheck(lambda a, b: sparse.contract("ij,jk->ik", a, b, out="dense"), (x, y))
    batch = torch.stack([x.detach(), 2j * x.detach()])
    mapped = torch.func.vmap(lambda a: sparse.contract("ij,jk->ik", a, y.detach(), out="dense"))(batch)
    torch.testing.assert_close(mapped, batch @ y.detach())


def test_refused():
    (x,) = arrays([(4, 4)], "c")
    with pytest.raises(InputError, match="decompositions are those of real tensors; found complex128"):
        sparse.cp_als(x, 2)
    chosen = sparse.plan("ij,ij->", x, x.copy())
    with pytest.raises(OperandError, match=r"operand 1 .* must have the shape"):
        chosen.run(x, x[:2])
