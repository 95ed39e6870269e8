"""Decompositions of sparse tensors beside TensorLy's of the same tensors as dense ones."""

from __future__ import annotations

import doctest
import importlib
import re

import numpy as np
import pytest

from examples.data.sparse_tensors import skewed
from trnqc import sparse
from trnqc.errors import InputError
from trnqc.sparse.decompose.start import leading_vectors, unfolded

tl = pytest.importorskip("tensorly.decomposition")
SHAPE, RANK = (13, 7, 11), 3


@pytest.fixture(scope="module")
def tensor():
    return skewed(SHAPE, 90, exponent=1.5)


@pytest.fixture(scope="module")
def start():
    rng = np.random.default_rng(4)
    return [rng.random((extent, RANK)) for extent in SHAPE]


def relative_error(tensor, model):
    array = tensor.to_dense()
    return np.linalg.norm(array - model.to_dense()) / np.linalg.norm(array)


def cp_of(start):
    from tensorly.cp_tensor import CPTensor

    return CPTensor((np.ones(RANK), [factor.copy() for factor in start]))


def test_errors_of_cp_als_are_those_of_tensorly(tensor, start):
    ours = sparse.cp_als(tensor, RANK, n_iter_max=8, init=start, tol=0)
    _, errors = tl.parafac(tensor.to_dense(), RANK, init=cp_of(start), n_iter_max=8, tol=0, return_errors=True)
    np.testing.assert_allclose(ours.errors, errors, rtol=1e-8)
    assert ours.error == pytest.approx(relative_error(tensor, ours), rel=1e-9)
    assert not ours.converged and len(ours.errors) == 8


def test_multiplicative_updates_are_those_of_tensorly(tensor, start):
    positive = sparse.from_coo(SHAPE, tensor.to_coo()[0], abs(tensor.to_coo()[1]))
    ours = sparse.nonneg_cp(positive, RANK, n_iter_max=8, init=start, tol=0, method="mu")
    array = positive.to_dense()
    _, errors = tl.non_negative_parafac(array, RANK, init=cp_of(start), n_iter_max=8, tol=1e-30, return_errors=True)
    np.testing.assert_allclose(ours.errors, errors, rtol=1e-7)


@pytest.mark.parametrize(
    ("shape", "rank", "elements"), [(SHAPE, RANK, 90), ((30, 20, 25), 4, 1000), ((5, 1, 7), 1, 15)]
)
def test_hierarchical_least_squares_are_those_of_tensorly(shape, rank, elements):
    """The default of nonneg_cp. The number of passes over the columns of a factor is that of TensorLy 0.10."""
    from tensorly.cp_tensor import CPTensor

    pytest.importorskip("tensorly", minversion="0.10")
    signed, rng = skewed(shape, elements), np.random.default_rng(4)
    positive = sparse.from_coo(shape, signed.to_coo()[0], abs(signed.to_coo()[1]))
    start = [rng.random((extent, rank)) for extent in shape]
    ours = sparse.nonneg_cp(positive, rank, n_iter_max=8, init=start, tol=0)
    theirs = CPTensor((np.ones(rank), [factor.copy() for factor in start]))
    _, errors = tl.non_negative_parafac_hals(
        positive.to_dense(), rank, init=theirs, n_iter_max=8, tol=1e-30, return_errors=True
    )
    np.testing.assert_allclose(ours.errors[: len(errors)], errors, rtol=1e-8)


@pytest.mark.parametrize("method", ["hals", "mu"])
def test_factors_stay_nonnegative_while_the_error_falls(tensor, start, method):
    positive = sparse.from_coo(SHAPE, tensor.to_coo()[0], abs(tensor.to_coo()[1]))
    model = sparse.nonneg_cp(positive, RANK, n_iter_max=40, init=[-factor for factor in start], tol=0, method=method)
    assert all((factor >= 0).all() for factor in model.factors)
    assert np.all(np.diff(model.errors) <= 1e-12)
    assert model.error == pytest.approx(relative_error(positive, model), rel=1e-9)


def test_hierarchical_least_squares_needs_fewer_sweeps(start):
    exact = np.einsum("ir,jr,kr->ijk", *(np.round(factor[:, :2], 1) for factor in start))
    ends = [sparse.nonneg_cp(exact, 2, n_iter_max=30, tol=0, random_state=1, method=m).error for m in ("hals", "mu")]
    assert ends[0] < 0.5 * ends[1]


def test_tucker_is_that_of_tensorly(tensor):
    ranks, rng = [3, 2, 3], np.random.default_rng(4)
    start = [np.linalg.qr(rng.standard_normal((extent, rank)))[0] for extent, rank in zip(SHAPE, ranks)]
    ours = sparse.tucker_hooi(tensor, ranks, n_iter_max=8, init=start, tol=0)
    begin = (np.zeros(ranks), [factor.copy() for factor in start])
    _, errors = tl.partial_tucker(tensor.to_dense(), ranks, modes=[0, 1, 2], init=begin, n_iter_max=8, tol=0)
    np.testing.assert_allclose(ours.errors, [float(e) for e in errors], rtol=1e-8)
    assert ours.core.shape == tuple(ranks)
    for factor in ours.factors:
        np.testing.assert_allclose(factor.T @ factor, np.eye(factor.shape[1]), atol=1e-12)
    assert ours.error == pytest.approx(relative_error(tensor, ours), rel=1e-8)


