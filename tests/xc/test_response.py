"""The exchange-correlation kernel: PySCF's, and the differences of potentials."""

from __future__ import annotations

import numpy as np
import pytest
from pyscf import dft, gto
from pyscf.dft import numint

from trnqc.xc.numint import NumInt

# Sums of a few thousand points differ by the order of their terms.
TOLERANCE = 1e-11
FUNCTIONALS = ("lda,vwn", "pbe", "b3lyp", "tpss")
BASIS = {
    "O": gto.parse("O S\n 8.0 0.4 \n 1.2 0.7\nO S\n 0.3 1.0\nO P\n 2.2 0.5\n 0.5 0.6\nO D\n 1.1 1.0"),
    "H": gto.parse("H S\n 3.0 0.2\n 0.5 0.9\nH P\n 0.8 1.0"),
}


@pytest.fixture(scope="module")
def mol() -> gto.Mole:
    return gto.M(atom="O 0.02 -0.03 0.01; H 0.1 0.2 0.95; H 0.9 -0.1 -0.3", basis=BASIS, verbose=0)


@pytest.fixture(scope="module")
def grids(mol) -> dft.Grids:
    grids = dft.Grids(mol)
    grids.atom_grid = (20, 50)
    return grids.build(with_non0tab=True)


def orbitals(mol: gto.Mole) -> tuple[np.ndarray, np.ndarray]:
    """Orthonormal orbitals, of which five are occupied."""
    s = mol.intor("int1e_ovlp")
    inverse = np.linalg.inv(np.linalg.cholesky(s)).T
    rotation = np.linalg.qr(np.random.default_rng(0).normal(size=s.shape))[0]
    return inverse @ rotation, np.where(np.arange(len(s)) < 5, 2.0, 0.0)


def changes(mol: gto.Mole, *shape: int) -> np.ndarray:
    return 0.1 * np.random.default_rng(1).normal(size=(*shape, mol.nao, mol.nao))


@pytest.mark.parametrize("xc", FUNCTIONALS)
@pytest.mark.parametrize("hermi", [0, 1])
def test_restricted(mol, grids, xc, hermi) -> None:
    c, occupations = orbitals(mol)
    dm0, dms = (c * occupations) @ c.T, changes(mol, 3)
    dms = dms + dms.transpose(0, 2, 1) if hermi else dms
    theirs, ours = (ni.nr_rks_fxc(mol, grids, xc, dm0, dms, hermi=hermi) for ni in (numint.NumInt(), NumInt("wait")))
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=TOLERANCE)
    one = NumInt("wait").nr_rks_fxc(mol, grids, xc, dm0, dms[0], hermi=hermi)
    np.testing.assert_allclose(one, theirs[0], rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("xc", FUNCTIONALS)
@pytest.mark.parametrize("singlet", [True, False], ids=["singlet", "triplet"])
def test_singlets_and_triplets(mol, grids, xc, singlet) -> None:
    c, occupations = orbitals(mol)
    dm0, dms = (c * occupations) @ c.T, changes(mol, 2)
    theirs, ours = (
        ni.nr_rks_fxc_st(mol, grids, xc, dm0, dms, singlet=singlet) for ni in (numint.NumInt(), NumInt("wait"))
    )
    np.testing.assert_allclose(ours, theirs, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("xc", FUNCTIONALS)
def test_unrestricted(mol, grids, xc) -> None:
    c, occupations = orbitals(mol)
    dm0 = np.array([0.6, 0.4])[:, None, None] * ((c * occupations) @ c.T)
    for dms in (changes(mol, 2), changes(mol, 2, 3)):
        theirs, ours = (ni.nr_uks_fxc(mol, grids, xc, dm0, dms) for ni in (numint.NumInt(), NumInt("wait")))
        assert ours.shape == theirs.shape
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("xc", ["lda,vwn", "pbe", "tpss"])
def test_kernel_is_the_derivative_of_the_potential(mol, grids, xc) -> None:
    c, occupations = orbitals(mol)
    dm0, change, step = (c * occupations) @ c.T, changes(mol), 1e-4
    change = change + change.T
    ni = NumInt("wait")
    plus, minus = (ni.nr_rks(mol, grids, xc, dm0 + sign * step * change)[2] for sign in (1, -1))
    response = ni.nr_rks_fxc(mol, grids, xc, dm0, change, hermi=1)
    np.testing.assert_allclose(response, (plus - minus) / (2 * step), rtol=0, atol=2e-5 * np.abs(response).max())


@pytest.mark.parametrize("xc", FUNCTIONALS)
@pytest.mark.parametrize("spin", [0, 1])
def test_cached_kernels(mol, grids, xc, spin) -> None:
    """Points without weight are left out, where PySCF evaluates the functional all the same."""
    c, occupations = orbitals(mol)
    weighted = np.abs(grids.weights) > 1e-14
    both = np.array([c, c]), np.array([occupations, occupations]) / 2
    dms = [(c * occ) @ c.T for c, occ in zip(*both)]
    calls = [("cache_xc_kernel", (c, occupations)), ("cache_xc_kernel1", ((c * occupations) @ c.T,))]
    if spin:
        calls += [("cache_xc_kernel", both), ("cache_xc_kernel1", (np.array(dms),))]
    for name, arguments in calls:
        theirs, ours = (
            getattr(ni, name)(mol, grids, xc, *arguments, spin=spin) for ni in (numint.NumInt(), NumInt("wait"))
        )
        rho, vxc, _ = (np.asarray(a)[..., weighted] for a in theirs)
        np.testing.assert_allclose(np.asarray(ours[0])[..., weighted], rho, rtol=0, atol=TOLERANCE)
        np.testing.assert_allclose(np.asarray(ours[1])[..., weighted], vxc, rtol=1e-6, atol=1e-9)
        assert [np.shape(a) for a in ours] == [np.shape(a) for a in theirs]


def test_exchange_alone_is_left_to_pyscf(mol, grids) -> None:
    c, occupations = orbitals(mol)
    assert not NumInt("wait").nr_rks_fxc(mol, grids, "hf", (c * occupations) @ c.T, changes(mol, 2)).any()
