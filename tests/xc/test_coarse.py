"""Early cycles on coarse grids: the numbers are those of the full grid, and what goes wrong on the way is repaired."""

from __future__ import annotations

import copy
import pickle

import numpy as np
import pytest
from pyscf import dft, gto, lib, scf

import trnqc
from trnqc.errors import InputError
from trnqc.pyscf.diis import CDIIS
from trnqc.pyscf.early import gradient, quadrature
from trnqc.xc import coarse
from trnqc.xc.coarse import CoarseIntegrals, coarse_grid

WATER = "O 0 0 0.117; H 0 0.757 -0.470; H 0 -0.757 -0.470"


@pytest.fixture(autouse=True)
def small(monkeypatch):
    """Let small molecules begin on coarse grids too."""
    monkeypatch.setattr(quadrature, "SMALLEST", 0)


def kohn_sham(xc="pbe", method="RKS", basis="6-31g", **more):
    mol = gto.M(atom=WATER, basis=basis, verbose=0, spin=int(method != "RKS"), charge=int(method != "RKS"))
    return getattr(dft, method)(mol, xc=xc).density_fit().set(conv_tol=1e-10, **more)


def both(mf, **options):
    """The SCF with full grids, and that which begins on coarse ones."""
    return tuple(trnqc.accelerate(copy.copy(mf), kernels="wait", early_grid=g, **options) for g in ("full", "coarse"))


@pytest.mark.parametrize("xc", ["lda,vwn", "b3lyp", "r2scan", "wb97x-v"])
@pytest.mark.parametrize("method", ["RKS", "UKS", "ROKS"])
def test_energies_and_orbitals_are_those_of_the_full_grid(method, xc):
    full, early = (mf.run() for mf in both(kohn_sham(xc, method)))
    assert full.converged and early.converged
    assert early.e_tot == pytest.approx(full.e_tot, abs=1e-9)
    assert early.mo_energy == pytest.approx(full.mo_energy, abs=2e-5)
    assert full.coarse_cycles == [] and early.coarse_cycles[0] == 0 and len(early.coarse_cycles) > 1
    # Those that test for convergence, and not the density after it.
    assert max(cycle for cycle in early.coarse_cycles if cycle <= early.cycles) < early.cycles
    assert "on coarse grids" in early.ran_on and "coarse" not in full.ran_on
    assert early._numint.coarse is None
    dm = early.make_rdm1()
    assert early.e_tot == pytest.approx(early.energy_tot(dm, early.get_hcore(), early.get_veff(dm=dm)), abs=1e-11)


def test_the_density_of_an_exact_scf_and_of_a_solvent():
    for mf in (kohn_sham("pbe0").undo_df().set(max_memory=1), kohn_sham("pbe0").PCM()):
        full, early = (each.run() for each in both(mf))
        assert early.coarse_cycles and early.converged
        assert early.e_tot == pytest.approx(full.e_tot, abs=1e-9)
        assert early.dip_moment(verbose=0) == pytest.approx(full.dip_moment(verbose=0), abs=1e-5)


def test_fewer_points_are_integrated_in_most_cycles(monkeypatch):
    sizes, inner = [], trnqc.xc.numint.NumInt._rks

    def counted(self, mol, grids, *args):
        sizes.append(grids.size)
        return inner(self, mol, grids, *args)

    monkeypatch.setattr(trnqc.xc.numint.NumInt, "_rks", counted)
    mf = both(kohn_sham())[1].run()
    assert max(sizes) == mf.grids.size
    assert sizes.count(mf.grids.size) <= 1 + mf.cycles / 2
    assert min(sizes) < coarse.SHARE * mf.grids.size
    # One integration of each density, and another one of those that correct.
    assert len(sizes) <= mf.cycles + 2 + sizes.count(mf.grids.size)


def test_an_scf_that_starts_from_a_density_corrects_at_once():
    full, early = both(kohn_sham())
    dm = full.run().make_rdm1()
    again = early.set()
    again.kernel(dm0=np.array(dm))
    assert 0 not in again.coarse_cycles
    assert again.e_tot == pytest.approx(full.e_tot, abs=1e-9)
    assert again.cycles <= 3


def test_at_the_limit_of_cycles_the_numbers_are_those_of_full_grids():
    full, early = (mf.run(max_cycle=3) for mf in both(kohn_sham("b3lyp")))
    assert not early.converged and early.coarse_cycles == []
    assert early.e_tot == pytest.approx(full.e_tot, abs=1e-11)


@pytest.mark.parametrize("points", [(3, 6), (2, 6)])
def test_a_grid_that_is_of_no_use_is_given_up(monkeypatch, points):
    monkeypatch.setattr(coarse, "_points_of", lambda number: points)
    log = []
    monkeypatch.setattr(lib.logger, "note", lambda mf, words, *args: log.append(words))
    full, early = (mf.run() for mf in both(kohn_sham()))
    assert early.converged and early.coarse_cycles == []
    assert early.e_tot == pytest.approx(full.e_tot, abs=1e-10)
    assert any("full grids" in words for words in log)


