"""Early cycles whose direct J and K leave out larger integrals: the same converged numbers, and none at the end."""

from __future__ import annotations

import io

import numpy as np
import pytest
from pyscf import dft, gto, scf

import trnqc
from trnqc.eri.jk.builder import JKBuilder
from trnqc.errors import InputError
from trnqc.pyscf.early import gradient, screening

# Far enough apart that many integrals are below the early tolerance.
MOLECULES = "O 0 0 0.1173; H 0 0.7572 -0.4692; H 0 -0.7572 -0.4692; Ne 6 0 0.1; Ne 9.1 0 1.2"
LOOSE = 1e-6


def direct(method=scf.RHF, **more):
    cation = {"charge": 1, "spin": 1} if method in (scf.UHF, scf.ROHF, dft.UKS) else {}
    mol = gto.M(atom=MOLECULES, basis="6-31g", verbose=0, max_memory=4000, **cation)
    mf = method(mol).set(conv_tol=1e-10, max_cycle=100, **more)
    mf._is_mem_enough = lambda: False
    return mf


@pytest.fixture(autouse=True)
def also_for_small_molecules(monkeypatch):
    monkeypatch.setattr(screening, "SMALLEST", 0)


@pytest.fixture
def cutoffs(monkeypatch):
    """What each direct J and K left out, in order, and the norm of its density."""
    seen: list[tuple[float | None, float]] = []
    get_jk = JKBuilder.get_jk

    def noted(self, dm, hermi=1, with_j=True, with_k=True, cutoff=None):
        seen.append((cutoff, float(np.linalg.norm(dm))))
        return get_jk(self, dm, hermi, with_j, with_k, cutoff)

    monkeypatch.setattr(JKBuilder, "get_jk", noted)
    return seen


def accelerated(mf, tolerance=LOOSE, **options):
    return trnqc.accelerate(mf, early_direct_scf_tol=tolerance, **options)


@pytest.mark.parametrize("method", [scf.RHF, scf.UHF, scf.ROHF], ids=lambda m: m.__name__)
def test_converged_numbers_are_those_without(method, cutoffs):
    early = accelerated(direct(method)).run()
    loose = [cutoff for cutoff, _ in cutoffs]
    # One potential may turn out not to be accurate enough.
    assert 2 < len(early.loose_cycles) <= loose.count(LOOSE) <= len(early.loose_cycles) + 1
    # The last cycle, the one before, and the extra one after convergence.
    assert loose[-3:] == [None] * 3
    norms = [norm for cutoff, norm in cutoffs if cutoff is None]
    whole = float(np.linalg.norm(early.make_rdm1()))
    assert norms[0] == pytest.approx(whole, rel=0.05) and max(norms[1:]) < 0.1 * whole
    late = accelerated(direct(method), 0).run()
    assert late.loose_cycles == [] and "left out" not in late.ran_on
    assert early.converged and abs(early.cycles - late.cycles) <= 1
    assert early.e_tot == pytest.approx(late.e_tot, abs=1e-10)
    assert f"without integrals below {LOOSE:g} in place of 1e-13" in early.ran_on


@pytest.mark.parametrize("xc", ["b3lyp", "camb3lyp", "pbe"])
def test_density_functionals_have_the_energy_of_pyscf(xc, cutoffs):
    mf = direct(dft.RKS, xc=xc)
    mf.grids.level = 1
    early = accelerated(mf).run()
    assert len(early.loose_cycles) > 2 and early.e_tot == pytest.approx(mf.kernel(), abs=1e-9)


def test_exact_exchange_beside_a_fitted_j(cutoffs):
    mf = direct().density_fit(only_dfj=True)
    early = accelerated(mf).run()
    assert len(early.loose_cycles) > 2 and {cutoff for cutoff, _ in cutoffs} == {LOOSE, None}
    assert early.e_tot == pytest.approx(mf.kernel(), abs=1e-9)


@pytest.mark.parametrize("max_cycle", [0, 1, 2, 3, 5])
def test_an_scf_that_stops_early_has_the_energy_of_its_orbitals(max_cycle, cutoffs):
    mf = accelerated(direct().set(max_cycle=max_cycle), 1e-4).run()
    assert not mf.converged
    assert [cutoff for cutoff, _ in cutoffs][-2:] == [None] * min(2, max_cycle + 1)
    assert bool(mf.loose_cycles) == (max_cycle > 1)
    if max_cycle:
        assert mf.e_tot == pytest.approx(mf.energy_tot(mf.make_rdm1()), abs=1e-11)


