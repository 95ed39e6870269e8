"""Gradients of exchange with one integration on a grid: programs, the overlap fit, and differences of the energy."""

from __future__ import annotations

import numpy as np
import pytest
from pyscf import gto, scf

from tests.eri.test_seminumerical import BASIS, PAIR, WATER
from trnqc.eri.compiled import programs
from trnqc.eri.operators import Operator
from trnqc.eri.seminumerical import gradient
from trnqc.eri.seminumerical.exchange import SeminumericalExchange
from trnqc.eri.seminumerical.field import GradientField
from trnqc.eri.seminumerical.gradient import exchange_gradient
from trnqc.eri.seminumerical.grid import Grid, blocks_of, grid_of, weight_gradient
from trnqc.eri.seminumerical.overlap_fit import correction, correction_gradient
from trnqc.errors import InputError

# Hartree/Bohr: the error of differences of energies is below 1e-8, that of the screening and of the SCF too.
DIFFERENCES = 1e-7
# Hartree/Bohr: what the grid changes.
ACCURATE = 1e-4
# One step of finite differences, in Bohr.
STEP = 2e-3


def derivative(function, mol: gto.Mole, direction: np.ndarray) -> float:
    """The derivative of a function of the molecule along a direction, by four differences."""
    at = mol.atom_coords()

    def f(steps: float) -> float:
        return function(mol.set_geom_(at + steps * STEP * direction, unit="Bohr", inplace=False))

    return (8 * (f(1) - f(-1)) - (f(2) - f(-2))) / (12 * STEP)


def direction(mol: gto.Mole) -> np.ndarray:
    # Displacements, rotations and stretches of all atoms at once, of about one Bohr.
    return np.random.default_rng(7).normal(size=(mol.natm, 3))


def density(mol: gto.Mole, *shape: int) -> np.ndarray:
    half = np.random.default_rng(1).normal(size=(*shape, mol.nao, mol.nao)) / mol.nao
    return half @ half.swapaxes(-1, -2)


def energy(mol: gto.Mole, dm: np.ndarray, omega: float | None = None) -> float:
    product = np.sum(SeminumericalExchange(mol, omega).get_k(dm) * dm)
    return -float(product) / (4 if dm.ndim == 2 else 2)


def exact_gradient(mol: gto.Mole, dm: np.ndarray, omega: float) -> np.ndarray:
    """The gradient of exact exchange, from integrals of PySCF that are stored."""
    with mol.with_range_coulomb(omega):
        integrals = mol.intor("int2e_ip1")
    dms = dm if dm.ndim == 3 else dm[None] / 2**0.5
    by_function = 2 * np.einsum("xijkl,sjk,sil->ix", integrals, dms, dms, optimize=True)
    return np.array([by_function[first:last].sum(axis=0) for first, last in mol.aoslice_by_atom()[:, 2:]])


def check_program(mol: gto.Mole, many: int, omega: float, tolerance: float) -> None:
    """Compare G and the derivatives of sum w F A F / 2 with integrals of PySCF."""
    rng = np.random.default_rng(many)
    points, weights = rng.normal(size=(many, 3)) * 2, rng.normal(size=many)
    points[0] = mol.atom_coords()[1]
    (block,) = blocks_of(points, weights, programs.lanes())
    points, weights = points[block.index], weights[block.index]
    f = np.zeros((2, mol.nao, *block.points.shape[1:]))
    g, forces, pull = np.zeros(f.shape), np.zeros((mol.nbas, 3)), np.zeros(block.points.shape)
    f.reshape(2, mol.nao, -1)[..., :many] = values = rng.normal(size=(2, mol.nao, many))
    GradientField(mol, Operator.of(mol, omega), 1e-18, 1e-18).add_gradient(block, f, g, 1.0, forces, pull)
    with mol.with_range_coulomb(omega):
        potentials = mol.intor("int1e_grids", grids=points)
        moved = -mol.intor("int1e_grids_ip", grids=points)
    expected = np.einsum("gkl,slg->skg", potentials, values, optimize=True)
    terms = np.einsum("xgij,sig,sjg,g->xgi", moved, values, values, weights, optimize=True)
    of_shell = np.repeat(np.arange(mol.nbas), np.diff(mol.ao_loc_nr()))
    by_shell = np.array([terms[..., of_shell == n].sum(axis=(1, 2)) for n in range(mol.nbas)])
    size = max(1.0, abs(by_shell).max())
    assert abs(g.reshape(2, mol.nao, -1)[..., :many] - expected).max() < tolerance * max(1.0, abs(expected).max())
    assert abs(forces - by_shell).max() < tolerance * size
    assert abs(pull.reshape(3, -1)[:, :many] + terms.sum(axis=2)).max() < tolerance * size


