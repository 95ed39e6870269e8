"""Integration grids with a compiled partition: PySCF's points, order and weights."""

from __future__ import annotations

import pickle

import numpy as np
import pytest
from pyscf import dft, gto, lib
from pyscf.dft import gen_grid, radi

import trnqc
from trnqc.xc.grids import accelerate_grids, box_order, undo_grids

MOLECULES = {
    "one atom": "He 0.1 0.2 0.3",
    "two atoms": "H 0 0 0; F 0 0 0.9",
    "three elements": "O 0 0 0; H 0 0 1; C 0 1.4 0; Cl 9 1 0",
    "ghost": "O 0 0 0; ghost-H 0 0 1; H 0 1 0; H 3 3 3",
}
# Weights are volumes (a few of them negative) times shares between 0 and 1, which differ by rounding.
SHARE = 1e-13


def pair(mol: gto.Mole, **settings) -> tuple[dft.Grids, dft.Grids]:
    grids = dft.Grids(mol), accelerate_grids(dft.Grids(mol))
    for one in grids:
        one.level = 0
        for name, value in settings.items():
            setattr(one, name, value)
    return grids


def assert_same(theirs: dft.Grids, ours: dft.Grids) -> None:
    np.testing.assert_array_equal(ours.coords, theirs.coords)
    np.testing.assert_array_equal(ours.atm_idx, theirs.atm_idx)
    np.testing.assert_array_equal(ours.quadrature_weights, theirs.quadrature_weights)
    assert (np.abs(ours.weights - theirs.weights) <= SHARE * np.abs(theirs.quadrature_weights)).all()


def molecule(atoms: str) -> gto.Mole:
    return gto.M(atom=atoms, basis="sto-3g", spin=None, verbose=0)


@pytest.mark.parametrize("atoms", MOLECULES.values(), ids=MOLECULES)
@pytest.mark.parametrize("adjust", [None, radi.treutler_atomic_radii_adjust, radi.becke_atomic_radii_adjust])
@pytest.mark.parametrize("scheme", [gen_grid.original_becke, gen_grid.stratmann])
def test_weights_are_those_of_pyscf(atoms, adjust, scheme) -> None:
    theirs, ours = pair(molecule(atoms), radii_adjust=adjust, becke_scheme=scheme)
    assert_same(theirs.build(with_non0tab=True), ours.build(with_non0tab=True))
    np.testing.assert_array_equal(ours.non0tab, theirs.non0tab)


def test_products_that_end_early_change_nothing() -> None:
    """In a lattice of 60 atoms most products are negligible."""
    atoms = [("CNO"[n % 3], (2.1 * (n % 4), 2.3 * (n // 4 % 4), 2.2 * (n // 16) + 0.01 * n)) for n in range(60)]
    theirs, ours = pair(gto.M(atom=atoms, basis="sto-3g", spin=None, verbose=0), atom_grid=(12, 38))
    assert_same(theirs.build(), ours.build())
    assert np.count_nonzero(np.abs(ours.weights) < 1e-20 * np.abs(ours.quadrature_weights)) > ours.size // 50


def test_atoms_that_are_equally_near_share_a_point() -> None:
    """The centre of a ring of 24 equal atoms, where every product is 2^-23 and none is negligible."""
    angles = 2 * np.pi * np.arange(24) / 24
    ring = gto.M(atom=[("H", (9 * np.cos(a), 9 * np.sin(a), 0)) for a in angles], basis="sto-3g", verbose=0)
    centre = {"H": (np.zeros((1, 3)) - ring.atom_coord(0), np.ones(1))}
    weights = accelerate_grids(dft.Grids(ring)).get_partition(ring, centre, None, concat=False)[1]
    assert weights[0][0] == pytest.approx(1 / 24, abs=1e-12)


@pytest.mark.parametrize("settings", [{"prune": None, "atom_grid": (7, 50)}, {"alignment": 1}, {"level": 1}], ids=str)
def test_other_settings(settings) -> None:
    theirs, ours = pair(molecule(MOLECULES["three elements"]), **settings)
    assert_same(theirs.build(sort_grids=False), ours.build(sort_grids=False))
    assert_same(theirs.build(), ours.build())


def test_other_schemes_are_left_to_pyscf() -> None:
    theirs, ours = pair(molecule(MOLECULES["three elements"]), becke_scheme=gen_grid.becke_lko)
    assert_same(theirs.build(), ours.build())


def test_threads_do_not_change_weights() -> None:
    grids = accelerate_grids(dft.Grids(molecule(MOLECULES["three elements"])))
    with lib.with_omp_threads(1):
        one = grids.build().weights
    with lib.with_omp_threads(2):
        np.testing.assert_array_equal(grids.build().weights, one)


def test_order_of_boxes() -> None:
    mol = molecule(MOLECULES["three elements"])
    points = np.random.default_rng(0).normal(0, 6, (5000, 3))
    np.testing.assert_array_equal(box_order(mol, points), gen_grid.arg_group_grids(mol, points))


def test_the_layer_comes_off_and_survives_pickling() -> None:
    theirs, ours = pair(molecule(MOLECULES["two atoms"]))
    assert accelerate_grids(ours) is ours
    assert type(undo_grids(ours)) is dft.Grids
    assert undo_grids(ours).level == 0
    assert undo_grids(theirs) is theirs
    again = pickle.loads(pickle.dumps(ours))
    assert_same(theirs.build(), again.build())
    assert type(again).__name__ == type(ours).__name__ == "AcceleratedGrids"


def test_pyscf_serves_where_nothing_may_be_compiled(monkeypatch, tmp_path) -> None:
    monkeypatch.setenv("TRNQC_CACHE_DIR", str(tmp_path))
    theirs = dft.Grids(molecule(MOLECULES["two atoms"]))
    theirs.level = 0
    ours = accelerate_grids(theirs, "cached")
    assert_same(theirs.build(), ours.build())
    assert not list(tmp_path.rglob("partition*"))


def test_kohn_sham_objects_have_the_layer() -> None:
    mf = trnqc.accelerate(molecule(MOLECULES["two atoms"]).RKS(xc="b97m_v"))
    for grids in (mf.grids, mf.nlcgrids):
        assert type(grids).__name__ == "AcceleratedGrids"
        assert grids.build().size
    assert type(mf.undo().grids) is type(mf.undo().nlcgrids) is dft.Grids
    assert "grids" not in trnqc.accelerate(molecule(MOLECULES["two atoms"]).RHF()).__dict__
