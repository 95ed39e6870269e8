"""Gradients against finite differences, and against PySCF's gradients of MP2 with exact integrals."""

from __future__ import annotations

import numpy as np
import pytest
from pyscf import gto, scf
from pyscf import mp as pyscf_mp

import trnqc
from tests.mp2.density.references import Parts
from trnqc.eri.compiled import background, programs
from trnqc.errors import CompilerError
from trnqc.mp2.density.pair_sums import pair_sums
from trnqc.mp2.density.relaxation import relax
from trnqc.mp2.gradient import Gradients, derivatives
from trnqc.mp2.gradient.derivatives import Derivatives
from trnqc.mp2.gradient.gradients import electronic_gradient
from trnqc.mp2.pairs.pairs import ResultWarning

MP2, SCS, SOS = (1.0, 1.0), (6 / 5, 1 / 3), (1.3, 0.0)
# Bohr; without symmetry.
BENT = np.array([[0.2, 0.0, 0.22], [0.0, 1.43, -0.88], [0.1, -1.3, -0.8]])
SYMBOLS = {"water": "OHH", "water cation": "OHH", "hydrogen sulfide": "SHH", "amino radical": "NHH"}
SPINS = {"water cation": (1, 1), "amino radical": (0, 1)}


def parts_at(name, positions, fitted, frozen, basis="6-31g"):
    charge, spin = SPINS.get(name, (0, 0))
    atoms = list(zip(SYMBOLS[name], positions))
    mol = gto.M(atom=atoms, unit="Bohr", basis=basis, charge=charge, spin=spin, verbose=0)
    mf = (scf.UHF if spin else scf.RHF)(mol)
    if fitted:
        mf = mf.density_fit(auxbasis="cc-pvdz-jkfit")
    return Parts(mf.run(conv_tol=1e-13, conv_tol_grad=1e-9, max_cycle=100), frozen)


def total_energy(parts, scaling):
    energies = pair_sums(parts.factors, scaling, parts.execution).energies
    return parts.mf.e_tot + scaling[0] * energies.os + scaling[1] * energies.ss


def gradient(parts, scaling, by_pyscf=""):
    relaxation, derivatives = relax(*parts.arguments, scaling=scaling), Derivatives(parts.execution, by_pyscf)
    electronic = electronic_gradient(parts.mf, relaxation, derivatives)
    return electronic + parts.mf.nuc_grad_method().grad_nuc()


@pytest.mark.parametrize(
    ("name", "fitted", "frozen", "scaling"),
    [
        ("water", True, 1, SCS),
        ("water", False, None, MP2),
        ("water", True, [0, 11], SOS),
        ("water cation", True, 1, MP2),
        ("amino radical", False, 1, SCS),
        ("hydrogen sulfide", True, 5, MP2),
    ],
)
def test_finite_differences(name, fitted, frozen, scaling):
    """The slope in a direction in which all atoms move."""
    scale = 1.35 if name == "hydrogen sulfide" else 1.0
    direction = np.random.default_rng(3).standard_normal((3, 3))
    analytic = gradient(parts_at(name, scale * BENT, fitted, frozen), scaling)
    step = 1.5e-3
    e = {
        n: total_energy(parts_at(name, scale * BENT + n * step * direction, fitted, frozen), scaling)
        for n in (-2, -1, 1, 2)
    }
    slope = (8 * (e[1] - e[-1]) - (e[2] - e[-2])) / (12 * step)
    # The error of the four-point formula is of order step^4.
    assert np.vdot(analytic, direction) == pytest.approx(slope, abs=1e-7)
    assert np.abs(analytic.sum(axis=0)).max() < 1e-9
    by_pyscf = gradient(parts_at(name, scale * BENT, fitted, frozen), scaling, "to compare")
    np.testing.assert_allclose(by_pyscf, analytic, atol=1e-9)


