"""Derivatives of functions in the shells l + 1 and l - 1, held to PySCF's own derivative integrals."""

from __future__ import annotations

import numpy as np
import pytest
from pyscf import gto

from trnqc.eri.gradient.derivative_basis import derivative_basis

ATOMS = "O 0.1 0.2 -0.3; H 0.9 -0.4 0.5; H -0.8 0.1 0.7"
# Every l from s to g, several contractions, Cartesian functions, one function.
BASES = {
    "sto-3g": {"basis": "sto-3g"},
    "cc-pvtz": {"basis": "cc-pvtz"},
    "cc-pvtz cartesian": {"basis": "cc-pvtz", "cart": True},
    "cc-pvqz": {"basis": {"O": "cc-pvqz", "H": "sto-3g"}},
    "sp shells": {"basis": "6-31+g*"},
}


@pytest.fixture(params=BASES.values(), ids=BASES)
def mol(request):
    return gto.M(atom=ATOMS, verbose=0, **request.param)


def test_overlaps_of_derivatives(mol):
    basis = derivative_basis(mol)
    both = gto.conc_mol(basis.mol, basis.cartesian)
    n = basis.mol.nao_cart()
    overlap = both.intor("int1e_ovlp_cart")[:n, n:] @ basis.transform
    expected = mol.intor("int1e_ipovlp")
    for axis in range(3):
        np.testing.assert_allclose(basis.gradient[axis].T @ overlap, expected[axis], rtol=0, atol=1e-12)


def test_values_of_derivatives(mol):
    basis = derivative_basis(mol)
    points = np.random.default_rng(1).uniform(-2, 2, (7, 3))
    values = basis.mol.eval_gto("GTOval_cart", points)
    expected = mol.eval_gto("GTOval_ip", points)
    for axis in range(3):
        np.testing.assert_allclose(values @ basis.gradient[axis], expected[axis], rtol=0, atol=1e-12)


def test_the_transform_is_pyscfs(mol):
    expected = np.eye(mol.nao) if mol.cart else mol.cart2sph_coeff()
    np.testing.assert_allclose(derivative_basis(mol).transform.toarray(), expected, rtol=0, atol=1e-14)


def test_the_molecule_is_left_as_it_was(mol):
    before = mol._bas.copy(), mol._env.copy(), mol.cart
    derivative_basis(mol)
    np.testing.assert_array_equal(mol._bas, before[0])
    np.testing.assert_array_equal(mol._env, before[1])
    assert mol.cart == before[2]
