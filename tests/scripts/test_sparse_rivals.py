"""Other libraries as contestants: results of TACO's layouts, and what is said where something is not installed."""

from __future__ import annotations

import numpy as np
import pytest

from scripts.sparse import rivals, taco
from trnqc import sparse
from trnqc.errors import InputError


def test_layouts_of_taco():
    """A packed tensor has the elements of ours, and does not free memory that NumPy owns."""
    rng = np.random.default_rng(0)
    dense = rng.random((4, 5, 6)) * (rng.random((4, 5, 6)) < 0.3)
    for order in ((0, 1, 2), (2, 0, 1)):
        packed = taco.Packed.of(rivals.csf(dense, order))
        np.testing.assert_array_equal(packed.to_dense(), dense.transpose(order))
        assert packed.tensor.vals_size == np.count_nonzero(dense)
    full = taco.Packed.of(sparse.from_dense(dense, kinds=("dense",) * 3))
    np.testing.assert_array_equal(taco.Result(full, (1, 2, 0)).to_dense(), dense.transpose(2, 0, 1))


def test_names_of_tensors_in_generated_code():
    text = "int assemble(taco_tensor_t *X, taco_tensor_t *Int) {\n}\nint helper(int a) {\n}\n"
    assert taco.signatures(text) == {"assemble": ("X", "Int")}


def test_what_is_not_installed_is_said(monkeypatch, tmp_path):
    monkeypatch.delenv(taco.VARIABLE, raising=False)
    assert "TACO" in rivals.missing()
    monkeypatch.setenv(taco.VARIABLE, str(tmp_path))
    with pytest.raises(InputError, match="must name a source tree of TACO"):
        rivals.missing()


def test_pairs_of_products_agree_with_numpy():
    rng = np.random.default_rng(1)
    I, C, P = (rng.random(shape) * (rng.random(shape) < 0.5) for shape in ((3, 4, 5), (4, 2), (5, 6)))
    L = rng.random((3, 2)) < 0.7
    operands = {"I": sparse.from_dense(I), "C": sparse.from_dense(C), "P": P, "L": sparse.from_dense(L)}
    for near in (False, True):
        wanted = np.einsum("Kmn,mi,nu,Ki->Kiu", I, C, P, L if near else np.ones_like(L))
        result = rivals.by_pairs(operands, near, lambda a, b: a @ b)()
        np.testing.assert_allclose(result.toarray().reshape(wanted.shape), wanted, atol=1e-14)