def test_an_scf_that_stalls_goes_on_with_full_grids(monkeypatch):
    full, early = both(kohn_sham())
    monkeypatch.setattr(quadrature.EarlyQuadrature, "_gradient", lambda self, *args: 9.0)
    early.run(max_cycle=30)
    assert set(early.coarse_cycles) <= {*range(gradient.PATIENCE + 1), early.cycles + 1}
    assert early.converged and early.e_tot == pytest.approx(full.run().e_tot, abs=1e-9)


@pytest.mark.parametrize("level", [0, 2])
def test_a_grid_that_is_coarse_already_has_no_coarser_one(level):
    mf = both(kohn_sham())[1]
    mf.grids.level = level
    assert mf.run().converged and bool(mf.coarse_cycles) == (level == 2)


def test_fractional_occupations():
    full, early = (scf.addons.smearing_(mf, sigma=0.05, method="fermi").run() for mf in both(kohn_sham("b3lyp")))
    assert early.converged and early.e_tot == pytest.approx(full.e_tot, abs=1e-8)


def test_what_the_user_has_replaced_sees_full_grids_only():
    class Mine(dft.rks.RKS):
        def get_veff(self, *args, **options):
            return super().get_veff(*args, **options)

    mol = gto.M(atom=WATER, basis="6-31g", verbose=0)
    mf = trnqc.accelerate(Mine(mol, xc="pbe"), kernels="wait").run()
    assert mf.converged and mf.coarse_cycles == []


def test_the_option_survives_copies_and_is_checked():
    mf = both(kohn_sham().undo_df())[0]
    assert pickle.loads(pickle.dumps(mf)).early_grid == "full"
    assert "early_grid" not in mf.undo().__dict__
    with pytest.raises(InputError, match="early_grid is coarse or full, found 'fine'"):
        trnqc.accelerate(kohn_sham(), early_grid="fine")


def test_a_correction_is_exact_for_its_density_and_of_first_order_beside_it():
    mf = both(kohn_sham("b3lyp"))[0].run()
    mf.grids.build()
    ni, integrals = mf._numint, CoarseIntegrals()
    first, step = mf.make_rdm1(), mf.get_init_guess() - mf.make_rdm1()
    integrals.active = True

    def errors(density):
        def on(grids):
            return ni.nr_rks(mf.mol, grids, mf.xc, density)

        found, exact = integrals.integrals(mf.grids, density, on), on(mf.grids)
        return abs(found[1] - exact[1]), np.abs(found[2] - exact[2]).max()

    uncorrected = errors(first)
    integrals.refine((mf.grids,))
    assert errors(first) == pytest.approx((0, 0), abs=1e-11)
    wide, narrow = (errors(first + f * step) for f in (0.02, 0.002))
    assert wide[1] < 0.1 * uncorrected[1]
    # The error of the energy is of second order in the change, that of the potential of first order.
    assert narrow[0] < wide[0] / 50 and narrow[1] < wide[1] / 5


@pytest.mark.parametrize("xc", ["pbe", "r2scan"])
def test_the_error_of_a_corrected_potential_is_below_its_estimate(monkeypatch, xc):
    """The orbital gradient of the error, at the density of each cycle."""
    mf = both(kohn_sham(xc))[1]
    inner, ratios = quadrature.EarlyQuadrature._error, []

    def compared(self, dm):
        estimate, last = inner(self, dm), next(iter(self._integrals._last.values()))
        error = last.compute(mf.grids)[2] - last.returned[2]
        ratios.append(np.linalg.norm(mf.get_grad(dm.mo_coeff, dm.mo_occ, error)) / estimate)
        return estimate

    monkeypatch.setattr(quadrature.EarlyQuadrature, "_error", compared)
    assert mf.run().converged
    assert len(ratios) > 1 and max(ratios) < 1.0 and min(ratios) > 0.01


def test_a_coarse_grid_has_the_settings_of_the_full_one():
    grids = dft.Grids(gto.M(atom="Fe 0 0 0; ghost-H 0 0 2", basis="sto-3g", verbose=0)).set(prune=None)
    found = coarse_grid(grids.build())
    assert found.prune is None and found.atom_grid["Fe"] == (40, 110)
    assert found.size < 0.2 * grids.size


def test_fock_matrices_that_are_kept_get_the_correction():
    """Their error vectors are then those of the corrected matrices."""
    rng = np.random.default_rng(0)
    s, c, change = np.eye(4), np.linalg.qr(rng.normal(size=(4, 4)))[0], rng.normal(size=(4, 4))
    change += change.T
    matrices = [(d + d.T, f + f.T) for d, f in rng.normal(size=(5, 2, 4, 4))]

    def run(focks, changes):
        diis = CDIIS(None, None, c)
        diis.space, diis._early = 3, changes
        for density, fock in zip((d for d, _ in matrices), focks):
            result = diis.update(s, density, fock)
        return result

    class Changes:
        calls = 0

        def take_change(self):
            self.calls += 1
            return change if self.calls == len(matrices) else None

    expected = run([f + change for _, f in matrices[:-1]] + [matrices[-1][1]], None)
    found = run([f for _, f in matrices], Changes())
    assert found == pytest.approx(expected, abs=1e-10)


def test_the_layer_has_no_names_by_which_pyscf_knows_other_objects():
    """Converters take an object with the attribute `_scf` for a second-order solver."""
    mf = both(kohn_sham("lda,vwn"))[1].run()
    assert not hasattr(mf, "_scf")
    assert mf.to_rks().xc == "lda,vwn"