def test_what_is_computed_between_the_cycles_leaves_out_nothing_more(cutoffs):
    differences = []

    def callback(of_cycle):
        mf, dm = of_cycle["mf"], of_cycle["dm"]
        before = len(cutoffs)
        potential = mf.get_veff(dm=dm)
        assert [cutoff for cutoff, _ in cutoffs[before:]] == [None]
        del cutoffs[before:]
        loose = of_cycle["cycle"] + 1 in mf.loose_cycles
        differences.append((loose, float(np.abs(potential - of_cycle["vhf"]).max())))

    mf = accelerated(direct().set(callback=callback, verbose=4, stdout=io.StringIO()), 1e-7)
    mf.kernel()
    assert max(size for loose, size in differences if not loose) < 1e-11
    assert max(size for loose, size in differences if loose) > 1e-9
    early = [n for n, (cutoff, _) in enumerate(cutoffs) if cutoff]
    assert early[: len(mf.loose_cycles)] == mf.loose_cycles and len(early) <= len(mf.loose_cycles) + 1
    assert "all integrals after cycle" in mf.stdout.getvalue()
    assert mf.run().loose_cycles == []


def test_a_potential_that_is_not_accurate_enough_is_computed_again(monkeypatch, cutoffs):
    monkeypatch.setattr(gradient.GradientWatch, "norm", lambda *_: 1e-9)
    mf = accelerated(direct()).run()
    assert [cutoff for cutoff, _ in cutoffs][:4] == [LOOSE, None, None, None]
    assert mf.converged and mf.loose_cycles == []


def test_a_gradient_that_does_not_become_smaller_ends_early_cycles(monkeypatch, cutoffs):
    monkeypatch.setattr(gradient.GradientWatch, "norm", lambda *_: 1.0)
    mf = accelerated(direct()).run()
    assert mf.converged and len(mf.loose_cycles) == gradient.PATIENCE + 1
    assert mf.e_tot == pytest.approx(accelerated(direct(), 0).kernel(), abs=1e-10)


def test_where_pyscf_serves_no_cycle_is_an_early_one(monkeypatch):
    monkeypatch.setattr("trnqc.pyscf.coulomb_exchange.CoulombExchange._by_pyscf", lambda *_: "PySCF")
    mf = accelerated(direct()).run()
    assert mf.converged and mf.loose_cycles == [] and mf.ran_on == "PySCF"


def test_integrals_in_memory_and_starting_densities_are_left_as_they_are(cutoffs):
    mf = accelerated(direct())
    mf.kernel(mf.get_init_guess())
    assert mf.loose_cycles == [] and {cutoff for cutoff, _ in cutoffs} == {None}
    in_memory = direct()
    del in_memory._is_mem_enough
    assert accelerated(in_memory).run().loose_cycles == []
    assert accelerated(direct(), 1e-13).run().loose_cycles == []


@pytest.mark.parametrize("tolerance", [-1e-9, 0.1, float("nan")])
def test_a_tolerance_is_a_small_number(tolerance):
    with pytest.raises(InputError, match="early_direct_scf_tol is a small number"):
        accelerated(direct(), tolerance)


def test_the_tolerance_survives_copies_and_conversions():
    mf = accelerated(direct(), 1e-7).to_ks("pbe")
    assert mf.early_direct_scf_tol == 1e-7 and mf.density_fit().early_direct_scf_tol == 1e-7
    assert not hasattr(mf.undo(), "early_direct_scf_tol")


@pytest.mark.parametrize("tolerance", [1e-8, 1e-6])
def test_the_error_of_the_gradient_is_within_its_estimate(tolerance):
    mf = direct().run()
    dm, occupied = mf.make_rdm1(), mf.mo_occ > 0
    builder = JKBuilder(mf.mol)
    (j, k), (vj, vk) = builder.get_jk(dm, cutoff=tolerance), builder.get_jk(dm)
    error = (j - vj) - (k - vk) / 2
    assert np.abs(error).max() > 0
    norm = 2 * np.linalg.norm(mf.mo_coeff[:, ~occupied].T @ error @ mf.mo_coeff[:, occupied])
    assert norm < screening.GROWTH * tolerance * mf.mol.nao_nr()
