"""Electrons, energies and potentials of density functionals, beside PySCF's NumInt on the same grid."""

from __future__ import annotations

import pickle
from functools import cache

import numpy as np
import pytest
from pyscf import dft, gto, lib
from pyscf.dft import numint

from trnqc.xc.blocks import Blocks
from trnqc.xc.numint import NumInt

# One shell of each kind: s with two contractions, and p to g.
OXYGEN = [
    [0, [130.7, 0.15, 0.3], [23.8, 0.53, -0.1], [6.44, 0.44, 0.0], [0.3, 0.0, 1.0]],
    [1, [5.0, 0.4], [0.6, 0.7]],
    [2, [1.1, 1.0]],
    [3, [0.9, 1.0]],
    [4, [0.8, 1.0]],
]
HYDROGEN = [[0, [1.2, 0.5], [0.2, 0.6]], [1, [0.8, 1.0]]]
FUNCTIONALS = {"LDA": "lda,vwn", "GGA": "pbe", "MGGA": "r2scan", "hybrid": "b3lyp", "range-separated": "wb97x"}
# In Hartree; PySCF's own screening leaves errors of 1e-13 in small molecules.
ENERGY, POTENTIAL = 1e-10, 1e-9


@cache
def molecule(cartesian: bool = False) -> gto.Mole:
    atoms = "O 0 0 0; H 0 0 1.8; H 1.7 0.2 -0.3"
    return gto.M(atom=atoms, unit="B", basis={"O": OXYGEN, "H": HYDROGEN}, cart=cartesian, verbose=0)


@cache
def grid(points: int, cartesian: bool = False) -> dft.Grids:
    """Random points with weights, a few of them negative."""
    mol, rng = molecule(cartesian), np.random.default_rng(points)
    grids = dft.Grids(mol)
    grids.coords, grids.weights = rng.normal(size=(points, 3)) * 2, rng.uniform(-0.1, 1.0, points)
    return grids


def densities(nao: int, count: int, tagged: bool) -> np.ndarray:
    """Positive densities [count, nao, nao] of three orbitals each, with them as tags if asked for."""
    rng = np.random.default_rng(count)
    c, occ = rng.normal(size=(count, nao, nao)) / nao, np.zeros((count, nao))
    occ[:, :3] = [1.0, 0.9, 0.3]
    dms = np.einsum("npi,ni,nqi->npq", c, occ, c)
    return lib.tag_array(dms, mo_coeff=c, mo_occ=occ) if tagged else dms


def one(dms: np.ndarray) -> np.ndarray:
    """The first density, with its orbitals."""
    if not hasattr(dms, "mo_coeff"):
        return dms[0]
    return lib.tag_array(np.asarray(dms)[0], mo_coeff=dms.mo_coeff[0], mo_occ=dms.mo_occ[0])


def assert_same(ours, theirs):
    for a, b, tolerance in zip(ours, theirs, (ENERGY, ENERGY, POTENTIAL), strict=True):
        assert np.shape(a) == np.shape(b)
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance)


@pytest.mark.parametrize("tagged", [False, True], ids=["matrix", "orbitals"])
@pytest.mark.parametrize("cartesian", [False, True], ids=["spherical", "cartesian"])
@pytest.mark.parametrize("functional", FUNCTIONALS.values(), ids=FUNCTIONALS)
def test_closed_shells(functional, cartesian, tagged):
    mol, grids = molecule(cartesian), grid(401, cartesian)
    dm = one(densities(mol.nao, 1, tagged))
    ours, theirs = NumInt(), numint.NumInt()
    assert_same(ours.nr_rks(mol, grids, functional, dm), theirs.nr_rks(mol, grids, functional, dm))
    assert ours.ran_on == "generated programs"


