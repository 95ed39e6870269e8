"""Exchange with one integration on a grid: potentials of pairs against PySCF's, K and energies against exact ones."""

from __future__ import annotations

import pickle
from types import SimpleNamespace

import numpy as np
import pytest
from pyscf import dft, gto, scf

import trnqc
from trnqc.eri import get_jk
from trnqc.eri.operators import Operator
from trnqc.eri.seminumerical import grid, work
from trnqc.eri.seminumerical.exchange import LEVEL, SeminumericalExchange
from trnqc.eri.seminumerical.field import Field
from trnqc.eri.seminumerical.grid import POINTS, GridOrbitals, blocks_of, grid_of
from trnqc.eri.seminumerical.overlap_fit import correction
from trnqc.errors import InputError, UnsupportedError
from trnqc.pyscf.exchange import EARLY_LEVEL, EarlyGrid

# s (generally contracted), p and d.
BASIS = [[0, [5.1, 0.2, -0.1], [1.2, 0.7, 0.4], [0.3, 0.2, 0.9]], [1, [0.8, 1.0]], [2, [1.1, 0.6], [0.4, 0.5]]]
PAIR = "H 0 0 0; H 0.3 -0.2 1.1"
WATER = "O 0 0.1 -0.2; H 0.76 0.6 -0.3; H -0.75 0.55 -0.1"
# Hartree an atom: what the energy may differ by from that with exact K.
ACCURATE = 1e-5


def field_by_pyscf(mol: gto.Mole, points: np.ndarray, f: np.ndarray) -> np.ndarray:
    """G [densities, nao, points] of Cartesian functions, from integrals that are stored."""
    return np.einsum("gkl,slg->skg", mol.intor("int1e_grids", grids=points), f, optimize=True)


@pytest.fixture(scope="module")
def lanes() -> int:
    from trnqc.eri.compiled import programs

    return programs.lanes()


@pytest.mark.parametrize("omega", [0.0, 0.4, -0.4], ids=["coulomb", "erf", "erfc"])
@pytest.mark.parametrize("many", [1, 3, 40], ids=["one point", "less than a vector", "several vectors"])
def test_potentials_of_pairs_agree_with_pyscf(omega: float, many: int, lanes: int):
    mol = gto.M(atom=PAIR, basis={"H": BASIS}, cart=True, verbose=0)
    rng = np.random.default_rng(many)
    points = rng.normal(size=(many, 3)) * 2
    points[0] = mol.atom_coords()[1]
    (block,) = blocks_of(points, np.ones(many), lanes)
    f = np.zeros((2, mol.nao, *block.points.shape[1:]))
    g = np.zeros(f.shape)
    f.reshape(2, mol.nao, -1)[..., :many] = rng.normal(size=(2, mol.nao, many))
    Field(mol, Operator.of(mol, omega), 1e-18, 1e-18).add(block, f, g, 1.0)
    with mol.with_range_coulomb(omega):
        expected = field_by_pyscf(mol, points, f.reshape(2, mol.nao, -1)[..., :many])
    # 1e-12 of integrals up to 10 that are summed over 20 functions.
    assert abs(g.reshape(2, mol.nao, -1)[..., :many] - expected).max() < 1e-11


@pytest.mark.parametrize("omega", [0.0, 0.4, -0.4], ids=["coulomb", "erf", "erfc"])
def test_far_points_take_the_asymptotic_form(omega: float, lanes: int):
    mol = gto.M(atom=PAIR, basis={"H": BASIS}, cart=True, verbose=0)
    points = np.array([30.0, 20.0, -50.0]) + np.random.default_rng(1).normal(size=(9, 3))
    (block,) = blocks_of(points, np.ones(9), lanes)
    f, g = np.zeros((2, 1, mol.nao, *block.points.shape[1:]))
    f.reshape(mol.nao, -1)[:, :9] = 1.0
    Field(mol, Operator.of(mol, omega), 1e-30, 1e-30).add(block, f, g, 1.0)
    with mol.with_range_coulomb(omega):
        expected = field_by_pyscf(mol, points, np.ones((1, mol.nao, 9)))
    assert abs(g.reshape(1, mol.nao, -1)[..., :9] - expected).max() < 1e-12


