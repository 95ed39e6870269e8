"""What every backend that has `mp2_gamma` must do; a test module adds it to the contract of all backends."""

from __future__ import annotations

import numpy as np
import pytest

from tests.backends.contract import BackendContract, factor_set
from tests.tolerances import PRODUCT
from trnqc.errors import InputError, MemoryLimit, UnsupportedPrecision


def weighted_products(left, right, direct: float, exchange: float) -> tuple[np.ndarray, np.ndarray]:
    """Γ of the left orbitals by plain einsum, and the sums of the magnitudes of its terms."""
    T = np.einsum("iap,jbp->iajb", left.B, right.B)
    size = np.einsum("iap,jbp->iajb", abs(left.B), abs(right.B))
    occupied = left.eps_occ[:, None, None, None] + right.eps_occ[:, None]
    D = occupied - left.eps_vir[:, None, None] - right.eps_vir
    t, magnitude = direct * T / D, direct * abs(size / D)
    if exchange:
        t = t - exchange * (T / D).transpose(0, 3, 2, 1)
        magnitude = magnitude + exchange * abs(size / D).transpose(0, 3, 2, 1)
    return np.einsum("iajb,jbp->iap", t, right.B), np.einsum("iajb,jbp->iap", magnitude, abs(right.B))


class GammaContract(BackendContract):
    """Collected through subclasses only."""

    def gamma(self, left, right=None, *, direct=1.5, exchange=0.5, **options):
        """Γ of each set, and the names of what ran."""
        sets = [left] if right is None else [left, right]
        sums = [np.zeros(factors.B.shape) for factors in sets]

        def add(side: int, rows: slice, values: np.ndarray) -> None:
            sums[side][rows] += values

        ran_on = self.backend.mp2_gamma(left, right, add, direct=direct, exchange=exchange, **options)
        assert len(ran_on.split()) > 1
        return sums

    @pytest.mark.parametrize("shape", [(1, 1, 1), (4, 5, 13), (11, 7, 30), (2, 129, 140)], ids=str)
    def test_gamma_of_one_set(self, gamma_precision, shape):
        precision = gamma_precision
        factors = factor_set(shape)
        (gamma,) = self.gamma(factors, precision=precision)
        exact, scale = weighted_products(factors, factors, 1.5, 0.5)
        assert np.all(abs(gamma - exact) <= 4 * PRODUCT[precision] * scale)

    @pytest.mark.parametrize("left, right", [((2, 5, 13), (3, 4, 13)), ((1, 130, 20), (2, 127, 20))], ids=str)
    def test_gamma_of_two_spins(self, gamma_precision, left, right):
        precision = gamma_precision
        sets = factor_set(left), factor_set(right)
        gammas = self.gamma(*sets, exchange=0.0, precision=precision)
        for gamma, of, other in ((gammas[0], *sets), (gammas[1], *sets[::-1])):
            exact, scale = weighted_products(of, other, 1.5, 0.0)
            assert np.all(abs(gamma - exact) <= 4 * PRODUCT[precision] * scale)

    def test_gamma_in_blocks_that_fit_a_limit(self):
        precision, factors, seen = self.backend.precisions[0], factor_set((11, 7, 30)), []
        (whole,) = self.gamma(factors, precision=precision)
        (blocks,) = self.gamma(
            factors, precision=precision, max_memory=40_000, progress=lambda *step: seen.append(step)
        )
        assert len(seen) > 3 and seen[-1] == (121, 121)
        assert np.all(abs(whole - blocks) <= 1e-5 * abs(whole).max())
        with pytest.raises(MemoryLimit, match=r"one pair of orbitals needs 0\.0\d+ MB .* the limit is 0\.001 MB"):
            self.gamma(factors, precision=precision, max_memory=1000)

    def test_what_gamma_is_refused(self):
        one = factor_set((1, 1, 1))
        with pytest.raises(InputError, match=r"two spins have no exchange; found the weight 0\.5"):
            self.gamma(one, one, precision="fp32")
        for precision in {"fp64", *self.backend.precisions} - {*self.backend.gamma_precisions}:
            with pytest.raises(UnsupportedPrecision, match=f"computes.*; .*{precision}"):
                self.gamma(one, precision=precision)
