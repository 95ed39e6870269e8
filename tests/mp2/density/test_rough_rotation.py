"""Steps of the Z-vector equations in single precision, whose solution has the accuracy of double precision."""

from __future__ import annotations

import numpy as np
import pytest

from tests.mp2.density.references import converged
from trnqc.mp2.density.response import response_of
from trnqc.mp2.density.spins import spin_orbitals
from trnqc.mp2.density.zvector import ZVectorOptions, conjugate_gradients, solve_z_vector


def response_and_orbitals(name, room=np.inf):
    mf = converged(name, fitted=True)
    spins = spin_orbitals(mf.mo_coeff, mf.mo_energy, mf.mo_occ)
    return response_of(mf, spins, threads=2, room=room), spins


def rotations(spins):
    random = np.random.default_rng(4)
    return [random.standard_normal((spin.nmo - spin.nocc, spin.nocc)) for spin in spins]


@pytest.mark.parametrize("name", ["water", "water cation"])
def test_single_precision_has_five_digits(name):
    response, spins = response_and_orbitals(name)
    z = rotations(spins)
    for exact, rough in zip(response.rotation(z), response.rough_rotation(z), strict=True):
        assert 0 < np.abs(rough - exact).max() < 1e-5 * np.abs(exact).max()


def test_the_solution_has_the_accuracy_of_double_precision():
    response, spins = response_and_orbitals("water cation")
    right, options = rotations(spins), ZVectorOptions(tolerance=1e-12)
    with_rough = solve_z_vector(right, spins, response, options)
    response.rough_rotation = None
    for rough, exact in zip(with_rough, solve_z_vector(right, spins, response, options), strict=True):
        assert np.abs(rough - exact).max() < 1e-11


def test_integrals_in_single_precision_count_against_the_memory_limit():
    response, spins = response_and_orbitals("water")
    naux = len(response._rows)
    double = 8 * naux * spins[0].nocc * spins[0].nmo
    assert response_and_orbitals("water", room=double)[0].rough_rotation is None
    single = 4 * naux * (spins[0].nocc * spins[0].nmo + len(spins[0].coefficients) ** 2)
    assert response_and_orbitals("water", room=double + single)[0].rough_rotation is not None


def problem(size=60):
    """A positive definite matrix, and the same with errors of single precision."""
    random = np.random.default_rng(5)
    gap = random.uniform(0.5, 3, size)
    off = random.standard_normal((size, size)) * 0.02
    matrix = np.diag(gap) + off @ off.T
    return matrix, matrix * (1 + 1e-6 * random.standard_normal(matrix.shape)), gap, random.standard_normal(size)


def test_exact_products_are_needed_only_where_the_residual_is_replaced():
    matrix, rough, gap, right = problem()
    exact_products = 0

    def product(z):
        nonlocal exact_products
        exact_products += 1
        return matrix @ z

    z = conjugate_gradients(product, right, gap, ZVectorOptions(1e-12), rough=lambda z: rough @ z)
    assert np.abs(np.linalg.solve(matrix, right) - z).max() < 1e-11
    assert exact_products <= 4


def test_a_product_that_is_too_rough_is_not_used():
    matrix, _, gap, right = problem()
    z = conjugate_gradients(
        lambda z: matrix @ z, right, gap, ZVectorOptions(1e-12), rough=lambda z: 1.01 * (matrix @ z)
    )
    assert np.abs(np.linalg.solve(matrix, right) - z).max() < 1e-11