@pytest.mark.slow
def test_high_angular_momenta(lanes: int):
    shells = [[l, [0.9 + 0.1 * l, 1.0]] for l in (0, 3, 4, 5)]
    mol = gto.M(atom=PAIR, basis={"H": shells}, cart=True, verbose=0)
    points = np.random.default_rng(2).normal(size=(10, 3)) * 2
    (block,) = blocks_of(points, np.ones(10), lanes)
    f, g = np.zeros((2, 1, mol.nao, *block.points.shape[1:]))
    f.reshape(mol.nao, -1)[:, :10] = 1.0
    Field(mol, Operator.of(mol), 1e-18, 1e-18).add(block, f, g, 1.0)
    expected = field_by_pyscf(mol, points, np.ones((1, mol.nao, 10)))
    assert abs(g.reshape(1, mol.nao, -1)[..., :10] - expected).max() < 1e-11 * abs(expected).max()


@pytest.mark.parametrize("cart", [False, True], ids=["spherical", "Cartesian"])
def test_k_of_symmetric_antisymmetric_and_general_densities(cart: bool):
    mol = gto.M(atom=PAIR, basis={"H": BASIS}, cart=cart, verbose=0)
    rng = np.random.default_rng(3)
    dms = rng.normal(size=(3, mol.nao, mol.nao)) / mol.nao
    dms[0] += dms[0].T
    dms[1] -= dms[1].T
    exact = scf.hf.get_jk(mol, dms, 0)[1]
    k = SeminumericalExchange(mol, level=4).get_k(dms, 0)
    assert abs(k - exact).max() < 1e-4
    assert abs(k[0] - k[0].T).max() < 1e-12 and abs(k[1] + k[1].T).max() < 1e-12
    small = SeminumericalExchange(mol, level=4).get_k(1e-9 * dms[0])
    assert abs(1e9 * small - k[0]).max() < 1e-5


def test_k_of_complex_densities():
    mol = gto.M(atom=PAIR, basis="sto-3g", verbose=0)
    dm = np.array([[0.8, 0.3 + 0.2j], [0.3 - 0.2j, 0.5]])
    k = SeminumericalExchange(mol, level=4).get_k(dm, 0)
    assert abs(k - get_jk(mol, dm, 0)[1]).max() < 1e-5


def test_bits_do_not_depend_on_threads():
    mol = gto.M(atom=WATER, basis="sto-3g", verbose=0)
    dm = scf.hf.init_guess_by_minao(mol)
    one, three = (SeminumericalExchange(mol, threads=n).get_k(dm) for n in (1, 3))
    assert np.array_equal(one, three)


def test_what_is_left_out_changes_little():
    mol = gto.M(atom="H 0 0 0; H 0 0 1.4; H 0 0 8; H 0 0 9.5; H 0 0 25; H 0 0 26.5", basis="6-31g", verbose=0)
    dm = scf.hf.init_guess_by_minao(mol)
    own, all_pairs = SeminumericalExchange(mol), SeminumericalExchange(mol)
    all_pairs._field = Field(mol, all_pairs.operator, 1e-30, 1e-30)
    difference = own.get_k(dm) - all_pairs.get_k(dm)
    assert 0 < abs(difference).max() < 1e-6
    assert abs(np.sum(difference * dm)) < 1e-8


