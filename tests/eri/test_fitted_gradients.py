"""Gradients of accelerated density-fitted SCF objects against PySCF's and against finite differences."""

from __future__ import annotations

import numpy as np
import pytest
from pyscf import dft, gto, scf

import trnqc
from trnqc.eri.gradient.fitted.half_transform import rows_of
from trnqc.eri.gradient.jk_gradient import fitted_jk_gradient
from trnqc.errors import InputError

WATER = "O 0 0 0.1; H 0 0.8 0.6; H 0.3 -0.7 0.5"
BASIS = {"default": [[0, [8.0, 0.3], [1.5, 0.7]], [0, [0.4, 1]], [1, [1.1, 1]]]}
FITTING = {"default": [[0, [12.0, 1]], [0, [3.0, 1]], [0, [0.5, 1]], [1, [0.8, 1]]]}
# Both gradients come from the same densities and integrals, but the solvers of the metric differ.
TOLERANCE = 1e-10


def fitted(kind: str, spin: int, xc: str | None = None, atoms: str = WATER, **options):
    mol = gto.M(atom=atoms, basis=BASIS, spin=spin, verbose=0, **options)
    mf = getattr(scf, kind)(mol) if xc is None else getattr(dft, kind)(mol, xc=xc)
    if xc is not None:
        mf.grids.level = 0
    mf = mf.density_fit(auxbasis=FITTING)
    mf.conv_tol, mf.max_cycle = 1e-11, 100
    return mf.run()


@pytest.mark.parametrize(
    ("kind", "spin", "xc"),
    [
        ("RHF", 0, None),
        ("UHF", 2, None),
        ("ROHF", 2, None),
        ("RKS", 0, "pbe"),
        ("RKS", 0, "b3lyp"),
        ("UKS", 2, "pbe0"),
        ("ROKS", 2, "b3lyp"),
        ("RKS", 0, "camb3lyp"),
        ("UKS", 2, "wb97x"),
        ("RKS", 0, "lc_blyp"),
        ("UKS", 2, "hse06"),
    ],
)
def test_pyscf(kind, spin, xc):
    mf = fitted(kind, spin, xc)
    expected = mf.nuc_grad_method().kernel()
    gradients = trnqc.accelerate(mf).nuc_grad_method()
    np.testing.assert_allclose(gradients.kernel(), expected, rtol=0, atol=TOLERANCE)
    assert gradients.ran_on.startswith("generated C")


@pytest.mark.parametrize(
    "case",
    [
        {"kind": "RHF", "spin": 0, "atoms": "Ne 0 0 0"},
        {"kind": "RHF", "spin": 0, "cart": True},
        {"kind": "UHF", "spin": 1, "atoms": "H 0 0 0; GHOST-H 0 0.3 1"},
        {"kind": "RHF", "spin": 0, "atoms": "He 0 0 0; H@2 0 0.8 0.6; GHOST-O 1 0 0; H 0 -1 0.6"},
    ],
    ids=["one atom", "Cartesian", "no beta electrons", "ghost"],
)
def test_awkward_molecules(case):
    mf = fitted(**case)
    expected = mf.nuc_grad_method().kernel()
    gradients = trnqc.accelerate(mf).nuc_grad_method()
    np.testing.assert_allclose(gradients.kernel(), expected, rtol=0, atol=TOLERANCE)
    assert gradients.ran_on.startswith("generated C")


def test_finite_difference():
    mf = trnqc.accelerate(fitted("RHF", 0))
    direction = np.array([[0.3, -0.5, 0.8], [0.1, 0.7, -0.2], [-0.4, 0.2, 0.5]])
    ours = np.sum(mf.nuc_grad_method().kernel() * direction)
    scanner, h = mf.as_scanner(), 1e-3
    place = mf.mol.atom_coords()

    def energy(step: float) -> float:
        return scanner(mf.mol.set_geom_(place + step * direction, unit="Bohr", inplace=False))

    slope = (8 * (energy(h) - energy(-h)) - (energy(2 * h) - energy(-2 * h))) / (12 * h)
    assert ours == pytest.approx(slope, abs=1e-7)


