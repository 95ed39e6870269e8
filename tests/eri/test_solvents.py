"""Solvents of accelerated SCF objects against PySCF's: energies, potentials, forces, and what users do with them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pyscf import dft, gto, scf
from pyscf.solvent import pcm, smd

import trnqc
from trnqc.eri import charges
from trnqc.eri.charges import ChargeIntegrals, charge_gradient, gaussian_charges
from trnqc.errors import InputError
from trnqc.pyscf.solvents import layer as solvents

METHODS = ("C-PCM", "COSMO", "IEF-PCM", "SS(V)PE", "SMD")
ATOMS = "O 0 0 0; H 0.1 0.757 0.587; H 0 -0.757 0.5"


def molecule(spin: int = 0, basis: str = "6-31g", **options: Any) -> gto.Mole:
    return gto.M(atom=ATOMS, basis=basis, charge=spin, spin=spin, verbose=0, **options)


def solvated(mf: Any, method: str) -> Any:
    """With a coarse surface, which keeps tests short."""
    mf = mf.SMD() if method == "SMD" else mf.PCM()
    if method != "SMD":
        mf.with_solvent.method = method
    mf.with_solvent.lebedev_order = 11
    mf.conv_tol = 1e-11
    return mf


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("kind", ["RHF", "UKS"])
def test_energies_and_forces_are_pyscf_s(method, kind):
    def made() -> Any:
        mf = scf.RHF(molecule()) if kind == "RHF" else dft.UKS(molecule(1), xc="pbe0")
        return solvated(mf.density_fit(), method)

    theirs, ours = made().run(), trnqc.accelerate(made(), kernels="wait").run()
    assert ours.e_tot == pytest.approx(theirs.e_tot, abs=1e-9)
    assert ours.with_solvent.e == pytest.approx(theirs.with_solvent.e, abs=1e-9)
    assert ours.with_solvent.ran_on.startswith("generated C")
    density = theirs.make_rdm1()
    for a, b in zip(ours.with_solvent.kernel(density), theirs.with_solvent.kernel(density)):
        np.testing.assert_allclose(a, b, atol=1e-10)
    total = density if density.ndim == 2 else density.sum(axis=0)
    np.testing.assert_allclose(ours.with_solvent.grad(total), theirs.with_solvent.grad(total), atol=1e-9)
    np.testing.assert_allclose(ours.nuc_grad_method().kernel(), theirs.nuc_grad_method().kernel(), atol=1e-7)


@pytest.mark.parametrize("method", METHODS[:4])
@pytest.mark.parametrize("change", [{"surface_discretization_method": "ISWIG"}, {"eps": float("inf")}], ids=str)
def test_the_equations_are_pyscf_s(method, change):
    theirs, ours = (solvated(scf.RHF(molecule()), method).with_solvent for _ in range(2))
    for one in (theirs, ours):
        one.__dict__.update(change)
    ours = solvents.accelerate_solvent(ours, "wait")
    density = np.eye(molecule().nao_nr())
    for a, b in zip(ours.kernel(density), theirs.kernel(density)):
        np.testing.assert_allclose(a, b, atol=1e-10)
    for name in ("S", "D", "A", "K", "R", "f_epsilon"):
        np.testing.assert_allclose(ours._intermediates[name], theirs._intermediates[name], atol=1e-11)
    if change.get("eps") is None:  # PySCF's gradient divides infinity by infinity.
        np.testing.assert_allclose(ours.grad(density), theirs.grad(density), atol=1e-10)


def test_unknown_methods_are_refused():
    mf = trnqc.accelerate(solvated(scf.RHF(molecule()), "C-PCN"), kernels="wait")
    with pytest.raises(InputError, match="found 'C-PCN'"):
        mf.run()


@pytest.mark.parametrize("cart", [False, True])
@pytest.mark.parametrize("room", [0.0, 3e4, np.inf])
def test_integrals_that_do_not_fit_are_computed_again(monkeypatch, room, cart):
    monkeypatch.setattr(charges, "CHARGES", 7)
    mol, rng = molecule(basis="6-31g*", cart=cart), np.random.default_rng(1)
    points, exponents, q = rng.normal(size=(23, 3)) * 3, rng.uniform(0.5, 9, 23), rng.normal(size=(2, 23))
    of_charges = gaussian_charges(points, exponents, cart)
    d = rng.normal(size=(3, mol.nao_nr(), mol.nao_nr()))  # Densities of a response need not be symmetric.
    integrals = pcm.df.incore.aux_e2(mol, of_charges, intor=mol._add_suffix("int3c2e"))
    for by_pyscf in (False, True):
        ours = ChargeIntegrals(mol, of_charges, room, by_pyscf)
        np.testing.assert_allclose(ours.potentials(d), np.einsum("ijg,nij->ng", integrals, d), atol=1e-11)
        np.testing.assert_allclose(ours.matrices(q), np.einsum("ijg,ng->nij", integrals, q), atol=1e-11)


def test_forces_of_charges_are_derivatives():
    rng, owners = np.random.default_rng(2), np.array([0, 2, 1, 1, 2])
    offsets, exponents, q = rng.normal(size=(5, 3)) * 2, rng.uniform(0.5, 9, 5), rng.normal(size=5)
    d = rng.normal(size=(molecule().nao_nr(),) * 2)
    d += d.T

    def charged(mol: gto.Mole) -> gto.Mole:
        return gaussian_charges(mol.atom_coords()[owners] + offsets, exponents)

    def energy(mol: gto.Mole) -> float:
        return float(d.ravel() @ ChargeIntegrals(mol, charged(mol), 0).matrices(q[None]).ravel())

    mol, direction, step = molecule(), rng.normal(size=(3, 3)), 1e-3
    moved = [mol.set_geom_(mol.atom_coords() + n * step * direction, unit="B", inplace=False) for n in (-2, -1, 1, 2)]
    e = [energy(one) for one in moved]
    slope = (8 * (e[2] - e[1]) - (e[3] - e[0])) / (12 * step)
    assert np.vdot(charge_gradient(mol, charged(mol), owners, d, q), direction) == pytest.approx(slope, abs=1e-8)


def test_pyscf_computes_integrals_until_kernels_are_there(monkeypatch):
    theirs = solvated(scf.RHF(molecule()).density_fit(), "C-PCM").run()
    ours = trnqc.accelerate(solvated(scf.RHF(molecule()).density_fit(), "C-PCM"), kernels="wait")
    monkeypatch.setattr(solvents._Charges, "_by_pyscf", lambda self: "to compare")
    assert ours.kernel() == pytest.approx(theirs.e_tot, abs=1e-9)
    assert ours.with_solvent.ran_on == "PySCF (to compare)"
    np.testing.assert_allclose(ours.nuc_grad_method().kernel(), theirs.nuc_grad_method().kernel(), atol=1e-7)


def test_another_geometry_gets_another_surface():
    ours = trnqc.accelerate(solvated(scf.RHF(molecule()).density_fit(), "IEF-PCM"), kernels="wait")
    scanner = ours.nuc_grad_method().as_scanner()
    scanner(molecule())
    other = molecule().set_geom_("O 0 0 0; H 0 0.8 0.6; H 0 -0.8 0.6", inplace=False)
    e, de = scanner(other)
    theirs = solvated(scf.RHF(other).density_fit(), "IEF-PCM").run()
    assert e == pytest.approx(theirs.e_tot, abs=1e-9)
    np.testing.assert_allclose(de, theirs.nuc_grad_method().kernel(), atol=1e-7)


def test_a_change_of_the_solvent_is_seen():
    ours = trnqc.accelerate(solvated(scf.RHF(molecule()).density_fit(), "C-PCM"), kernels="wait").run()
    ours.with_solvent.eps = 4.0
    ours.with_solvent.build()
    theirs = solvated(scf.RHF(molecule()).density_fit(), "C-PCM")
    theirs.with_solvent.eps = 4.0
    assert ours.kernel() == pytest.approx(theirs.kernel(), abs=1e-9)


@pytest.mark.parametrize("equilibrium", [False, True])
def test_excited_states(equilibrium):
    def states(mf: Any) -> Any:
        td = mf.run().TDA(equilibrium_solvation=equilibrium)
        return td.set(nstates=2).run().e

    theirs = states(solvated(scf.RHF(molecule()).density_fit(), "C-PCM"))
    ours = states(trnqc.accelerate(solvated(scf.RHF(molecule()).density_fit(), "C-PCM"), kernels="wait"))
    np.testing.assert_allclose(ours, theirs, atol=1e-6)


def test_the_layer_comes_off_and_serves_copies():
    plain = solvated(scf.RHF(molecule()).density_fit(), "C-PCM")
    ours = trnqc.accelerate(plain, kernels="wait").run()
    assert type(plain.with_solvent) is pcm.PCM and isinstance(ours.with_solvent, pcm.PCM)
    assert type(ours.with_solvent).__name__ == "PCM"
    undone = ours.undo()
    assert type(undone.with_solvent) is pcm.PCM
    assert undone.with_solvent.__dict__.keys() == plain.with_solvent.__dict__.keys()
    assert undone.kernel() == pytest.approx(ours.e_tot, abs=1e-9)
    assert ours.copy().kernel() == pytest.approx(ours.e_tot, abs=1e-9)


def test_other_solvents_and_users_stay_as_they_are():
    class Mine(pcm.PCM):
        pass

    mf = scf.RHF(molecule()).density_fit().ddCOSMO()
    assert type(trnqc.accelerate(mf).with_solvent) is type(mf.with_solvent)
    assert type(solvents.accelerate_solvent(Mine(molecule()), "wait")) is Mine
    changed = smd.SMD(molecule())
    changed._get_v = lambda dms: np.zeros((1, 1))
    assert solvents.accelerate_solvent(changed, "wait") is changed