@pytest.mark.parametrize("kind", [scf.RHF, scf.UHF, scf.ROHF])
def test_energies_agree_to_1e_5_hartree_an_atom(kind):
    spin = 0 if kind is scf.RHF else 1
    mol = gto.M(atom=WATER, basis="6-31g", charge=spin, spin=spin, verbose=0)
    exact = kind(mol).run()
    mf = trnqc.accelerate(kind(mol), exchange="seminumerical").run()
    assert mf.converged and abs(mf.e_tot - exact.e_tot) < mol.natm * ACCURATE
    assert "points" in mf.ran_on


@pytest.mark.parametrize("kind", [scf.RHF, scf.UHF])
def test_an_scf_that_starts_on_a_coarse_grid_has_the_same_energy(kind, monkeypatch: pytest.MonkeyPatch):
    mf = trnqc.accelerate(kind(gto.M(atom=WATER, basis="6-31g", verbose=0)), exchange="seminumerical").run()
    levels: list[int] = []
    own = SeminumericalExchange.get_k
    monkeypatch.setattr(
        SeminumericalExchange, "get_k", lambda self, *args: (levels.append(self.level), own(self, *args))[1]
    )
    early = mf.copy().run()
    assert levels[0] == 1 and levels[-2:] == [2, 2] and early.converged
    assert early.e_tot == pytest.approx(mf.kernel(mf.make_rdm1()), abs=1e-8)
    levels.clear()
    mf.copy().run(mf.make_rdm1())
    mf.copy().run(conv_tol=1e-4)
    mf.copy().run(max_cycle=2)
    assert set(levels) == {2}


def test_range_separation():
    mol = gto.M(atom="H 0 0 0; He 0.1 0 0.9", charge=1, basis="6-31g", verbose=0)
    kohn_sham = dft.RKS(mol, xc="camb3lyp")
    kohn_sham.grids.level = 0
    exact = kohn_sham.copy().run()
    mf = trnqc.accelerate(kohn_sham, exchange="seminumerical").run()
    assert abs(mf.e_tot - exact.e_tot) < mol.natm * ACCURATE


@pytest.mark.parametrize("exchange", ["direct", "seminumerical"])
def test_fitted_j_beside_k_that_is_not(exchange: str):
    # s functions alone, so that few kernels are compiled.
    mol = gto.M(atom="H 0 0 0; He 0.1 0 0.9", charge=1, basis="6-31g", verbose=0)
    fitting = {symbol: [[0, [e, 1.0]] for e in (0.2, 0.6, 1.8, 5.4, 16.0)] for symbol in ("H", "He")}
    exact = scf.RHF(mol).density_fit(auxbasis=fitting, only_dfj=True).run()
    mf = trnqc.accelerate(scf.RHF(mol).density_fit(auxbasis=fitting), exchange=exchange).run()
    assert abs(mf.e_tot - exact.e_tot) < (1e-8 if exchange == "direct" else mol.natm * ACCURATE)


@pytest.mark.slow
def test_benzene():
    mol = gto.M(atom="examples/molecules/benzene.xyz", basis="6-31g*", verbose=0)
    exact = scf.RHF(mol).run()
    k = SeminumericalExchange(mol).get_k(exact.make_rdm1())
    error = 0.25 * np.sum((k - exact.get_k()) * exact.make_rdm1())
    assert abs(error) < mol.natm * ACCURATE


def test_overlap_is_exact_after_the_correction():
    mol = gto.M(atom=WATER, basis="6-31g", verbose=0)
    own = grid_of(mol, 0)
    points, weights = own.points, own.weights
    x = mol.eval_gto("GTOval", points)
    overlap, quadrature = mol.intor("int1e_ovlp"), (x.T * weights) @ x
    p = correction(overlap, quadrature)
    assert abs(quadrature - overlap).max() > 1e-6
    assert abs(p @ quadrature @ p.T - overlap).max() < 1e-12