@pytest.mark.parametrize("tagged", [False, True], ids=["matrix", "orbitals"])
@pytest.mark.parametrize("functional", FUNCTIONALS.values(), ids=FUNCTIONALS)
def test_open_shells(functional, tagged):
    mol, grids = molecule(), grid(401)
    dms = densities(mol.nao, 2, tagged)
    ours, theirs = NumInt(), numint.NumInt()
    assert_same(ours.nr_uks(mol, grids, functional, dms), theirs.nr_uks(mol, grids, functional, dms))
    assert ours.ran_on == "generated programs"


@pytest.mark.parametrize("functional", ["lda,vwn", "r2scan"])
def test_several_densities(functional):
    mol, grids = molecule(), grid(211)
    dms = densities(mol.nao, 6, False)
    ours, theirs = NumInt(), numint.NumInt()
    assert_same(ours.nr_rks(mol, grids, functional, dms[:3]), theirs.nr_rks(mol, grids, functional, dms[:3]))
    pairs = dms.reshape(2, 3, mol.nao, mol.nao)
    assert_same(ours.nr_uks(mol, grids, functional, pairs), theirs.nr_uks(mol, grids, functional, pairs))
    assert_same(ours.nr_vxc(mol, grids, functional, pairs, 1), theirs.nr_vxc(mol, grids, functional, pairs, 1))


@pytest.mark.parametrize("functional", ["lda,vwn", "pbe", "r2scan"])
def test_restricted_open_shells(functional):
    """A density of both spins is split in half, and orbitals of an open shell are shared by the spins."""
    mol, grids = molecule(), grid(211)
    dm = one(densities(mol.nao, 1, False))
    ours, theirs = NumInt(), numint.NumInt()
    assert_same(ours.nr_uks(mol, grids, functional, dm), theirs.nr_uks(mol, grids, functional, dm))
    c, occ = np.linalg.qr(np.random.default_rng(0).normal(size=(mol.nao, mol.nao)))[0], np.zeros(mol.nao)
    occ[:3] = 2, 2, 1
    dms = np.array([(c * (occ > 0)) @ c.T, (c * (occ == 2)) @ c.T])
    dms = lib.tag_array(dms, mo_coeff=c, mo_occ=occ)
    assert_same(ours.nr_uks(mol, grids, functional, dms), theirs.nr_uks(mol, grids, functional, dms))


@pytest.mark.parametrize("functional", ["lda,vwn", "pbe", "r2scan"])
def test_only_the_symmetric_part_counts(functional):
    mol, grids = molecule(), grid(211)
    dm = one(densities(mol.nao, 1, False)) + 1e-3 * np.random.default_rng(0).normal(size=(mol.nao, mol.nao))
    ours, theirs = NumInt(), numint.NumInt()
    assert_same(ours.nr_rks(mol, grids, functional, dm, hermi=0), theirs.nr_rks(mol, grids, functional, dm, hermi=0))


@pytest.mark.parametrize("points", [0, 1, 17, 383, 769])
@pytest.mark.parametrize("functional", ["lda,vwn", "r2scan"])
def test_numbers_of_points(functional, points):
    mol, grids = molecule(), grid(points)
    dm = one(densities(mol.nao, 1, True))
    ours = NumInt().nr_rks(mol, grids, functional, dm)
    if not points:
        assert ours[0] == ours[1] == 0
        assert not ours[2].any()
        return
    assert_same(ours, numint.NumInt().nr_rks(mol, grids, functional, dm))


@pytest.mark.parametrize("functional", ["lda,vwn", "pbe", "r2scan"])
def test_no_density(functional):
    mol, grids = molecule(), grid(211)
    n, energy, v = NumInt().nr_rks(mol, grids, functional, np.zeros((mol.nao, mol.nao)))
    assert n == energy == 0
    assert not v.any()


def test_no_functional():
    mol, grids = molecule(), grid(17)
    dm = one(densities(mol.nao, 1, False))
    assert_same(NumInt().nr_rks(mol, grids, "hf", dm), numint.NumInt().nr_rks(mol, grids, "hf", dm))


