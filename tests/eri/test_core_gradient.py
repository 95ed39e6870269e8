"""The core Hamiltonian's part of gradients beside PySCF's matrices of derivatives."""

from __future__ import annotations

import numpy as np
import pytest
from pyscf import dft, grad, gto, qmmm, scf

import trnqc
from trnqc.eri.core_gradient import by_matrices, core_gradient, is_known

WATER = "O 0 0 0.1; H 0 0.7 -0.5; H 0 -0.8 -0.4"
BASIS = {"O": "def2-svp", "H1": "def2-svp"}


def molecule(**options):
    return gto.M(**{"atom": WATER, "basis": "def2-svp", "verbose": 0, **options})


def random_density(mol):
    d = np.random.default_rng(1).normal(size=(mol.nao, mol.nao))
    return d + d.T


MOLECULES = {
    "spherical": {},
    "Cartesian": {"cart": True, "basis": "cc-pvtz"},
    "ghost": {"atom": WATER + "; ghost-H 0 0 2.5"},
    "an atom without functions": {"atom": "O 0 0 0.1; H1 0 0.7 -0.5; H2 0 -0.8 -0.4", "basis": BASIS},
    "core potential": {"atom": "I 0 0 0; Cl 0 0.1 2.3", "basis": "def2-svp", "ecp": {"I": "def2-svp"}},
    "one atom": {"atom": "Ne 0.1 0.2 0.3"},
}


@pytest.mark.parametrize("name", MOLECULES)
def test_same_as_matrices(name):
    mol = molecule(**MOLECULES[name])
    gradients, density = scf.RHF(mol).nuc_grad_method(), random_density(mol)
    assert is_known(gradients)
    want = by_matrices(gradients, density)
    np.testing.assert_allclose(core_gradient(gradients, density), want, rtol=0, atol=1e-11 * np.abs(want).max() + 1e-12)


def test_operator_of_the_molecule_is_that_of_electrons():
    mol = molecule()
    mol.omega = 0.3
    gradients, density = scf.RHF(mol).nuc_grad_method(), random_density(mol)
    np.testing.assert_allclose(core_gradient(gradients, density), by_matrices(gradients, density), rtol=0, atol=1e-10)


class _Users(grad.rhf.Gradients):
    def get_hcore(self, mol=None):
        return 1.5 * super().get_hcore(mol)


UNKNOWN = {
    "X2C": lambda mol: scf.RHF(mol).x2c().nuc_grad_method(),
    "nuclei of finite size": lambda mol: scf.RHF(mol.set(nucmod={"O": "G"}).build()).nuc_grad_method(),
    "charges around": lambda mol: qmmm.mm_charge(scf.RHF(mol), [[0, 0, 5.0]], [0.4]).nuc_grad_method(),
    "a user's": lambda mol: _Users(scf.RHF(mol)),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_other_core_hamiltonians_are_pyscfs(name):
    mol = molecule()
    gradients, density = UNKNOWN[name](mol), random_density(mol)
    assert not is_known(gradients)
    np.testing.assert_array_equal(core_gradient(gradients, density), by_matrices(gradients, density))


# PySCF's gradients of open shells cannot be those of some atoms.
@pytest.mark.parametrize(
    ("kind", "atmlst"),
    [("RHF", None), ("RHF", [2, 0]), ("UHF", None), ("ROHF", None), ("fitted RHF", [1]), ("fitted UKS", None)],
)
def test_gradients_have_no_matrices_of_derivatives(kind, atmlst, monkeypatch):
    mol = molecule(spin=0 if kind.endswith("RHF") else 2)
    mf = dft.UKS(mol, xc="pbe") if kind.endswith("UKS") else getattr(scf, kind[-4:].strip())(mol)
    mf = mf.density_fit() if kind.startswith("fitted") else mf
    mf.conv_tol = 1e-11
    want = mf.run().nuc_grad_method().kernel(atmlst=atmlst)
    gradients = trnqc.accelerate(mf).nuc_grad_method()
    asked, intor = [], gto.Mole.intor
    monkeypatch.setattr(gto.Mole, "intor", lambda self, name, *a, **k: asked.append(name) or intor(self, name, *a, **k))
    np.testing.assert_allclose(gradients.kernel(atmlst=atmlst), want, rtol=0, atol=1e-9)
    assert "int1e_ipkin" in asked
    assert not {"int1e_iprinv", "int1e_ipnuc"} & set(asked)
    by_matrices(gradients, random_density(mol))
    assert {"int1e_iprinv", "int1e_ipnuc"} <= set(asked)


def test_a_users_core_hamiltonian_is_kept():
    mf = scf.RHF(molecule()).run()
    want = _Users(mf).kernel()
    accelerated = trnqc.accelerate(mf).nuc_grad_method()
    accelerated.get_hcore = lambda mol=None: 1.5 * grad.rhf.get_hcore(accelerated.mol if mol is None else mol)
    np.testing.assert_allclose(accelerated.kernel(), want, rtol=0, atol=1e-9)
