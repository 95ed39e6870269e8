"""Gradients of J and K through raised and lowered shells, held to PySCF's derivative integrals."""

from __future__ import annotations

import numpy as np
import pytest
from pyscf import dft, gto, scf
from pyscf.grad import rhf as pyscf_gradients

import trnqc
from trnqc.eri.gradient.builder import GradientBuilder
from trnqc.eri.gradient.derivative_basis import derivative_basis
from trnqc.eri.gradient.mixed_basis import MixedJK
from trnqc.eri.shells.pairs import pairs_between, pairs_of
from trnqc.errors import InputError

# s functions alone, so that most tests compile one kernel.
PLAIN = "H 0 0 0; H 0.1 0 0.74; He 0.2 1.5 0.3"
RADICAL = "H 0 0 0; H 0 0.1 0.8; H 0.3 1.2 0.4"
WATER = "O 0 0.1 -0.2; H 0.76 0.6 -0.3; H -0.75 0.55 -0.1"
GENERAL_S = {"H": [[0, [4.0, 0.1, -0.2], [1.1, 0.5, 0.3], [0.3, 0.4, 0.9]]], "He": [[0, [0.4, 1.0]]]}
GENERAL_P = {"H": [[1, [6.0, 0.2, 0.3], [1.5, 0.6, -0.4]]], "He": [[1, [0.4, 1.0]]]}


def molecule(atom: str = PLAIN, basis="6-31g", **options) -> gto.Mole:
    return gto.M(atom=atom, basis=basis, verbose=0, **options)


def random_densities(mol: gto.Mole, *shape: int) -> np.ndarray:
    return np.random.default_rng(7).standard_normal((*shape, mol.nao, mol.nao))


def momenta(mol: gto.Mole) -> np.ndarray:
    """The angular momentum of each Cartesian function."""
    return np.repeat([mol.bas_angular(n) for n in range(mol.nbas)], np.diff(mol.ao_loc_nr(cart=True)))


@pytest.fixture(scope="module")
def water() -> gto.Mole:
    return molecule(WATER)


@pytest.fixture(scope="module")
def builder(water) -> GradientBuilder:
    return GradientBuilder(water)


@pytest.mark.parametrize("with_j, with_k", [(True, False), (False, True), (True, True)])
@pytest.mark.parametrize("highest", [1, 2, 3])
def test_the_mixed_basis(water, highest, with_j, with_k):
    """(i'j|kl) by PySCF over both bases joined; both sides leave out pairs of a higher sum of momenta."""
    basis = derivative_basis(water)
    n, m = basis.mol.nbas, basis.mol.nbas + water.nbas
    joined = gto.conc_mol(basis.mol, basis.cartesian)
    eri = joined.intor("int2e_cart", shls_slice=(0, n, n, m, n, m, n, m))
    eri[np.add.outer(momenta(basis.mol), momenta(basis.cartesian)) > highest] = 0
    dms = random_densities(water, 3)
    extents = basis.mol.nao_cart(), basis.cartesian.nao_cart()
    bras = [pairs for pairs in pairs_between(basis.mol, basis.cartesian) if pairs.la + pairs.lb <= highest]
    mixed = MixedJK(bras, pairs_of(basis.cartesian), extents)
    vj, vk = mixed.get_jk(dms, with_j, with_k)
    if with_j:
        np.testing.assert_allclose(vj, np.einsum("ijkl,nlk->nij", eri, dms), rtol=0, atol=1e-10)
    if with_k:
        np.testing.assert_allclose(vk, np.einsum("ijkl,njk->nil", eri, dms), rtol=0, atol=1e-10)
    assert (vj is None, vk is None) == (not with_j, not with_k)


@pytest.mark.parametrize("shape", [(), (1,), (2,), (2, 2), (0,)], ids=str)
def test_shapes_and_signs(water, builder, shape):
    dm = random_densities(water, *shape)
    vj, vk = builder.get_jk(dm)
    assert vj.shape == vk.shape == (*shape, 3, water.nao, water.nao)
    if dm.size == 0:
        return
    flat = dm.reshape(-1, water.nao, water.nao)
    expected_j, expected_k = pyscf_gradients.get_jk(water, flat)
    np.testing.assert_allclose(vj.reshape(expected_j.shape), expected_j, rtol=0, atol=1e-10)
    np.testing.assert_allclose(vk.reshape(expected_k.shape), expected_k, rtol=0, atol=1e-10)


