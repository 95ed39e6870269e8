"""Excited states whose products with trial vectors are in single precision: PySCF's states."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest
from pyscf import dft, gto, lib, scf

import trnqc
from tests.eri.test_transitions import KINDS, densities
from trnqc.pyscf import excitations
from trnqc.pyscf.excitations import single_precision

WATER = "O 0 0 0; H 0 0.757 0.587; H 0 -0.757 0.587"


@pytest.fixture(autouse=True)
def of_any_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(excitations, "SMALLEST", 1)


def mean_field(xc: str, spin: int = 0, fitted: bool = True, **options: Any) -> scf.hf.SCF:
    mol = gto.M(atom=WATER, basis="6-31g", spin=spin, charge=spin, verbose=0, **options)
    if xc == "hf":
        mf = (scf.UHF if spin else scf.RHF)(mol)
    else:
        mf = (dft.UKS if spin else dft.RKS)(mol, xc=xc)
        mf.grids.level = 0
    return (mf.density_fit() if fitted else mf).run()


@pytest.fixture(scope="module")
def b3lyp() -> scf.hf.SCF:
    return mean_field("b3lyp")


@pytest.mark.parametrize(
    ("xc", "way", "spin"),
    [
        ("b3lyp", "TDA", 0),
        ("b3lyp", "TDDFT", 0),
        ("b3lyp", "TDA", 1),
        ("b3lyp", "TDDFT", 1),
        ("camb3lyp", "TDDFT", 0),
        ("pbe", "CasidaTDDFT", 0),
        ("pbe", "TDDFT", 1),
        ("tpss", "TDA", 0),
        ("lda,vwn", "TDDFTNoHybrid", 0),
        ("hf", "TDA", 0),
        ("hf", "TDHF", 1),
    ],
)
def test_states_are_pyscfs(xc: str, way: str, spin: int) -> None:
    mf = mean_field(xc, spin)
    theirs, ours = getattr(mf, way)(), getattr(trnqc.accelerate(mf), way)()
    for td in (theirs, ours):
        td.run(nstates=4)
    assert ours.ran_on.startswith("products in single precision")
    assert ours.converged.all() and isinstance(ours, type(theirs))
    # The error of an energy is about the square of the residual, for which the threshold is 1e-5.
    assert np.abs(ours.e - theirs.e).max() < 1e-7
    if not spin and way != "TDA":
        assert np.abs(ours.oscillator_strength() - theirs.oscillator_strength()).max() < 1e-4


@pytest.mark.parametrize("singlet", [True, False])
def test_the_last_products_are_in_double_precision(b3lyp: scf.hf.SCF, singlet: bool) -> None:
    """The residuals of the result are those of products in double precision, and below the threshold."""
    td = trnqc.accelerate(b3lyp).TDA()
    td.singlet, td.nstates = singlet, 4
    td.kernel()
    reference = b3lyp.TDA()
    reference.singlet = singlet
    vectors = np.array([x.ravel() for x, _ in td.xy]) * np.sqrt(2)
    residuals = reference.gen_vind()[0](vectors) - td.e[:, None] * vectors
    assert np.linalg.norm(residuals, axis=1).max() <= td.conv_tol


def test_few_products_are_in_double_precision(b3lyp: scf.hf.SCF, monkeypatch: pytest.MonkeyPatch) -> None:
    mf = trnqc.accelerate(b3lyp)
    counts = {np.float32: 0, np.float64: 0}
    response = type(mf._numint)._response

    def counted(self: Any, mol: Any, grids: Any, kind: str, dms: Any, fxc: np.ndarray) -> np.ndarray:
        counts[self.response_precision] += len(dms)
        return response(self, mol, grids, kind, dms, fxc)

    monkeypatch.setattr(type(mf._numint), "_response", counted)
    mf.TDA().run(nstates=3)
    first = len(mf.TDA().get_init_guess(mf, 3))
    assert counts[np.float64] == first + 3 < counts[np.float32]


@pytest.mark.parametrize("kind", KINDS)
def test_fitted_j_and_k(b3lyp: scf.hf.SCF, kind: str) -> None:
    mf = trnqc.accelerate(b3lyp)
    dms = densities(kind, mf.mo_coeff[:, mf.mo_occ > 0], mf.mo_coeff[:, mf.mo_occ == 0], 3)
    exact = mf.get_jk(mf.mol, dms, hermi=0)
    with single_precision(mf):
        rounded = mf.get_jk(mf.mol, dms, hermi=0)
    for one, other in zip(exact, rounded):
        assert other.dtype == np.float64
        assert np.abs(one - other).max() <= 1e-6 * np.abs(one).max()
        assert (one != other).any() or not one.any()  # J of an antisymmetric density is zero.


@pytest.mark.parametrize("xc", ["lda,vwn", "pbe", "tpss"])
def test_response_of_a_functional(b3lyp: scf.hf.SCF, xc: str) -> None:
    mf = trnqc.accelerate(b3lyp)
    dms = densities("two-sided", mf.mo_coeff[:, mf.mo_occ > 0], mf.mo_coeff[:, mf.mo_occ == 0], 2)
    exact = mf._numint.nr_rks_fxc(mf.mol, mf.grids, xc, mf.make_rdm1(), dms)
    with single_precision(mf):
        rounded = mf._numint.nr_rks_fxc(mf.mol, mf.grids, xc, mf.make_rdm1(), dms)
    assert rounded.dtype == np.float64
    assert 0 < np.abs(exact - rounded).max() < 1e-5 * np.abs(exact).max()


def test_the_same_bits_for_any_number_of_threads(b3lyp: scf.hf.SCF) -> None:
    mf = trnqc.accelerate(b3lyp)
    energies = []
    for threads in (1, 2, 3):
        with lib.with_omp_threads(threads):
            energies.append(mf.TDDFT().run(nstates=4).e)
    assert all(np.array_equal(energies[0], each) for each in energies)


REASONS = ("start from", "early_precision", "small", "gen_vind", "conv_tol", "neither", "irreducible")


@pytest.mark.parametrize("reason", REASONS)
def test_double_precision(b3lyp: scf.hf.SCF, reason: str, monkeypatch: pytest.MonkeyPatch) -> None:
    special = {"neither": {"xc": "hf", "fitted": False}, "irreducible": {"xc": "b3lyp", "symmetry": True}}
    mf = trnqc.accelerate(mean_field(**special[reason]) if reason in special else b3lyp)
    td, x0 = mf.TDA(), None
    if reason == "start from":
        reason, x0 = "starts from vectors of the user", td.get_init_guess(mf, 3)
    elif reason == "early_precision":
        mf.early_precision = "fp64"
    elif reason == "small":
        monkeypatch.setattr(excitations, "SMALLEST", 100)
    elif reason == "gen_vind":
        products = td.gen_vind()
        td.gen_vind = lambda mf=None: products
    elif reason == "conv_tol":
        td.conv_tol = 1e-9
    energies = td.kernel(x0, 3)[0]
    assert td.ran_on.startswith("double precision") and reason in td.ran_on
    assert np.abs(energies - b3lyp.TDA().run(nstates=3).e).max() < 1e-6 or reason == "neither"


def test_states_that_do_not_converge_in_single_precision(b3lyp: scf.hf.SCF) -> None:
    """They are computed anew in double precision."""
    theirs, ours = b3lyp.TDA(), trnqc.accelerate(b3lyp).TDA()
    for td in (theirs, ours):
        td.run(nstates=3, max_cycle=2)
    assert ours.ran_on == "double precision: the states have not converged in single precision"
    assert not ours.converged.any() and np.abs(ours.e - theirs.e).max() < 1e-9


def test_a_solver_that_fails_in_single_precision(b3lyp: scf.hf.SCF, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(self: Any, trials: Any) -> None:
        raise np.linalg.LinAlgError("Eigenvalues did not converge")

    monkeypatch.setattr(excitations._RoundedProducts, "__call__", fail)
    td = trnqc.accelerate(b3lyp).TDA().run(nstates=3)
    assert td.ran_on == "double precision: Eigenvalues did not converge"
    assert np.abs(td.e - b3lyp.TDA().run(nstates=3).e).max() < 1e-9


def test_nothing_stays_behind(b3lyp: scf.hf.SCF) -> None:
    mf = trnqc.accelerate(b3lyp)
    td = mf.TDA().run(nstates=2)
    assert mf._numint.response_precision is mf.with_df.response_precision is np.float64
    assert td.conv_tol == 1e-5 and td.verbose == 0 and "gen_vind" not in td.__dict__
    with pytest.raises(ZeroDivisionError), single_precision(mf):
        raise ZeroDivisionError
    assert mf._numint.response_precision is mf.with_df.response_precision is np.float64


def test_copies(b3lyp: scf.hf.SCF) -> None:
    td = trnqc.accelerate(b3lyp).TDA().run(nstates=2)
    assert type(td.undo()) is type(b3lyp.TDA()) and not hasattr(td.undo(), "ran_on")
    copied = td.copy().run(nstates=2)
    np.testing.assert_array_equal(copied.e, td.e)
    assert copied.ran_on.startswith("products in single precision")
    td = trnqc.accelerate(mean_field("lda,vwn", fitted=False)).TDA().run(nstates=2)
    assert pickle.loads(pickle.dumps(td)).kernel(nstates=2)[0] == pytest.approx(td.e, abs=1e-9)


def test_a_functional_that_is_exact_exchange() -> None:
    mol = gto.M(atom=WATER, basis="6-31g", verbose=0)
    mf = dft.RKS(mol, xc="hf").density_fit().run()
    td = trnqc.accelerate(mf).TDDFT().run(nstates=3)
    assert td.ran_on.startswith("products in single precision")
    assert np.abs(td.e - mf.TDDFT().run(nstates=3).e).max() < 1e-7


def test_methods_that_pyscf_lacks() -> None:
    mol = gto.M(atom="O 0 0 0; H 0 0.757 0.587", basis="6-31g", spin=1, verbose=0)
    assert trnqc.accelerate(scf.ROHF(mol)).TDA is None
    assert not hasattr(trnqc.accelerate(scf.RHF(gto.M(atom=WATER, verbose=0))), "CasidaTDDFT")
