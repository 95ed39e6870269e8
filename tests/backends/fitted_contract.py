"""What every backend that has `fitted_jk` must do; a test module adds it to the contract of all backends."""

from __future__ import annotations

import numpy as np
import pytest

from tests.backends.contract import BackendContract
from trnqc.errors import InputError, MemoryLimit, UnsupportedPrecision

# (functions, occupied orbitals, fitting functions): one of each, primes, one over a tile of functions and of pairs.
FITTED_SIZES = [(1, 1, 1), (7, 5, 13), (17, 3, 131), (129, 2, 3)]


def fitted_integrals(nao: int, naux: int) -> tuple[np.ndarray, np.ndarray]:
    """Packed integrals [naux, pairs] and the matrices [naux, nao, nao] of which they are the lower triangles."""
    square = np.random.default_rng([nao, naux]).standard_normal((naux, nao, nao))
    square = square + square.transpose(0, 2, 1)
    return square[:, *np.tril_indices(nao)], square


class FittedContract(BackendContract):
    """Collected through subclasses only."""

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        super().pytest_generate_tests(metafunc)
        if "fitted_precision" in metafunc.fixturenames:
            metafunc.parametrize("fitted_precision", metafunc.cls.backend.fitted_precisions)

    @pytest.mark.parametrize("shape", FITTED_SIZES, ids=str)
    def test_fitted_exchange(self, fitted_precision, shape):
        nao, nocc, naux = shape
        rows, square = fitted_integrals(nao, naux)
        orbitals = np.random.default_rng(1).standard_normal((nao, nocc))
        device = self.backend.fitted_jk(rows, precision=fitted_precision)
        vk = device.exchange(orbitals)
        half, scale = square @ orbitals, np.abs(square) @ np.abs(orbitals)
        exact, scale = (np.einsum("qmi,qli->ml", x, x, optimize=True) for x in (half, scale))
        assert vk.dtype == np.float64 and vk.shape == (nao, nao)
        assert np.all(abs(vk - exact) <= 3 * device.promised * scale)
        np.testing.assert_array_equal(vk, vk.T)

    @pytest.mark.parametrize("shape", FITTED_SIZES, ids=str)
    def test_fitted_coulomb(self, fitted_precision, shape):
        nao, n, naux = shape
        rows, _ = fitted_integrals(nao, naux)
        densities = np.random.default_rng(2).standard_normal((n, rows.shape[1]))
        device = self.backend.fitted_jk(rows, precision=fitted_precision)
        vj, fitted = device.coulomb(densities)
        exact, scale = densities @ rows.T, np.abs(densities) @ np.abs(rows).T
        assert vj.dtype == fitted.dtype == np.float64
        assert np.all(abs(fitted - exact) <= device.promised * scale)
        assert np.all(abs(vj - exact @ rows) <= 2 * device.promised * (scale @ np.abs(rows)))

    def test_no_orbitals_have_no_exchange(self):
        device = self.backend.fitted_jk(fitted_integrals(3, 2)[0], precision=self.backend.fitted_precisions[0])
        np.testing.assert_array_equal(device.exchange(np.zeros((3, 0))), np.zeros((3, 3)))

    def test_fitted_jk_says_how_accurate_it_is(self, fitted_precision):
        device = self.backend.fitted_jk(fitted_integrals(2, 2)[0], precision=fitted_precision)
        assert device.precision == fitted_precision and len(device.label.split()) > 1
        assert 2.0**-24 <= device.rounding < device.promised < 0.1

    @pytest.mark.parametrize("wrong", [np.nan, np.inf])
    def test_fitted_jk_refuses_what_is_not_finite(self, wrong):
        precision = self.backend.fitted_precisions[0]
        rows, _ = fitted_integrals(3, 2)
        device = self.backend.fitted_jk(rows, precision=precision)
        density, orbitals = np.ones((1, 6)), np.ones((3, 2))
        rows[1, 2] = density[0, 4] = orbitals[2, 1] = wrong
        for name, refused in (
            (r"integrals.*\[1, 2\]", lambda: self.backend.fitted_jk(rows, precision=precision)),
            (r"density.*\[0, 4\]", lambda: device.coulomb(density)),
            (r"orbitals.*\[2, 1\]", lambda: device.exchange(orbitals)),
        ):
            with pytest.raises(InputError, match=name):
                refused()

    def test_fitted_jk_refuses_a_limit_and_a_precision_that_cannot_do(self):
        rows, _ = fitted_integrals(7, 13)
        with pytest.raises(MemoryLimit, match=r"limit is 0\.001 MB"):
            self.backend.fitted_jk(rows, precision="fp32", max_memory=1000)
        for precision in ("fp64", "bf16x15"):
            with pytest.raises(UnsupportedPrecision, match=precision):
                self.backend.fitted_jk(rows, precision=precision)