@pytest.mark.parametrize("ranks", [[1, 2, 3, 1], [1, 20, 20, 1], [1, 1, 1, 1]], ids=str)
def test_trains_are_those_of_tensorly(tensor, ranks):
    ours = sparse.tensor_train(tensor, ranks)
    theirs = tl.tensor_train(tensor.to_dense(), ranks)
    np.testing.assert_allclose(ours.to_dense(), theirs.to_tensor(), atol=1e-11)
    assert ours.error == pytest.approx(relative_error(tensor, ours), rel=1e-6, abs=1e-7)
    for core in ours.cores[:-1]:
        flat = core.reshape(-1, core.shape[2])
        np.testing.assert_allclose(flat.T @ flat, np.eye(core.shape[2]), atol=1e-12)


def test_a_train_to_a_tolerance(tensor, monkeypatch):
    for tol in (0.5, 0.1, 1e-3):
        train = sparse.tensor_train(tensor, 100, tol)
        assert relative_error(tensor, train) <= tol
        lower = [max(1, rank - 1) for rank in train.ranks[1:-1]]
        assert relative_error(tensor, sparse.tensor_train(tensor, lower)) > relative_error(tensor, train) - 1e-12
    dense = sparse.tensor_train(tensor, 4)
    monkeypatch.setattr(importlib.import_module("trnqc.sparse.decompose.tensor_train"), "DENSE", 0)
    np.testing.assert_allclose(sparse.tensor_train(tensor, 4).to_dense(), dense.to_dense(), atol=1e-10)


def test_a_tensor_of_low_rank_is_recovered_and_the_rest_converges():
    rng = np.random.default_rng(0)
    exact = np.einsum("ir,jr,kr->ijk", *(rng.random((extent, 2)) * (rng.random((extent, 2)) < 0.5) for extent in SHAPE))
    for function in (sparse.cp_als, sparse.nonneg_cp):
        result = function(exact, 2, n_iter_max=400, random_state=1, restarts=3, tol=1e-12)
        assert result.error < 1e-4 and result.error == min(result.restarts) and len(result.restarts) == 3
    tucker = sparse.tucker_hooi(exact, 2)
    assert tucker.error < 1e-7 and tucker.converged


def test_starts_are_reproducible_and_normalised_models_equal(tensor, tmp_path):
    one, two = (sparse.cp_als(tensor, RANK, init="random", random_state=7, n_iter_max=5) for _ in range(2))
    np.testing.assert_array_equal(one.errors, two.errors)
    normal = one.normalised()
    np.testing.assert_allclose(normal.to_dense(), one.to_dense(), atol=1e-12)
    assert np.all(np.diff(abs(normal.weights)) <= 0)
    np.testing.assert_allclose([np.linalg.norm(factor, axis=0) for factor in normal.factors], 1.0)
    one.plot(tmp_path / "course.svg")
    text = (tmp_path / "course.svg").read_text()
    assert len(re.search(r'points="([^"]*)"', text)[1].split()) == 5 and "sweep 1 to 5" in text
    assert "not converged" in str(one)


def test_leading_vectors_of_sparse_matrices():
    matrix = unfolded(skewed((60, 50, 70), 900), 0)
    rng = np.random.default_rng(0)
    vectors = leading_vectors(matrix, 5, rng)
    exact = np.linalg.svd(matrix.toarray())[0][:, :5]
    np.testing.assert_allclose(vectors @ vectors.T, exact @ exact.T, atol=1e-9)
    assert leading_vectors(matrix[:3], 5, rng).shape == (3, 5)


WRONG = [
    (lambda x: sparse.cp_als(x, 0), "rank is a positive"),
    (lambda x: sparse.cp_als(x, 2, init="best"), "init is one of"),
    (lambda x: sparse.cp_als(x, 2, init=[np.ones((2, 2))] * 3), "shapes"),
    (lambda x: sparse.cp_als(x, 2, n_iter_max=0), "n_iter_max"),
    (lambda x: sparse.cp_als(x, 2, tol=-1), "tol"),
    (lambda x: sparse.cp_als(0 * x.to_dense(), 2), "not all zero"),
    (lambda x: sparse.cp_als(x.to_dense()[0, 0], 2), "two or more modes"),
    (lambda x: sparse.nonneg_cp(x, 2, method="als"), "method is one of"),
    (lambda x: sparse.tucker_hooi(x, [2, 2]), "one rank for each"),
    (lambda x: sparse.tucker_hooi(x, [2, 7, 2]), "rank of mode 1 is at most 4"),
    (lambda x: sparse.tensor_train(x, [2]), "2 ranks for 3 modes"),
    (lambda x: sparse.tensor_train(x, 2, tol=1), "tol is a number"),
]


@pytest.mark.parametrize(("call", "message"), WRONG)
def test_what_is_wrong_is_named(tensor, call, message):
    with pytest.raises(InputError, match=message):
        call(tensor)


@pytest.mark.parametrize("name", ["cp", "tensor_train"])
def test_examples_of_docstrings(name):
    result = doctest.testmod(importlib.import_module(f"trnqc.sparse.decompose.{name}"))
    assert result.attempted and not result.failed