@pytest.mark.parametrize("omega", [0.0, 0.4, -0.4], ids=["coulomb", "erf", "erfc"])
@pytest.mark.parametrize("many", [1, 3, 40], ids=["one point", "less than a vector", "several vectors"])
def test_forces_of_pairs_agree_with_pyscf(omega: float, many: int):
    # 1e-13 of integrals up to 10 that are summed over 20 functions.
    check_program(gto.M(atom=PAIR, basis={"H": BASIS}, cart=True, verbose=0), many, omega, 1e-12)


@pytest.mark.slow
def test_high_angular_momenta():
    shells = [[l, [0.9 + 0.1 * l, 1.0]] for l in (0, 3, 5)]
    check_program(gto.M(atom=PAIR, basis={"H": shells}, cart=True, verbose=0), 10, 0.0, 1e-11)


@pytest.mark.parametrize("unresolved", [0, 2], ids=["all resolved", "two beyond the grid"])
def test_derivative_of_the_overlap_fit(unresolved: int):
    rng = np.random.default_rng(5)
    s, v = np.eye(6) + 0.1 * density(gto.M(atom=PAIR, basis="6-31g", verbose=0))[:1, :1], rng.normal(size=(6, 6))
    s = s + 0.3 * (v @ v.T) / 6
    mu = np.array([0.93, 0.97, 1.01, 1.04, 1.1, 1.2])
    mu[:unresolved] = [0.2, 3.0][:unresolved]
    c = np.linalg.cholesky(s)
    q = np.linalg.qr(v)[0]
    n = c @ (q * mu) @ q.T @ c.T
    by_p, ds, dn = rng.normal(size=(3, 6, 6))
    ds, dn = ds + ds.T, dn + dn.T
    by_n, by_s = correction_gradient(s, n, by_p)
    h = 1e-4
    difference = (correction(s + h * ds, n + h * dn) - correction(s - h * ds, n - h * dn)) / (2 * h)
    # The third derivative times h^2.
    assert np.sum(by_p * difference) == pytest.approx(np.sum(by_n * dn) + np.sum(by_s * ds), abs=1e-5)


def test_derivatives_of_weights():
    mol = gto.M(atom=WATER, basis="sto-3g", verbose=0)
    along, c = direction(mol), np.array([0.1, 0.2, -0.3])

    def values(own: Grid) -> np.ndarray:
        return np.exp(-0.5 * ((own.points - c) ** 2).sum(axis=1))

    def integral(m: gto.Mole) -> float:
        return float(grid_of(m, 0).weights @ values(grid_of(m, 0)))

    own = grid_of(mol, 0)
    by_points = -(own.points - c) * (own.weights * values(own))[:, None]
    moved = np.sum(by_points * along[own.atoms])
    weighted = np.sum(weight_gradient(mol, own, values(own)) * along)
    assert abs(weighted) > 0.1
    # PySCF's derivatives differ from differences of its weights by some 1e-6 of their size.
    assert weighted + moved == pytest.approx(derivative(integral, mol, along), abs=1e-5)