@pytest.mark.parametrize("name", ["water", "water cation"])
def test_exact_integrals_differ_by_the_fitting_error(name):
    parts = parts_at(name, BENT, False, 1)
    mp = (pyscf_mp.UMP2 if len(parts.spins) == 2 else pyscf_mp.MP2)(parts.mf, frozen=1).run()
    difference = gradient(parts, MP2) - mp.nuc_grad_method().kernel()
    assert 0 < np.abs(difference).max() < 3e-4


def test_object_of_pyscf_s_kind():
    mol = gto.M(atom=list(zip("OHH", BENT)), unit="Bohr", basis="6-31g", verbose=0)
    mf = scf.RHF(mol).run(conv_tol=1e-12, conv_tol_grad=1e-8)
    mp = trnqc.DFMP2(mf, auxbasis="cc-pvdz-ri", frozen=1)
    gradients = Gradients(mp)
    de = gradients.kernel()
    assert np.abs(de - gradient(parts_at("water", BENT, False, 1), MP2)).max() < 1e-7
    assert np.abs(gradients.kernel(atmlst=[1]) - de[1:2]).max() < 1e-9
    assert gradients.relaxation.density.rdm1().trace() == pytest.approx(10, abs=1e-9)


def test_scanner_of_a_radical_with_scaled_components():
    mol = gto.M(atom=list(zip("NHH", BENT)), unit="Bohr", basis="6-31g", spin=1, verbose=0)
    mf = scf.UHF(mol).run(conv_tol=1e-12, conv_tol_grad=1e-8)
    mp = trnqc.DFMP2(mf, auxbasis="cc-pvdz-ri", frozen=1)
    mp.gradient_scaling = SCS
    scanner = mp.nuc_grad_method().as_scanner()
    assert scanner.as_scanner() is scanner
    step = np.zeros((3, 3))
    step[0, 2] = 2e-3
    (above, _), (below, _) = (scanner(mol.set_geom_(BENT + sign * step, inplace=False)) for sign in (1, -1))
    energy, de = scanner(mol)
    assert scanner.converged
    assert energy == pytest.approx(mf.e_tot + SCS[0] * mp.run().e_corr_os + SCS[1] * mp.e_corr_ss, abs=1e-9)
    assert np.abs(de - gradient(parts_at("amino radical", BENT, False, 1), SCS)).max() < 1e-7
    # The error of the two-point formula is of order step^2.
    assert (above - below) / 4e-3 == pytest.approx(de[0, 2], abs=2e-6)


def test_gamma_in_small_blocks_and_on_disk(monkeypatch):
    parts = parts_at("water cation", BENT, True, 1)
    whole = gradient(parts, MP2)
    monkeypatch.setattr("trnqc.mp2.density.sets.PairMemory.holds_gamma", lambda self, room, width: False)
    monkeypatch.setattr("trnqc.mp2.gradient.terms._COMFORTABLE_BLOCK", 8 * 13**2 * 10)
    assert np.abs(gradient(parts, MP2) - whole).max() < 1e-9


def test_gamma_of_the_simulated_kernel():
    """The gradient with Γ from the NKI kernel on the simulator, for an object of which the user asked for it."""
    parts = parts_at("water", BENT, True, 1)
    on_cpu = Gradients(trnqc.DFMP2(parts.mf, frozen=1)).kernel()
    mp2 = Gradients(trnqc.DFMP2(parts.mf, frozen=1, backend="simulator", precision="fp32"))
    assert 0 < np.abs(mp2.kernel() - on_cpu).max() < 1e-7
    assert "trnqc.sim" in mp2.relaxation.sums.ran_on


def test_removed_functions_are_named(monkeypatch):
    monkeypatch.setattr(scf.hf, "overlap_zero_eigenvalue_threshold", 1e-2)
    mf = scf.RHF(gto.M(atom="H 0 0 0; H 0 0 0.74", basis="aug-cc-pvdz", verbose=0)).run()
    removed = mf.mol.nao_nr() - mf.mo_coeff.shape[1]
    assert removed > 0
    gradients = trnqc.DFMP2(mf).run().nuc_grad_method()
    with pytest.warns(ResultWarning, match=f"removed {removed} nearly dependent combinations"):
        gradients.kernel()


