"""SCF objects whose early cycles take J and K from an accelerator: the same converged numbers, and one error each."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from pyscf import df, dft, gto, lib, scf

import trnqc
from tests.eri.test_early_cycles import FITTING, WATER
from trnqc.backends.nki.fitted_jk import NkiFittedJK
from trnqc.eri.fitting import on_device
from trnqc.errors import (
    BackendUnavailable,
    InputError,
    MemoryLimit,
    PrecisionError,
    UnsupportedError,
    UnsupportedPrecision,
)
from trnqc.pyscf.density_fitting import DF

MOLECULES = Path(__file__).parents[2] / "examples" / "molecules"


def fitted(method=scf.RHF, **more):
    cation = {"charge": 1, "spin": 1} if method in (scf.UHF, scf.ROHF, dft.UKS) else {}
    mol = gto.M(atom=WATER, basis="sto-3g", verbose=0, max_memory=4000, **cation)
    return method(mol).density_fit(auxbasis=FITTING).set(conv_tol=1e-10, **more)


def simulated(mf, **options):
    return trnqc.accelerate(mf, backend="simulator", **options)


@pytest.mark.parametrize("precision", ["fp32", "bf16x6", "bf16x3", "bf16"])
def test_converged_numbers_are_those_of_pyscf(precision):
    theirs = fitted().run()
    mf = simulated(fitted(), early_precision=precision).run()
    assert mf.converged and abs(mf.cycles - theirs.cycles) <= 1
    assert mf.e_tot == pytest.approx(theirs.e_tot, abs=1e-9)
    np.testing.assert_allclose(mf.mo_energy, theirs.mo_energy, rtol=0, atol=1e-5)
    assert f"trn2, {precision}; the others in fp64" in mf.ran_on
    assert mf.timings[f"J and K, simulator {precision}"] > 0 < mf.timings["J and K"]
    assert mf.with_df.rounded is None


@pytest.mark.parametrize("method", [scf.UHF, scf.ROHF, dft.RKS, dft.UKS], ids=lambda m: m.__name__)
def test_open_shells_and_kohn_sham(method):
    functional = {"xc": "pbe0"} if method in (dft.RKS, dft.UKS) else {}
    theirs = fitted(method, **functional).run()
    mf = simulated(fitted(method, **functional)).run()
    assert mf.e_tot == pytest.approx(theirs.e_tot, abs=1e-9)
    assert int(mf.ran_on.split()[2]) > 2


def test_the_last_cycles_are_on_the_host(monkeypatch):
    where: list[str] = []
    get_jk = DF.get_jk

    def noted(self, *args, **options):
        where.append("device" if self.rounded else "host")
        return get_jk(self, *args, **options)

    monkeypatch.setattr(DF, "get_jk", noted)
    simulated(fitted()).run()
    assert where[0] == "device" and where[-3:] == ["host"] * 3
    assert where == sorted(where)


@pytest.mark.parametrize("method", [scf.RHF, scf.UHF], ids=lambda m: m.__name__)
@pytest.mark.parametrize("precision", ["fp32", "bf16x3"])
def test_errors_are_of_the_estimated_size(method, precision):
    """The error of the orbital gradient is at most five times what early cycles estimate."""
    from trnqc.pyscf.early.precision import GROWTH, gradient_scale

    mf = simulated(fitted(method), early_precision=precision).run()
    start, dm = mf.get_init_guess(), mf.make_rdm1()
    grad = [mf.get_grad(mf.mo_coeff, mf.mo_occ, mf.get_hcore() + np.asarray(mf.get_veff(dm=dm)))]
    with mf.with_df.reduced_precision(on_device.on_device("simulator", precision, 1e9)) as rounded:
        mf.get_veff(dm=start)
        grad.append(mf.get_grad(mf.mo_coeff, mf.mo_occ, mf.get_hcore() + np.asarray(mf.get_veff(dm=dm))))
        scale = GROWTH * rounded.products.rounding * gradient_scale(dm, rounded.exchange)
    assert 0 < np.linalg.norm(grad[1] - grad[0]) < 5 * scale


def test_an_scf_from_a_density_stays_on_the_host_and_says_so():
    mf = simulated(fitted())
    mf.kernel(fitted().get_init_guess())
    assert mf.ran_on.startswith("no J and K on simulator (the SCF starts from orbitals or a density")


@pytest.mark.parametrize("part", ["exchange", "coulomb", "fitted density"])
def test_results_that_break_the_promise_are_refused(part, monkeypatch):
    exchange, coulomb = NkiFittedJK.exchange, NkiFittedJK.coulomb

    def wrong_coulomb(self, densities):
        vj, density = coulomb(self, densities)
        return (vj, 1.001 * density) if part == "fitted density" else (1.001 * vj, density)

    if part == "exchange":
        monkeypatch.setattr(NkiFittedJK, "exchange", lambda self, c: 1.001 * exchange(self, c))
    else:
        monkeypatch.setattr(NkiFittedJK, "coulomb", wrong_coulomb)
    what = {"exchange": "K", "coulomb": "J", "fitted density": "the fitted density"}[part]
    with pytest.raises(PrecisionError, match=rf"^{what} by NKI kernels.*has an error of .*promised are 3.8e-06"):
        simulated(fitted()).kernel()


def test_a_device_that_rounds_products_is_refused(monkeypatch):
    monkeypatch.setenv("TRNQC_SIM_BF16_PRODUCTS", "rounded")
    with pytest.raises(UnsupportedPrecision, match="was measured"):
        simulated(fitted(), early_precision="bf16x3").kernel()


def test_one_error_each():
    mol = gto.M(atom=WATER, basis="sto-3g", verbose=0)
    for error, message, refused in (
        (UnsupportedError, r"call .density_fit\(\) first", lambda: simulated(scf.RHF(mol))),
        (UnsupportedError, "no exact K", lambda: simulated(scf.RHF(mol).density_fit(only_dfj=True))),
        (UnsupportedError, "no exact K", lambda: simulated(fitted(), exchange="direct")),
        (InputError, "runs on the CPU", lambda: simulated(fitted(), exchange="seminumerical")),
        (UnsupportedPrecision, "'fp64'", lambda: simulated(fitted(), early_precision="fp64")),
        (UnsupportedPrecision, "'bf16x15'", lambda: simulated(fitted(), early_precision="bf16x15")),
        (UnsupportedError, "several components", lambda: simulated(scf.GHF(mol).density_fit())),
        (BackendUnavailable, "no /dev/neuron", lambda: trnqc.accelerate(fitted(), backend="neuron")),
        (InputError, "backend is one of auto, .*simulator", lambda: trnqc.accelerate(fitted(), backend="trainium")),
    ):
        with pytest.raises(error, match=message):
            refused()


def test_periodic_objects_are_refused():
    from pyscf.pbc import gto as pbc_gto
    from pyscf.pbc import scf as pbc_scf

    cell = pbc_gto.M(atom="He 0 0 0", a=np.eye(3) * 4, basis="sto-3g", verbose=0)
    with pytest.raises(UnsupportedError, match="periodic"):
        simulated(pbc_scf.RHF(cell).density_fit())


def test_integrals_on_disk_are_an_error():
    mf = simulated(fitted())
    mf.with_df.max_memory = 0
    with pytest.raises(MemoryLimit, match=r"raise mf\.max_memory"):
        mf.kernel()


def test_density_fitting_that_was_replaced_is_an_error():
    mf = simulated(fitted())
    mf.with_df = df.DF(mf.mol, auxbasis=FITTING)
    with pytest.raises(UnsupportedError, match="call it again"):
        mf.kernel()


def test_a_density_that_is_not_finite_is_an_error(monkeypatch):
    mf = simulated(fitted())
    guess, orbitals = np.eye(mf.mol.nao), np.full((mf.mol.nao, 5), np.nan)
    tagged = lib.tag_array(guess, mo_coeff=orbitals, mo_occ=np.full(5, 2.0))
    monkeypatch.setattr(type(mf), "get_init_guess", lambda *_, **__: tagged)
    with pytest.raises(InputError, match=r"the orbitals: expected finite numbers, found nan at \[0, 0\]"):
        mf.kernel()


def test_one_function_and_no_beta_electron():
    mol = gto.M(atom="H", basis="sto-3g", spin=1, verbose=0)
    theirs = scf.UHF(mol).density_fit(auxbasis="weigend").run()
    mf = simulated(scf.UHF(mol).density_fit(auxbasis="weigend")).run()
    assert mf.e_tot == pytest.approx(theirs.e_tot, abs=1e-9)


def test_other_integrals_and_gradients_are_those_of_the_host():
    theirs, mf = fitted().run(), simulated(fitted()).run()
    np.testing.assert_allclose(mf.nuc_grad_method().kernel(), theirs.nuc_grad_method().kernel(), rtol=0, atol=1e-6)
    assert type(mf.undo()) is type(theirs) and not hasattr(mf.undo(), "backend")


@pytest.mark.slow
@pytest.mark.parametrize("name", ["benzene", "water4"])
@pytest.mark.parametrize("precision", ["fp32", "bf16x3"])
def test_molecules_agree_with_pyscf(name, precision):
    """Hartree-Fock to 1e-9 Hartree, with most cycles on the simulated chip."""
    mol = gto.M(atom=str(MOLECULES / f"{name}.xyz"), basis="cc-pvdz", verbose=0, max_memory=4000)
    theirs = scf.RHF(mol).density_fit().set(conv_tol=1e-11).run()
    mf = simulated(scf.RHF(mol).density_fit().set(conv_tol=1e-11), early_precision=precision).run()
    assert mf.e_tot == pytest.approx(theirs.e_tot, abs=1e-9)
    assert int(mf.ran_on.split()[2]) >= 4
