"""What every backend must do, whatever it runs on. A backend's test module registers itself by subclassing:

class TestMine(BackendContract):
    backend = Mine()

and may narrow the lists of sizes where its machine makes them slow, never the checks.
"""

from __future__ import annotations

import functools
from types import SimpleNamespace
from typing import ClassVar

import numpy as np
import pytest

from tests.tolerances import PAIR_ENERGY, PRODUCT
from trnqc.backends.base import Backend, BackendStatus
from trnqc.errors import MemoryLimit, NotPositiveDefinite, UnsupportedError, UnsupportedPrecision
from trnqc.types import PRECISIONS, PairEnergies


@functools.cache
def random_factors(nocc: int, nvir: int, naux: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """B[nocc, nvir, naux] and orbital energies (Hartree) of a made-up molecule with a gap, elements of T near 0.05."""
    rng = np.random.default_rng([nocc, nvir, naux])
    B = rng.standard_normal((nocc, nvir, naux)) * np.sqrt(0.05) / naux**0.25
    return B, np.sort(-0.4 - rng.random(nocc)), np.sort(0.1 + 2 * rng.random(nvir))


@functools.cache
def reference_pairs(nocc: int, nvir: int, naux: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Lower-triangular E_os, E_ss of whole pairs and the sums of the magnitudes of their terms, by plain einsum."""
    B, eps_occ, eps_vir = random_factors(nocc, nvir, naux)
    T = np.einsum("iap,jbp->ijab", B, B)
    D = eps_occ[:, None, None, None] + eps_occ[:, None, None] - eps_vir[:, None] - eps_vir
    whole = np.tril(2 - np.eye(nocc))
    os = whole * np.einsum("ijab,ijab->ij", T, T / D)
    exchange = whole * np.einsum("ijab,ijba->ij", T, T / D)
    scale = whole * np.einsum("ijab,ijab->ij", abs(T), abs(T / D))
    return os, os - exchange, scale


@functools.cache
def random_spins(m: int, n: int, nvir: tuple[int, int], naux: int) -> tuple[tuple[np.ndarray, ...], ...]:
    """B, occupied and virtual energies of alpha and of beta orbitals."""
    alpha, beta = random_factors(m, nvir[0], naux), random_factors(n, nvir[1], naux)
    return tuple(zip(alpha, beta))


def reference_opposite_spin(spins: tuple[tuple[np.ndarray, ...], ...]) -> np.ndarray:
    """Energies [m, n] of all pairs of opposite spin by plain einsum."""
    B, eps_occ, eps_vir = spins
    T = np.einsum("iap,jbp->ijab", *B)
    D = eps_occ[0][:, None, None, None] + eps_occ[1][:, None, None] - eps_vir[0][:, None] - eps_vir[1]
    return np.einsum("ijab,ijab->ij", T, T / D)


def magnitudes(a_t: np.ndarray, b: np.ndarray) -> np.ndarray:
    """What the error of a product is measured by: the sum of its terms' magnitudes."""
    return np.einsum("...km,...kn->...mn", abs(a_t), abs(b))


def factor_set(size: tuple[int, int, int]) -> SimpleNamespace:
    """The arrays of `random_factors` by the names of a `trnqc.backends.base.FactorSet`."""
    B, eps_occ, eps_vir = random_factors(*size)
    return SimpleNamespace(B=B, eps_occ=eps_occ, eps_vir=eps_vir)


class BackendContract:
    """Collected through subclasses only: its own name does not start with Test."""

    backend: ClassVar[Backend]
    has_blas: ClassVar[bool] = True
    # nocc = 1; nvir = 1; everything 1; primes; one under, on and over a tile of 32 and of 128; naux no multiple of 128.
    sizes: ClassVar[tuple[tuple[int, int, int], ...]] = (
        (1, 1, 1),
        (1, 7, 13),
        (3, 1, 5),
        (4, 31, 128),
        (3, 32, 127),
        (2, 33, 129),
        (5, 67, 131),
        (2, 129, 140),
    )
    gemm_sizes: ClassVar[tuple[tuple[int, int, int], ...]] = ((1, 1, 1), (13, 7, 5), (128, 128, 512), (129, 131, 513))
    batches: ClassVar[tuple[int, ...]] = (1, 3)
    # m, n, virtual orbitals of both spins, naux: one of each; more of either spin; around tiles of 32 and of 128.
    spins: ClassVar[tuple[tuple[int, int, tuple[int, int], int], ...]] = (
        (1, 1, (1, 1), 1),
        (3, 2, (7, 13), 5),
        (2, 3, (33, 31), 129),
        (1, 2, (130, 127), 131),
        (2, 1, (127, 130), 128),
    )

    def pytest_generate_tests(self, metafunc: pytest.Metafunc) -> None:
        cls = metafunc.cls
        for name, values in (
            ("precision", cls.backend.precisions),
            ("gamma_precision", cls.backend.gamma_precisions),
            ("size", cls.sizes),
            ("gemm_size", cls.gemm_sizes),
            ("batch", cls.batches),
            ("spins", cls.spins),
            ("fused", (True, False)),
        ):
            if name in metafunc.fixturenames:
                metafunc.parametrize(name, values, ids=str)

    def test_says_what_it_is(self):
        status = self.backend.status()
        assert isinstance(status, BackendStatus)
        assert status.usable, status.reason
        assert self.backend.precisions and set(self.backend.precisions) <= set(PRECISIONS)

    def test_gemm(self, precision, gemm_size):
        k, m, n = gemm_size
        rng = np.random.default_rng(1)
        a_t, b = rng.standard_normal((k, m)), rng.standard_normal((k, n))
        product = self.backend.gemm(a_t, b, precision=precision)
        assert product.shape == (m, n)
        assert product.dtype == (np.float64 if precision == "fp64" else np.float32)
        assert np.all(abs(product - a_t.T @ b) <= PRODUCT[precision] * magnitudes(a_t, b))

    def test_batched_contraction(self, precision, batch):
        rng = np.random.default_rng(2)
        a_t, b = rng.standard_normal((batch, 67, 19)), rng.standard_normal((batch, 67, 130))
        product = self.backend.batched_contraction(a_t, b, precision=precision)
        assert product.shape == (batch, 19, 130)
        exact = np.einsum("zkm,zkn->zmn", a_t, b)
        assert np.all(abs(product - exact) <= PRODUCT[precision] * magnitudes(a_t, b))

    @pytest.mark.parametrize("scaled", [False, True], ids=["product", "scaled and added"])
    def test_blas_products(self, precision, scaled):
        """One matrix, a stack of matrices, and one triangle of a product with its own transpose."""
        rng = np.random.default_rng(3)
        if not self.has_blas:
            with pytest.raises(UnsupportedError, match="has no"):
                self.backend.blas(precision)
            return
        blas, error = self.backend.blas(precision), PRODUCT[precision]
        alpha, beta = (1.5, -0.5) if scaled else (1.0, 0.0)
        for shape in ((67, 19, 130), (2, 33, 129, 7)):
            *batch, k, m, n = shape
            a_t, b, c = (rng.standard_normal((*batch, *x)) for x in ((k, m), (k, n), (m, n)))
            result = blas.product(a_t, b, c if scaled else None, alpha, beta)
            exact = alpha * np.swapaxes(a_t, -1, -2) @ b + beta * c
            assert result.dtype == (np.float64 if precision == "fp64" else np.float32)
            assert np.all(abs(result - exact) <= error * (abs(alpha) * magnitudes(a_t, b) + abs(beta * c)))
        a_t, c = rng.standard_normal((67, 131)), rng.standard_normal((131, 131))
        result = np.tril(blas.triangle(a_t, c if scaled else None, alpha, beta))
        exact = np.tril(alpha * a_t.T @ a_t + beta * c)
        assert np.all(abs(result - exact) <= error * (abs(alpha) * magnitudes(a_t, a_t) + abs(beta * c)))

    @pytest.mark.parametrize("n", [1, 131])
    def test_blas_factors(self, precision, n):
        """A Cholesky factor, and the solution of its triangular system, by their residuals."""
        if not self.has_blas:
            pytest.skip("this backend has no dense linear algebra, as `test_blas_products` holds")
        blas = self.backend.blas(precision)
        if precision == "bf16x15" and self.backend.name != "cpu":
            with pytest.raises(UnsupportedPrecision, match="rounds its results to parts of eight bits"):
                blas.cholesky(np.eye(n))
            return
        rng = np.random.default_rng(n)
        x, b = rng.standard_normal((n, 2 * n)), rng.standard_normal((n, 3))
        a = x @ x.T / n
        lower = np.asarray(blas.cholesky(a), np.float64)
        assert np.all(np.triu(lower, 1) == 0)
        # Both are sums of products and of a few roundings of their own results.
        assert np.all(abs(lower @ lower.T - a) <= 4 * PRODUCT[precision] * (abs(lower) @ abs(lower).T))
        solution = np.asarray(blas.solve(lower, b), np.float64)
        scale = abs(lower) @ abs(solution) + abs(b)
        assert np.all(abs(lower @ solution - b) <= 8 * PRODUCT[precision] * scale)

    def test_blas_names_the_minor_that_is_not_positive(self, precision):
        a = np.diag([*[1.0] * 129, -1.0, 1.0])
        if not self.has_blas:
            pytest.skip("this backend has no dense linear algebra, as `test_blas_products` holds")
        if precision == "bf16x15" and self.backend.name != "cpu":
            pytest.skip("these backends have no factorisation in bf16x15")
        with pytest.raises(NotPositiveDefinite, match="leading minor of order 130, of 131"):
            self.backend.blas(precision).cholesky(a)

    def test_pair_energies(self, precision, size, fused):
        result = self.backend.pair_step(precision, fused=fused).triangle(*random_factors(*size))
        assert isinstance(result, PairEnergies)
        os, ss, scale = reference_pairs(*size)
        for actual, exact in ((result.os, os), (result.ss, ss)):
            assert actual.shape == exact.shape and actual.dtype == np.float64
            # The same-spin part is a difference of two sums, each with the error of one.
            assert np.all(abs(actual - exact) <= 2 * PAIR_ENERGY[precision] * scale)
            assert np.all(np.triu(actual, 1) == 0)

    def test_says_what_ran(self, precision):
        result = self.backend.pair_step(precision).triangle(*random_factors(1, 7, 13))
        assert len(result.ran_on.split()) > 1

    def test_one_virtual_has_no_same_spin_energy(self, precision):
        result = self.backend.pair_step(precision).triangle(*random_factors(3, 1, 5))
        # T[a,b] with a = b only: direct and exchange terms are the same for every pair.
        assert np.all(abs(result.ss) <= 2 * PAIR_ENERGY[precision] * abs(result.os).max())

    def test_leaves_its_input_alone(self, precision, fused):
        B, eps_occ, eps_vir = (x.copy() for x in random_factors(3, 32, 127))
        self.backend.pair_step(precision, fused=fused).triangle(B, eps_occ, eps_vir)
        for actual, inputs in zip((B, eps_occ, eps_vir), random_factors(3, 32, 127)):
            np.testing.assert_array_equal(actual, inputs)

    def test_repeats_itself_to_the_bit(self, precision, fused):
        first, second = (
            self.backend.pair_step(precision, fused=fused).triangle(*random_factors(3, 32, 127)) for _ in range(2)
        )
        np.testing.assert_array_equal(first.os, second.os)
        np.testing.assert_array_equal(first.ss, second.ss)

    def block(self, rows: slice, columns: slice, size: tuple[int, int, int], **options) -> PairEnergies:
        B, eps_occ, eps_vir = random_factors(*size)
        return self.backend.pair_step(**options).block(B[rows], B[columns], eps_occ[rows], eps_occ[columns], eps_vir)

    @pytest.mark.parametrize(("rows", "columns"), [((2, 3), (0, 1)), ((3, 5), (0, 3)), ((0, 2), (2, 5))])
    def test_a_block_of_pairs(self, precision, fused, rows, columns):
        size, rows, columns = (5, 7, 13), slice(*rows), slice(*columns)
        result = self.block(rows, columns, size, precision=precision, fused=fused)
        for actual, exact in zip((result.os, result.ss), reference_pairs(*size)):
            exact = (exact + exact.T)[rows, columns]
            assert actual.shape == exact.shape and actual.dtype == np.float64
            scale = (reference_pairs(*size)[2] + reference_pairs(*size)[2].T)[rows, columns]
            assert np.all(abs(actual - exact) <= 2 * PAIR_ENERGY[precision] * scale)

    def test_a_block_beyond_tiles(self, precision, fused):
        size = self.sizes[-1]
        result = self.block(slice(1, None), slice(0, 1), size, precision=precision, fused=fused)
        os, ss, scale = (x[1:, :1] for x in reference_pairs(*size))
        assert np.all(abs(result.os - os) <= 2 * PAIR_ENERGY[precision] * scale)
        assert np.all(abs(result.ss - ss) <= 2 * PAIR_ENERGY[precision] * scale)
        assert len(result.ran_on.split()) > 1

    def test_a_block_repeats_itself_to_the_bit(self, precision, fused):
        runs = [
            self.block(slice(2, 4), slice(0, 2), (4, 31, 128), precision=precision, fused=fused, threads=n)
            for n in (1, 2)
        ]
        np.testing.assert_array_equal(runs[0].os, runs[1].os)
        np.testing.assert_array_equal(runs[0].ss, runs[1].ss)

    def test_a_block_reports_progress_to_the_end(self, fused):
        seen = []
        self.block(
            slice(3, 5),
            slice(0, 3),
            (5, 7, 13),
            precision=self.backend.precisions[0],
            fused=fused,
            progress=lambda *step: seen.append(step),
        )
        assert seen[-1] == (6, 6)

    def test_bytes_of_a_block_grow_with_it(self, precision, fused):
        def needed(m: int, n: int, nvir: int = 33, naux: int = 129) -> int:
            return self.backend.pair_step(precision, fused=fused, threads=2).block_bytes(m, n, nvir, naux)

        assert 0 < needed(1, 1) <= needed(2, 1) <= needed(2, 2)
        assert needed(1, 1) < needed(1, 1, nvir=300)

    def test_opposite_spin(self, precision, fused, spins):
        (left, right), eps_occ, eps_vir = arrays = random_spins(*spins)
        result = self.backend.pair_step(precision, fused=fused).opposite_spin(left, right, eps_occ, eps_vir)
        exact = reference_opposite_spin(arrays)
        assert result.os.shape == result.ss.shape == exact.shape and result.os.dtype == np.float64
        assert np.all(abs(result.os - exact) <= 2 * PAIR_ENERGY[precision] * abs(exact))
        assert not result.ss.any() and len(result.ran_on.split()) > 1

    def test_opposite_spin_of_equal_orbitals_is_that_of_the_closed_shell(self, precision, fused):
        B, eps_occ, eps_vir = random_factors(4, 31, 128)
        both = self.backend.pair_step(precision, fused=fused).opposite_spin(
            B, B, (eps_occ, eps_occ), (eps_vir, eps_vir)
        )
        closed, _, scale = reference_pairs(4, 31, 128)
        folded = np.tril(both.os + both.os.T) - np.diag(np.diag(both.os))
        assert np.all(abs(folded - closed) <= 2 * PAIR_ENERGY[precision] * scale)

    def test_opposite_spin_repeats_itself_to_the_bit_and_reports_progress(self, precision, fused):
        (left, right), eps_occ, eps_vir = random_spins(3, 2, (31, 33), 65)
        seen, runs = [], []
        for threads in (1, 2):
            energies = self.backend.pair_step(
                precision, fused=fused, threads=threads, progress=lambda *step: seen.append(step)
            ).opposite_spin(left, right, eps_occ, eps_vir)
            runs.append(energies.os)
        np.testing.assert_array_equal(*runs)
        assert seen[-1] == (6, 6)

    def test_bytes_of_opposite_spin_grow_with_it(self, precision, fused):
        def needed(m: int, n: int, nvir: tuple[int, int] = (33, 31)) -> int:
            return self.backend.pair_step(precision, fused=fused, threads=2).opposite_spin_bytes(m, n, nvir, 129)

        assert 0 < needed(1, 1) <= needed(2, 1) <= needed(2, 2)
        assert needed(1, 1) < needed(1, 1, nvir=(300, 300))

    def test_reports_progress_to_the_end(self, fused):
        seen = []
        self.backend.pair_step(
            self.backend.precisions[0], fused=fused, progress=lambda done, total: seen.append((done, total))
        ).triangle(*random_factors(5, 7, 13))
        assert seen[-1] == (15, 15)
        assert [done for done, _ in seen] == sorted({done for done, _ in seen})

    def test_says_whether_it_has_gamma(self):
        if not self.backend.gamma_precisions:
            with pytest.raises(UnsupportedError, match="has no mp2_gamma"):
                self.backend.mp2_gamma(factor_set((1, 1, 1)), None, print, direct=1, exchange=0, precision="fp32")

    def test_says_whether_it_has_fitted_jk(self):
        if not self.backend.fitted_precisions:
            with pytest.raises(UnsupportedError, match="has no fitted_jk"):
                self.backend.fitted_jk(np.ones((1, 1)), precision="fp32")

    def test_refuses_an_unknown_precision(self):
        arrays = random_factors(1, 1, 1)
        for refused in (
            lambda: self.backend.pair_step("fp8").triangle(*arrays),
            lambda: self.block(slice(0, 1), slice(1, 2), (2, 1, 1), precision="fp8"),
            lambda: self.backend.pair_step("fp8").block_bytes(1, 1, 1, 1),
            lambda: self.backend.gemm(np.eye(2), np.eye(2), precision="fp8"),
            lambda: self.backend.batched_contraction(np.eye(2)[None], np.eye(2)[None], precision="fp8"),
        ):
            with pytest.raises(UnsupportedPrecision, match="fp8"):
                refused()

    def test_refuses_a_limit_that_cannot_do(self, precision, fused):
        with pytest.raises(MemoryLimit) as caught:
            self.backend.pair_step(precision, fused=fused).triangle(*random_factors(3, 32, 127), max_memory=1000)
        assert "the limit is 0.001 MB" in str(caught.value)
        # Needed and allowed: two figures.
        assert sum(word.replace(".", "", 1).isdigit() for word in str(caught.value).split()) >= 2