@pytest.mark.parametrize("spin", [0, 1])
def test_exact_exchange_beside_fitted_coulomb(spin):
    """The energy has exact K; PySCF's derivatives are those of the object's J and K."""
    mol = gto.M(atom=list(zip("OHH", BENT)), unit="Bohr", basis="6-31g", charge=spin, spin=spin, verbose=0)
    mf = (scf.UHF if spin else scf.RHF)(mol).density_fit(auxbasis="cc-pvdz-jkfit", only_dfj=True)
    mf.run(conv_tol=1e-12, conv_tol_grad=1e-8)
    mp = trnqc.DFMP2(mf, auxbasis="cc-pvdz-ri", frozen=1).run()
    gradients = mp.nuc_grad_method()
    de = gradients.kernel()
    relaxed = gradients.relaxation
    by_pyscf = electronic_gradient(mf, relaxed, Derivatives(mp._execution(), "to compare")) + gradients.grad_nuc()
    np.testing.assert_allclose(de, by_pyscf, atol=1e-9)
    fitted = (scf.UHF if spin else scf.RHF)(mol).density_fit(auxbasis="cc-pvdz-jkfit").run(conv_tol=1e-12)
    other = trnqc.DFMP2(fitted, auxbasis="cc-pvdz-ri", frozen=1).run().nuc_grad_method().kernel()
    assert 1e-6 < np.abs(de - other).max() < 1e-3


@pytest.mark.parametrize("fitted", [True, False])
@pytest.mark.parametrize("kernels", ["cached", "background"])
def test_pyscf_serves_until_kernels_are_compiled(monkeypatch, kernels, fitted):
    """Programs count as missing, and nothing compiles: a small molecule does not wait for them."""
    monkeypatch.setattr(background, "_ask_for", lambda programs, total, meanwhile: None)
    mol = gto.M(atom=list(zip("OHH", BENT)), unit="Bohr", basis="6-31g", verbose=0)
    mf = scf.RHF(mol).density_fit(auxbasis="cc-pvdz-jkfit") if fitted else scf.RHF(mol)
    mf = trnqc.accelerate(mf, kernels="wait").run(conv_tol=1e-12, conv_tol_grad=1e-8)
    mp = trnqc.DFMP2(mf, auxbasis="cc-pvdz-ri", frozen=1).run()
    gradients = mp.nuc_grad_method()
    de = gradients.kernel()
    assert gradients.ran_on.startswith("generated C")
    monkeypatch.setattr(programs, "is_compiled", lambda program: False)
    mf.kernels = kernels
    np.testing.assert_allclose(gradients.kernel(), de, atol=1e-9)
    assert gradients.ran_on == f"PySCF ({background.Needed(tuple, kernels).reason})"


def test_kernels_are_compiled_where_pyscf_takes_longer(monkeypatch):
    parts = parts_at("water", BENT, True, 1)
    monkeypatch.setenv("TRNQC_KERNELS", "background")
    monkeypatch.setattr(programs, "is_compiled", lambda program: False)
    monkeypatch.setattr(derivatives, "_seconds_of_pass", lambda mol, auxmol: 1e3)
    auxmol = parts.arguments[3]
    assert not Derivatives.of(parts.mf, auxmol, parts.execution).by_pyscf


def test_without_a_compiler_pyscf_computes_derivatives(monkeypatch):
    parts = parts_at("water", BENT, True, 1)

    def none() -> None:
        raise CompilerError("none here")

    monkeypatch.setenv("TRNQC_KERNELS", "background")
    monkeypatch.setattr(background, "find_compiler", none)
    chosen = Derivatives.of(parts.mf, parts.arguments[3], parts.execution)
    assert chosen.ran_on == "PySCF (there is no C compiler)"