def test_a_functional_of_the_laplacian_is_refused():
    mol, grids = molecule(), grid(17)
    with pytest.raises(Exception, match="laplacian in meta-GGA"):
        NumInt().nr_rks(mol, grids, "mgga_x_br89,", one(densities(mol.nao, 1, False)))


def test_complex_densities_are_left_to_pyscf():
    mol, grids = molecule(), grid(17)
    dm = one(densities(mol.nao, 1, False)).astype(complex)
    ours = NumInt()
    assert_same(ours.nr_rks(mol, grids, "pbe", dm), numint.NumInt().nr_rks(mol, grids, "pbe", dm))
    assert ours.ran_on == "PySCF: the density is complex"


def test_a_functional_of_the_user():
    mol, grids = molecule(), grid(211)
    dm = one(densities(mol.nao, 1, False))
    theirs = dft.libxc.define_xc(numint.NumInt(), "0.5*lda + 0.5*pbe, vwn", "GGA")
    ours = NumInt.of(theirs)
    assert_same(ours.nr_rks(mol, grids, "lda", dm), theirs.nr_rks(mol, grids, "lda", dm))
    assert ours.undo().__dict__.keys() == theirs.__dict__.keys()
    assert type(ours.undo()) is numint.NumInt


@pytest.mark.parametrize("tagged", [False, True], ids=["matrix", "orbitals"])
def test_density_on_all_points(tagged):
    mol, grids = molecule(), grid(401)
    dm = one(densities(mol.nao, 1, tagged))
    ours = NumInt().get_rho(mol, dm, grids)
    np.testing.assert_allclose(ours, numint.NumInt().get_rho(mol, dm, grids), rtol=0, atol=1e-10)


@pytest.mark.parametrize("functional", ["pbe", "r2scan"])
def test_the_same_bits_on_any_number_of_threads(functional):
    mol, grids = molecule(), grid(20_000)
    dm = one(densities(mol.nao, 1, True))
    ours, results = NumInt(), []
    for threads in (1, 2, 3):
        with lib.with_omp_threads(threads):
            results.append(ours.nr_rks(mol, grids, functional, dm))
    for other in results[1:]:
        assert all(np.array_equal(a, b) for a, b in zip(results[0], other))


def test_changes_of_the_grid_are_seen():
    mol, ours = molecule(), NumInt()
    grids = grid(211).copy()
    grids.coords, grids.weights = grids.coords.copy(), grids.weights.copy()
    dm = one(densities(mol.nao, 1, False))
    ours.nr_rks(mol, grids, "pbe", dm)
    grids.weights *= 2
    grids.coords[0] += 0.1
    assert_same(ours.nr_rks(mol, grids, "pbe", dm), numint.NumInt().nr_rks(mol, grids, "pbe", dm))


def test_blocks_are_kept():
    mol, ours = molecule(), NumInt()
    dm = one(densities(mol.nao, 1, False))
    ours.nr_rks(mol, grid(211), "pbe", dm)
    kept = ours._blocks.get(mol, grid(211).coords, grid(211).weights, 1)
    ours.nr_rks(mol, grid(17), "pbe", dm)
    assert ours._blocks.get(mol, grid(211).coords, grid(211).weights, 1) is kept
    assert isinstance(kept, Blocks)


def test_pickled():
    ours = pickle.loads(pickle.dumps(NumInt("cached")))
    assert isinstance(ours, NumInt)
    assert ours.kernels == "cached"


def test_programs_that_are_missing_leave_the_work_to_pyscf(tmp_path, monkeypatch):
    monkeypatch.setenv("TRNQC_CACHE_DIR", str(tmp_path))
    mol, grids = molecule(), grid(17)
    dm = one(densities(mol.nao, 1, False))
    ours = NumInt("cached")
    assert_same(ours.nr_rks(mol, grids, "pbe", dm), numint.NumInt().nr_rks(mol, grids, "pbe", dm))
    assert ours.ran_on.startswith("PySCF (kernels='cached'")