def test_scanner_follows_the_molecule():
    mf = fitted("RHF", 0)
    scanner = trnqc.accelerate(mf).nuc_grad_method().as_scanner()
    for angle in (0.8, 0.9):
        mol = mf.mol.set_geom_(f"O 0 0 0.1; H 0 {angle} 0.6; H 0.3 -0.7 0.5", inplace=False)
        expected = scf.RHF(mol).density_fit(auxbasis=FITTING).run(conv_tol=1e-12).nuc_grad_method().kernel()
        np.testing.assert_allclose(scanner(mol)[1], expected, rtol=0, atol=1e-5)


def test_matrices_are_those_of_pyscf():
    mf = fitted("RHF", 0)
    ours, theirs = trnqc.accelerate(mf).nuc_grad_method(), mf.nuc_grad_method()
    for one, other in zip(ours.get_jk(), theirs.get_jk()):
        np.testing.assert_allclose(one, other, rtol=0, atol=TOLERANCE)
        np.testing.assert_allclose(one.aux, other.aux, rtol=0, atol=TOLERANCE)
    assert type(ours.undo()) is type(theirs)


def test_only_coulomb_is_fitted():
    mf = scf.RHF(gto.M(atom=WATER, basis=BASIS, verbose=0)).density_fit(auxbasis=FITTING, only_dfj=True).run()
    expected = mf.nuc_grad_method().kernel()
    np.testing.assert_allclose(trnqc.accelerate(mf).nuc_grad_method().kernel(), expected, rtol=0, atol=TOLERANCE)


def test_some_atoms():
    mf = fitted("RKS", 0, "b3lyp")
    expected = mf.nuc_grad_method().kernel(atmlst=[2, 0])
    np.testing.assert_allclose(
        trnqc.accelerate(mf).nuc_grad_method().kernel(atmlst=[2, 0]), expected, rtol=0, atol=TOLERANCE
    )


def test_left_to_pyscf(monkeypatch):
    """Without the response of fitting functions, with too little memory, and while kernels are not there."""
    mf = fitted("RHF", 0)
    plain, gradients = mf.nuc_grad_method(), trnqc.accelerate(mf).nuc_grad_method()
    plain.auxbasis_response = gradients.auxbasis_response = False
    np.testing.assert_allclose(gradients.kernel(), plain.kernel(), rtol=0, atol=1e-14)
    assert gradients.ran_on == "PySCF: without auxbasis_response"
    gradients = trnqc.accelerate(mf).nuc_grad_method()
    gradients.max_memory = 0
    expected = mf.nuc_grad_method().kernel()
    np.testing.assert_allclose(gradients.kernel(), expected, rtol=0, atol=1e-14)
    assert "raise max_memory" in gradients.ran_on
    monkeypatch.setattr("trnqc.eri.compiled.programs.is_compiled", lambda program: False)
    gradients = trnqc.accelerate(mf, kernels="cached").nuc_grad_method()
    np.testing.assert_allclose(gradients.kernel(), expected, rtol=0, atol=1e-14)
    assert "cached" in gradients.ran_on


def test_fitted_integrals_of_another_origin():
    """Rows in memory are used if they are those of the metric's Cholesky factor."""
    mf = trnqc.accelerate(fitted("RHF", 0))
    fitting = mf.with_df
    fitting.build()
    rows = rows_of(fitting)
    assert rows is not None and rows.array is fitting._cderi
    d = mf.make_rdm1()
    ours = fitted_jk_gradient(mf.mol, fitting.auxmol, d / 2, d, rows=rows)
    np.testing.assert_allclose(ours, fitted_jk_gradient(mf.mol, fitting.auxmol, d / 2, d), rtol=0, atol=1e-11)
    fitting._cderi = rows.array[::-1].copy()
    assert rows_of(fitting) is None
    with pytest.raises(InputError, match="fitted integrals"):
        fitted_jk_gradient(mf.mol, fitting.auxmol, d / 2, d, rows=rows.array[1:])
