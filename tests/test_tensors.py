"""einsum on the backends: the same numbers to the precision, and clear refusals."""

from __future__ import annotations

import numpy as np
import pytest

from trnqc import tensors
from trnqc.errors import InputError, UnsupportedPrecision

# Products of fp32 numbers of order one over at most a few dozen terms.
SINGLE = {"rtol": 1e-4, "atol": 1e-4}


@pytest.fixture
def operands():
    rng = np.random.default_rng(5)
    return [rng.standard_normal(shape) for shape in ((3, 7, 5), (3, 5, 9), (9, 2))]


def test_the_library_of_the_arrays_is_the_default(operands):
    expected = np.einsum("xab,xbc,cd->xda", *operands)
    np.testing.assert_allclose(tensors.einsum("xab,xbc,cd->xda", *operands), expected, rtol=1e-12, atol=1e-12)
    assert tensors.einsum_plan("xab,xbc,cd->xda", *operands).multiply_adds == 3 * 5 * 9 * 2 + 3 * 7 * 5 * 2


@pytest.mark.parametrize(("backend", "precision", "close"), [
    ("cpu", "fp64", {"rtol": 1e-12, "atol": 1e-12}), ("cpu", "fp32", SINGLE), ("simulator", "fp32", SINGLE),
])  # fmt: skip
def test_backends_multiply_the_matrices(operands, backend, precision, close):
    found = tensors.einsum("xab,xbc,cd->xda", *operands, backend=backend, precision=precision)
    np.testing.assert_allclose(found, np.einsum("xab,xbc,cd->xda", *operands), **close)


def test_refusals(operands):
    with pytest.raises(UnsupportedPrecision):
        tensors.einsum("xab,xbc,cd->xda", *operands, backend="simulator", precision="fp64")
    with pytest.raises(InputError, match="no backend is called 'abacus'"):
        tensors.einsum("xab,xbc,cd->xda", *operands, backend="abacus")
    torch = pytest.importorskip("torch")
    with pytest.raises(InputError, match="takes NumPy arrays; found Tensor"):
        tensors.einsum("xab->x", torch.tensor(operands[0]), backend="cpu")