@pytest.mark.parametrize("omega", [0.4, -0.4])
def test_range_separation(omega):
    mol = molecule()
    dm = random_densities(mol)
    results = GradientBuilder(mol, omega).get_jk(dm)
    with mol.with_range_coulomb(omega):
        expected = pyscf_gradients.get_jk(mol, dm)
    np.testing.assert_allclose(results, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize(
    "basis",
    [GENERAL_S, GENERAL_P, pytest.param({"H": GENERAL_S["H"], "He": GENERAL_P["H"]}, marks=pytest.mark.slow)],
    ids=["s", "p", "s and p"],
)
def test_several_contractions_of_one_shell(basis):
    mol = molecule(basis=basis)
    dm = random_densities(mol, 2)
    np.testing.assert_allclose(GradientBuilder(mol).get_jk(dm), pyscf_gradients.get_jk(mol, dm), rtol=0, atol=1e-10)


def test_a_small_density_is_screened_without_harm(water, builder):
    dm = random_densities(water) * 1e-7
    vj, vk = builder.get_jk(dm)
    expected_j, expected_k = pyscf_gradients.get_jk(water, dm)
    np.testing.assert_allclose(vj, expected_j, rtol=0, atol=1e-11)
    np.testing.assert_allclose(vk, expected_k, rtol=0, atol=1e-11)
    nothing = builder.get_jk(np.zeros((water.nao, water.nao)))
    assert not np.any(nothing)


def test_the_bits_do_not_depend_on_the_number_of_threads():
    mol = molecule(WATER)
    dm = random_densities(mol, 2) * np.array([1.0, 1e6])[:, None, None]
    one, *more = (np.array(GradientBuilder(mol, threads=n).get_jk(dm)) for n in (1, 2, 3))
    for other in more:
        np.testing.assert_array_equal(one, other)


def test_no_sum_exceeds_its_bound(water, monkeypatch):
    """With all terms of one sign, where the bound is closest."""
    bounds = []
    original = MixedJK._bounds
    monkeypatch.setattr(MixedJK, "_bounds", lambda self, dms: bounds.append(original(self, dms)) or bounds[-1])
    basis = derivative_basis(water)
    ket = pairs_of(basis.cartesian)
    mixed = MixedJK(pairs_between(basis.mol, basis.cartesian), ket, (basis.mol.nao_cart(), basis.cartesian.nao_cart()))
    matrices = mixed.get_jk(np.ones((1, basis.cartesian.nao, basis.cartesian.nao)))
    for matrix, bound in zip(matrices, bounds[0]):
        assert (np.abs(matrix).max(axis=2) > 0).all()
        assert (np.abs(matrix).max(axis=2) <= bound).all()


def test_translations_do_nothing(water, builder):
    """The sum of all forces of an energy that depends on differences of positions alone is zero."""
    dm = random_densities(water)
    dm = dm + dm.T
    vj, vk = builder.get_jk(dm)
    np.testing.assert_allclose(np.einsum("xij,ij->x", vj, dm), 0, atol=1e-9)
    np.testing.assert_allclose(np.einsum("xij,ij->x", vk, dm), 0, atol=1e-9)


def test_a_density_that_is_not_a_number(water, builder):
    dm = random_densities(water)
    dm[1, 1] = np.nan
    with pytest.raises(InputError, match="finite"):
        builder.get_jk(dm)


def test_a_density_of_another_size(builder):
    with pytest.raises(InputError, match="4"):
        builder.get_jk(np.eye(4))


KINDS = {
    "RHF": lambda: scf.RHF(molecule()),
    "RHF, p": lambda: scf.RHF(molecule(WATER)),
    "RHF, symmetry": lambda: scf.RHF(molecule("H 0 0 0; H 0 0 0.74", symmetry=True)),
    "RHF, solvent": lambda: scf.RHF(molecule()).PCM(),
    "RHF, second order": lambda: scf.RHF(molecule()),
    "UHF": lambda: scf.UHF(molecule(RADICAL, spin=1)),
    "ROHF": lambda: scf.ROHF(molecule(RADICAL, spin=1)),
    "RKS, no exchange": lambda: dft.RKS(molecule(), xc="pbe"),
    "RKS, PBE0": lambda: dft.RKS(molecule(), xc="pbe0"),
    "RKS, long-range corrected": lambda: dft.RKS(molecule(), xc="camb3lyp"),
    "UKS, long-range corrected": lambda: dft.UKS(molecule(RADICAL, spin=1), xc="wb97x"),
    "ROKS": lambda: dft.ROKS(molecule(RADICAL, spin=1), xc="b3lyp"),
}


@pytest.mark.parametrize("kind", KINDS)
def test_forces(kind):
    theirs = KINDS[kind]().set(conv_tol=1e-12)
    if hasattr(theirs, "grids"):
        theirs.grids.level = 0
    theirs.kernel()
    ours = trnqc.accelerate(theirs)
    if kind == "RHF, second order":
        ours = ours.newton()
    gradients = ours.nuc_grad_method()
    np.testing.assert_allclose(gradients.kernel(), theirs.nuc_grad_method().kernel(), rtol=0, atol=1e-8)
    assert ours.Gradients().__class__ is gradients.__class__


def test_scanner_of_forces():
    theirs = scf.RHF(molecule()).set(conv_tol=1e-12)
    ours = trnqc.accelerate(theirs).nuc_grad_method().as_scanner()
    theirs = theirs.nuc_grad_method().as_scanner()
    for atom in (PLAIN, PLAIN.replace("0.74", "0.8")):
        mol = molecule(atom)
        (energy, forces), (expected_energy, expected) = ours(mol), theirs(mol)
        assert energy == pytest.approx(expected_energy, abs=1e-9)
        np.testing.assert_allclose(forces, expected, rtol=0, atol=1e-8)


def test_undo():
    mf = scf.RHF(molecule()).run()
    gradients = trnqc.accelerate(mf).nuc_grad_method()
    assert type(gradients.undo()) is type(mf.nuc_grad_method())
    np.testing.assert_allclose(gradients.undo().kernel(), gradients.kernel(), rtol=0, atol=1e-8)


def test_beyond_the_limit_is_pyscfs_and_said():
    """Energies reach one angular momentum higher than their derivatives."""
    basis = {"He": [[0, [1.2, 1.0]], [5, [1.1, 1.0]]]}
    mol = molecule("He 0 0 0; He 0 0 1.5", basis)
    dm = np.eye(mol.nao)
    mf = scf.RHF(mol)
    with pytest.warns(RuntimeWarning, match="angular momentum 5, beyond 4"):
        results = trnqc.accelerate(mf).nuc_grad_method().get_j(mol, dm)
    np.testing.assert_array_equal(results, mf.nuc_grad_method().get_j(mol, dm))


@pytest.mark.slow
@pytest.mark.parametrize(
    "make",
    [
        lambda: scf.RHF(molecule(WATER, "def2-svp")),
        lambda: scf.RHF(molecule(WATER, "cc-pvdz", cart=True)),
        lambda: scf.RHF(molecule("examples/molecules/benzene.xyz", "def2-svp")),
        lambda: scf.UHF(molecule("C 0 0 0; H 1.08 0 0; H -0.54 0.935 0; H -0.54 -0.935 0.1", "def2-svp", spin=1)),
        lambda: dft.RKS(molecule(WATER, "def2-svp"), xc="hse06"),
        lambda: scf.RHF(molecule(WATER, "cc-pvtz", cart=True)),
    ],
    ids=["d", "Cartesian d", "benzene", "radical", "screened hybrid", "Cartesian f"],
)
def test_forces_of_whole_molecules(make):
    theirs = make().set(conv_tol=1e-12).run()
    ours = trnqc.accelerate(theirs).nuc_grad_method()
    np.testing.assert_allclose(ours.kernel(), theirs.nuc_grad_method().kernel(), rtol=0, atol=1e-8)


def test_many_densities_without_symmetry():
    """The function of `trnqc.eri` against PySCF's derivative integrals, with and without range separation."""
    mol = molecule()
    dms = random_densities(mol, 2, 3)
    for omega in (None, 0.4):
        with mol.with_range_coulomb(omega):
            eri = -mol.intor("int2e_ip1", comp=3)
        vj, vk = trnqc.eri.jk_gradient(mol, dms, omega=omega)
        np.testing.assert_allclose(vj, np.einsum("xijkl,abkl->abxij", eri, dms.swapaxes(-1, -2)), rtol=0, atol=1e-11)
        np.testing.assert_allclose(vk, np.einsum("xijkl,abjk->abxil", eri, dms), rtol=0, atol=1e-11)
    assert trnqc.eri.jk_gradient(mol, dms, with_j=False)[0] is None
    with pytest.raises(InputError, match="real densities"):
        trnqc.eri.jk_gradient(mol, dms * 1j)


def test_derivative_of_an_energy_without_symmetry():
    """sum_ijkl D_ij (ij|kl) F_kl of two densities without symmetry, by finite differences."""
    mol = molecule()
    d, f = random_densities(mol, 2)
    direction = np.array([0.3, -0.5, 0.8])

    def energy(step: float) -> float:
        place = mol.atom_coords()
        place[1] += step * direction
        eri = mol.set_geom_(place, unit="Bohr", inplace=False).intor("int2e")
        return float(np.einsum("ijkl,ij,kl->", eri, d, f, optimize=True))

    h = 1e-3
    slope = (8 * (energy(h) - energy(-h)) - (energy(2 * h) - energy(-2 * h))) / (12 * h)
    vj = trnqc.eri.jk_gradient(mol, [d, f], with_k=False)[0]
    begin, end = mol.aoslice_by_atom()[1, 2:]
    terms = [np.einsum("xij,ij->x", v[:, begin:end], (e + e.T)[begin:end]) for v, e in zip(vj, (f, d))]
    assert sum(terms) @ direction == pytest.approx(slope, rel=1e-8)
