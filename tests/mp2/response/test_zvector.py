"""The Z-vector equations: the response of the Fock matrix, its approximations, and the solution."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.linalg

from tests.mp2.density.references import converged
from trnqc.errors import NotConverged
from trnqc.mp2.reference.spins import spin_orbitals
from trnqc.mp2.response import response as module
from trnqc.mp2.response.fitted import FittedResponse
from trnqc.mp2.response.minimal import MinimalResponse, minimal_response
from trnqc.mp2.response.response import GeneralResponse, response_of
from trnqc.mp2.response.rotations import CanonicalRotations
from trnqc.mp2.response.zvector import ZVectorOptions, direction, solve_z_vector

NAMES = ["water", "water cation"]


class Problem:
    """The equations of a molecule in an electric field, with the matrix of the equations."""

    def __init__(self, name: str, fitted: bool = True) -> None:
        self.mf = converged(name, fitted)
        self.spins = spin_orbitals(self.mf.mo_coeff, self.mf.mo_energy, self.mf.mo_occ)
        self.rotations = CanonicalRotations(self.spins)
        self.response = response_of(self.mf, self.spins, threads=2)
        self.minimal = minimal_response(self.mf, self.spins, np.inf)
        r = self.mf.mol.intor("int1e_r").sum(axis=0)
        self.constant = self.rotations.flat([s.c_vir.T @ r @ s.c_occ for s in self.spins])
        self.densities = [np.zeros((s.nmo, s.nmo)) for s in self.spins]

    def product(self, x, response):
        columns = response.rotation(self.rotations.blocks(x))
        return self.rotations.fock_part(x) + self.rotations.response_part(columns)

    def matrix(self, response):
        return np.array([self.product(x, response) for x in np.eye(len(self.rotations.gap))])

    def solve(self, response, minimal, **options):
        cycles = []
        relaxed = solve_z_vector(
            self.constant,
            self.densities,
            self.spins,
            self.rotations,
            response,
            ZVectorOptions(**options),
            minimal=minimal,
            report=cycles.append,
        )
        blocks = [p[np.ix_(~s.occupied, s.occupied)] for s, p in zip(self.spins, relaxed.densities)]
        return self.rotations.flat(blocks), relaxed, len(cycles)


@pytest.fixture(autouse=True)
def _single_precision(monkeypatch):
    monkeypatch.setattr(module, "MANY", 0)


def test_few_integrals_have_no_single_precision(monkeypatch):
    monkeypatch.undo()
    problem = Problem("water")
    assert problem.mf.with_df._cderi.nbytes < module.MANY
    assert isinstance(problem.response, FittedResponse) and problem.response.rough is None


@pytest.mark.parametrize("name", NAMES)
def test_single_precision_has_five_digits(name):
    problem = Problem(name)
    random = np.random.default_rng(4)
    z = [random.standard_normal((s.nmo - s.nocc, s.nocc)) for s in problem.spins]
    for one, other in zip(problem.response.rotation(z), problem.response.rough.rotation(z)):
        assert 0 < np.abs(other - one).max() < 1e-5 * np.abs(one).max()


def condition(matrix, of):
    """The ratio of the largest and the smallest eigenvalue of `matrix` relative to `of`."""
    eigenvalues = scipy.linalg.eigvalsh((matrix + matrix.T) / 2, (of + of.T) / 2)
    return eigenvalues[-1] / eigenvalues[0]


@pytest.mark.parametrize("name", NAMES)
def test_the_approximate_matrix_is_nearer_to_the_exact_one_than_the_gaps(name):
    problem = Problem(name)
    exact, approximate = problem.matrix(problem.response), problem.matrix(problem.minimal)
    assert np.abs(approximate - approximate.T).max() < 1e-5
    assert condition(exact, approximate) < 0.6 * condition(exact, np.diag(problem.rotations.gap))


@pytest.mark.parametrize(("name", "fitted"), [("water", False), *((name, True) for name in NAMES)])
@pytest.mark.parametrize("approximated", [True, False])
def test_the_solution_is_that_of_the_matrix(name, fitted, approximated):
    problem = Problem(name, fitted)
    x, relaxed, _ = problem.solve(problem.response, problem.minimal if approximated else None, tolerance=1e-12)
    expected = np.linalg.solve(problem.matrix(problem.response), -problem.constant)
    assert np.abs(x - expected).max() < 1e-11
    for columns, exact in zip(relaxed.columns, problem.response.columns(relaxed.densities)):
        assert np.abs(columns - exact).max() < 1e-11


def test_the_approximation_saves_iterations():
    problem = Problem("water cation")
    with_minimal = problem.solve(problem.response, problem.minimal)[2]
    assert with_minimal <= 0.8 * problem.solve(problem.response, None)[2]


class Counted:
    """A response whose products have an error and are counted."""

    def __init__(self, response, error=0.0, rough=None) -> None:
        self._response, self._error, self.rough, self.products = response, error, rough, 0

    def columns(self, densities):
        self.products += 1
        return [g * (1 + self._error) for g in self._response.columns(densities)]

    def rotation(self, z):
        self.products += 1
        return [g * (1 + self._error) for g in self._response.rotation(z)]


def test_products_in_double_precision_are_needed_only_where_the_residual_is_replaced():
    problem = Problem("water")
    response = Counted(problem.response, rough=Counted(problem.response, 1e-6))
    x, *_ = problem.solve(response, problem.minimal, tolerance=1e-9)
    assert np.abs(x - problem.solve(problem.response, None, tolerance=1e-12)[0]).max() < 1e-8
    assert response.products <= 2 < response.rough.products


def test_a_product_that_is_too_rough_is_given_up():
    problem = Problem("water")
    response = Counted(problem.response, rough=Counted(problem.response, 0.1))
    x, *_ = problem.solve(response, problem.minimal, tolerance=1e-11)
    assert np.abs(x - problem.solve(problem.response, None, tolerance=1e-12)[0]).max() < 1e-9
    assert response.products > 3


def test_an_approximation_that_is_not_positive_definite_still_gives_a_direction():
    problem = Problem("water")
    strong = MinimalResponse(problem.mf.mol, problem.spins, exchange=20.0)
    assert np.linalg.eigvalsh(problem.matrix(strong)).min() < 0
    residual = -problem.constant
    assert residual @ direction(residual, problem.rotations, strong) > 0
    x, *_ = problem.solve(problem.response, strong, tolerance=1e-10)
    assert np.abs(x - problem.solve(problem.response, None, tolerance=1e-12)[0]).max() < 1e-9


def test_not_converged():
    problem = Problem("water")
    with pytest.raises(NotConverged, match="have not converged in 2 iterations"):
        problem.solve(problem.response, None, max_cycle=2)


def test_memory_limit():
    """Half-transformed integrals in both precisions, and the approximation, are left out where they do not fit."""
    problem = Problem("water")
    naux = len(problem.mf.with_df._cderi)
    needed = FittedResponse.exact_bytes(naux, problem.spins)
    both = 1.5 * needed
    assert response_of(problem.mf, problem.spins, 2, room=both).rough is not None
    fitted = response_of(problem.mf, problem.spins, 2, room=both - 1)
    assert isinstance(fitted, FittedResponse) and fitted.rough is None
    assert isinstance(response_of(problem.mf, problem.spins, 2, room=needed - 1), GeneralResponse)
    of_minimal = MinimalResponse.memory(problem.mf.mol, problem.spins)
    assert minimal_response(problem.mf, problem.spins, of_minimal) is not None
    assert minimal_response(problem.mf, problem.spins, of_minimal - 1) is None


@pytest.mark.parametrize("name", NAMES)
def test_fitted_response_is_the_general_one(name):
    problem = Problem(name)
    rng = np.random.default_rng(1)
    densities = [rng.standard_normal((s.nmo, s.nmo)) for s in problem.spins]
    densities = [p + p.T for p in densities]
    z = [rng.standard_normal((s.nmo - s.nocc, s.nocc)) for s in problem.spins]
    fitted, general = problem.response, GeneralResponse(problem.mf, problem.spins)
    assert isinstance(fitted, FittedResponse)
    pairs = [*zip(fitted.columns(densities), general.columns(densities)), *zip(fitted.rotation(z), general.rotation(z))]
    for one, other in pairs:
        assert np.abs(one - other).max() < 1e-11


@pytest.mark.parametrize("of", ["get_jk", "loop"])
def test_a_users_j_and_k_are_those_of_the_response(of):
    mf = converged("water", True).copy()
    spins = spin_orbitals(mf.mo_coeff, mf.mo_energy, mf.mo_occ)
    assert isinstance(response_of(mf, spins, threads=1), FittedResponse)
    if of == "get_jk":
        inherited = type(mf).get_jk
        mine = {of: lambda self, *args, **more: inherited(self, *args, **more)}
        mf.__class__ = type("Mine", (type(mf),), mine)
    else:
        mf.with_df = mf.with_df.copy()
        mf.with_df.loop = mf.with_df.loop
    assert isinstance(response_of(mf, spins, threads=1), GeneralResponse)