@pytest.mark.parametrize("omega", [None, 0.4, -0.4], ids=["coulomb", "erf", "erfc"])
@pytest.mark.parametrize("spins", [(), (2,)], ids=["closed shell", "two spins"])
@pytest.mark.parametrize("cart", [False, True], ids=["spherical", "Cartesian"])
def test_gradient_is_the_derivative_of_the_energy(omega, spins, cart: bool):
    mol = gto.M(atom="H 0 0 0; H 0.3 -0.2 1.1; H 0.9 0.4 0.1", basis={"H": BASIS}, cart=cart, spin=1, verbose=0)
    dm, along = density(mol, *spins), direction(mol)
    own = exchange_gradient(SeminumericalExchange(mol, omega), dm)
    expected = derivative(lambda m: energy(m, dm, omega), mol, along)
    assert np.sum(own * along) == pytest.approx(expected, abs=DIFFERENCES)
    assert abs(own.sum(axis=0)).max() < 1e-11
    assert abs(own - exact_gradient(mol, dm, omega or 0.0)).max() < ACCURATE


def test_ghost_atoms():
    """Fitting functions without a nucleus have points of their own, and forces."""
    mol = gto.M(atom="He 0 0 0; ghost-H 0 0.2 0.9; H 0 0 -0.8", charge=1, basis="6-31g", verbose=0)
    dm, along = density(mol), direction(mol)
    own = exchange_gradient(SeminumericalExchange(mol), dm)
    assert abs(own[1]).max() > 1e-3
    assert np.sum(own * along) == pytest.approx(derivative(lambda m: energy(m, dm), mol, along), abs=DIFFERENCES)


def test_one_atom_has_no_force():
    mol = gto.M(atom="Ne 0.3 0.2 -0.1", basis="6-31g", verbose=0)
    assert abs(exchange_gradient(SeminumericalExchange(mol), density(mol))).max() < 1e-11


def test_bits_do_not_depend_on_threads():
    mol = gto.M(atom=WATER, basis="sto-3g", verbose=0)
    dm = scf.hf.init_guess_by_minao(mol)
    one, three = (exchange_gradient(SeminumericalExchange(mol, threads=n), dm) for n in (1, 3))
    assert np.array_equal(one, three) and abs(one).max() > 0.1


def test_what_is_left_out_changes_little(monkeypatch: pytest.MonkeyPatch):
    mol = gto.M(atom="H 0 0 0; H 0 0 1.4; H 0 0 8; H 0 0 9.5; H 0 0 25; H 0 0 26.5", basis="6-31g", verbose=0)
    dm = scf.hf.init_guess_by_minao(mol)
    own = exchange_gradient(SeminumericalExchange(mol), dm)
    monkeypatch.setattr(gradient, "GradientField", lambda mol, operator: GradientField(mol, operator, 1e-30, 1e-30))
    difference = own - exchange_gradient(SeminumericalExchange(mol), dm)
    assert 0 < abs(difference).max() < DIFFERENCES


def test_a_density_of_zero_and_no_orbitals():
    mol = gto.M(atom=PAIR, basis="sto-3g", verbose=0)
    assert not exchange_gradient(SeminumericalExchange(mol), np.zeros((2, 2))).any()


@pytest.mark.parametrize(
    "dm, words",
    [
        (np.eye(3), "this molecule"),
        (np.zeros((3, 2, 2)), "found \\(3, 2, 2\\)"),
        (1j * np.eye(2), "real densities"),
        (np.array([[0.0, 1.0], [0.0, 0.0]]), "symmetric"),
    ],
    ids=["another molecule", "three densities", "complex", "without symmetry"],
)
def test_other_densities_are_refused(dm: np.ndarray, words: str):
    mol = gto.M(atom=PAIR, basis="sto-3g", verbose=0)
    with pytest.raises(InputError, match=words):
        exchange_gradient(SeminumericalExchange(mol), dm)