def test_blocks_hold_every_point_once(lanes: int):
    points = np.random.default_rng(4).normal(size=(3 * POINTS + 5, 3))
    blocks = blocks_of(points, np.arange(1.0, len(points) + 1), lanes)
    weights = np.concatenate([block.weights for block in blocks])
    assert np.array_equal(np.sort(weights[weights > 0]), np.arange(1.0, len(points) + 1))
    for block in blocks:
        distance = np.linalg.norm(block.points.reshape(3, -1).T - block.sphere[:3], axis=1)
        assert distance.max() <= block.sphere[3] * (1 + 1e-12)
    assert blocks_of(points[:0], np.zeros(0), lanes) == ()


def test_orbitals_left_out_are_small(lanes: int):
    mol = gto.M(atom="H 0 0 0; H 0 0 30", basis="6-31g", verbose=0)
    orbitals = GridOrbitals(mol)
    (block,) = blocks_of(np.random.default_rng(5).normal(size=(20, 3)), np.ones(20), lanes)
    which, values = orbitals(block)
    whole = mol.eval_gto("GTOval", np.ascontiguousarray(block.points.reshape(3, -1).T)).T
    assert list(which) == [0, 1]
    assert np.array_equal(values, whole[which]) and abs(whole[2:]).max() < 1e-10


def test_a_grid_without_points_is_refused(monkeypatch: pytest.MonkeyPatch):
    empty = SimpleNamespace(coords=np.zeros((0, 3)), weights=np.zeros(0))
    monkeypatch.setattr(grid, "get_gridss", lambda *arguments, **options: empty)
    with pytest.raises(InputError, match="no points"):
        SeminumericalExchange(gto.M(atom=PAIR, basis="sto-3g", verbose=0))


def test_pickle_and_undo_keep_the_method():
    mf = trnqc.accelerate(scf.RHF(gto.M(atom=PAIR, basis="sto-3g", verbose=0)), exchange="seminumerical")
    assert pickle.loads(pickle.dumps(mf)).exchange == "seminumerical"
    assert "exchange" not in mf.undo().__dict__


def test_auto_takes_the_grid_for_large_molecules_only():
    """The estimates themselves are checked by `scripts.eri.bench_exchange`; here, how they grow."""

    def chain(n: int) -> gto.Mole:
        return gto.M(atom=[("Ne", (2.5 * i, 0, 0)) for i in range(n)], basis="6-31g", verbose=0)

    small, large = chain(2), chain(60)
    assert not work.is_cheaper(small, naux=0) and not work.is_cheaper(small, naux=80)
    assert work.is_cheaper(large, naux=80 * 60)
    mf = trnqc.accelerate(scf.RHF(gto.M(atom=PAIR, basis="sto-3g", verbose=0)), exchange="auto")
    mf.get_k(dm=np.eye(2))
    assert "points" not in mf.ran_on


def test_what_cannot_be_is_refused():
    mol = gto.M(atom=PAIR, basis="sto-3g", verbose=0)
    with pytest.raises(InputError, match="exchange is None or one of"):
        trnqc.accelerate(scf.RHF(mol), exchange="cosx")
    with pytest.raises(InputError, match="needs density fitting"):
        trnqc.accelerate(scf.RHF(mol), exchange="fitted")
    with pytest.raises(InputError, match="level of a grid"):
        SeminumericalExchange(mol, level=9)
    mf = trnqc.accelerate(scf.RHF(mol), exchange="seminumerical")
    with pytest.raises(UnsupportedError, match="Hessians"):
        mf.Hessian()
    assert type(mf.undo()) is type(scf.RHF(mol))


def test_the_last_cycles_of_an_scf_that_stops_are_on_the_usual_grid():
    """Those whose potentials the last orbitals and the energy come from, however much the density still changes."""
    grid, rng = EarlyGrid(4), np.random.default_rng(1)
    levels = []
    for _ in range(5):  # The potential of the initial guess, and one after each cycle.
        grid.observe(rng.standard_normal((2, 2)))
        levels.append(grid.level)
    assert levels == [EARLY_LEVEL] * 3 + [LEVEL] * 2
