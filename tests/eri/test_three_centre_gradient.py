"""Contracted derivatives of three- and two-centre integrals, held to PySCF's and to differences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from pyscf import df, gto

from trnqc.eri.gradient.fitting_blocks import blocks_of
from trnqc.eri.gradient.three_centre import three_centre_gradient, two_centre_gradient
from trnqc.errors import InputError, UnsupportedClass

WATER = "O 0 0 0.1; H 0 0.8 0.6; H 0.3 -0.7 0.5"
# Two contractions that share primitives, on each side, and shells with and without contraction.
SMALL = {
    "O": [[0, [9.0, 0.2, -0.1], [1.5, 0.7, 0.4]], [0, [0.3, 1.0]], [1, [2.0, 0.4], [0.5, 0.7]]],
    "H": [[0, [1.2, 0.5], [0.3, 0.6]]],
}
FITTING = {
    "O": [[0, [14.0, 1.0]], [0, [3.0, 0.4, 0.2], [0.8, 0.7, -0.5]], [1, [1.1, 1.0]], [2, [0.9, 1.0]]],
    "H": [[0, [2.0, 1.0]], [0, [0.6, 1.0]], [1, [0.8, 1.0]]],
}
# Few functions with high angular momenta.
HIGH = {"Ne": [[3, [1.3, 1.0]], [1, [0.6, 1.0]]], "He": [[4, [0.9, 1.0]], [0, [0.5, 1.0]]]}
HIGH_FITTING = {"Ne": [[5, [1.4, 1.0]], [1, [0.7, 1.0]]], "He": [[3, [0.8, 1.0]]]}


def molecules(atom: str = WATER, basis: Any = None, fitting: Any = None, **options) -> tuple[gto.Mole, gto.Mole]:
    mol = gto.M(atom=atom, basis=basis or SMALL, verbose=0, **options)
    return mol, df.make_auxmol(mol, fitting or FITTING)


def random_density(*shape: int) -> np.ndarray:
    return np.random.default_rng(5).standard_normal(shape)


def by_pyscf(mol: gto.Mole, auxmol: gto.Mole, density: np.ndarray) -> np.ndarray:
    """The gradient from (dij|P) and (ij|dP), which PySCF differentiates by the electron's coordinate."""
    word = "_cart" if mol.cart else "_sph"
    orbitals = df.incore.aux_e2(mol, auxmol, f"int3c2e_ip1{word}", comp=3)
    fitting = df.incore.aux_e2(mol, auxmol, f"int3c2e_ip2{word}", comp=3)
    both = density + density.transpose(1, 0, 2)
    gradient = by_atom(mol, -np.einsum("xijp,ijp->ix", orbitals, both))
    return gradient + by_atom(auxmol, -np.einsum("xijp,ijp->px", fitting, density))


def by_atom(mol: gto.Mole, by_function: np.ndarray) -> np.ndarray:
    return np.array([by_function[begin:end].sum(axis=0) for begin, end in mol.aoslice_by_atom()[:, 2:]])


@pytest.mark.parametrize("cart", [False, True], ids=["spherical", "cartesian"])
def test_three_centres(cart):
    mol, auxmol = molecules(cart=cart)
    density = random_density(mol.nao, mol.nao, auxmol.nao)
    ours = three_centre_gradient(mol, auxmol, density)
    np.testing.assert_allclose(ours, by_pyscf(mol, auxmol, density), rtol=0, atol=1e-10)
    np.testing.assert_allclose(ours.sum(axis=0), 0, atol=1e-11)


@pytest.mark.parametrize("cart", [False, True], ids=["spherical", "cartesian"])
def test_two_centres(cart):
    _, auxmol = molecules(cart=cart)
    density = random_density(auxmol.nao, auxmol.nao)
    derivatives = auxmol.intor("int2c2e_ip1")
    expected = by_atom(auxmol, -np.einsum("xpq,pq->px", derivatives, density + density.T))
    np.testing.assert_allclose(two_centre_gradient(auxmol, density), expected, rtol=0, atol=1e-10)


@pytest.mark.slow
@pytest.mark.parametrize("cart", [False, True], ids=["spherical", "cartesian"])
def test_high_angular_momenta(cart):
    mol, auxmol = molecules("Ne 0 0 0; He 0.7 0.9 1.1", HIGH, HIGH_FITTING, cart=cart)
    density = random_density(mol.nao, mol.nao, auxmol.nao)
    expected = by_pyscf(mol, auxmol, density)
    assert np.abs(three_centre_gradient(mol, auxmol, density) - expected).max() < 1e-10 * np.abs(expected).max()


@pytest.mark.parametrize(
    "atom", ["O 0 0 0.1; GHOST-H 0 0.8 0.6; H 0.3 -0.7 0.5", "H 0.1 0.2 0.3"], ids=["ghost", "atom"]
)
def test_awkward_molecules(atom):
    mol, auxmol = molecules(
        atom, spin=None, basis={**SMALL, "GHOST-H": SMALL["H"]}, fitting={**FITTING, "GHOST-H": FITTING["H"]}
    )
    density = random_density(mol.nao, mol.nao, auxmol.nao)
    ours = three_centre_gradient(mol, auxmol, density)
    assert ours.shape == (mol.natm, 3)
    np.testing.assert_allclose(ours, by_pyscf(mol, auxmol, density), rtol=0, atol=1e-10)
    assert mol.natm > 1 or np.abs(ours).max() < 1e-12


@pytest.mark.parametrize("omega", [0.4, -0.4])
def test_range_separation(omega):
    mol, auxmol = molecules(
        "O 0 0 0.1; H 0 0.8 0.6", {"default": [[0, [0.9, 1.0]]]}, {"default": [[0, [0.7, 1.0]]]}, spin=None
    )
    density = random_density(mol.nao, mol.nao, auxmol.nao)
    ours = three_centre_gradient(mol, auxmol, density, omega=omega)
    with mol.with_range_coulomb(omega), auxmol.with_range_coulomb(omega):
        np.testing.assert_allclose(ours, by_pyscf(mol, auxmol, density), rtol=0, atol=1e-10)


def test_finite_differences():
    mol, auxmol = molecules()
    density = random_density(mol.nao, mol.nao, auxmol.nao)

    def energy(step: float) -> float:
        coordinates = mol.atom_coords()
        coordinates[1] += step * np.array([0.3, -0.5, 0.8])
        moved = [one.set_geom_(coordinates, unit="Bohr", inplace=False) for one in (mol, auxmol)]
        return float(np.vdot(df.incore.aux_e2(*moved), density))

    h = 1e-3
    slope = (8 * (energy(h) - energy(-h)) - (energy(2 * h) - energy(-2 * h))) / (12 * h)
    ours = three_centre_gradient(mol, auxmol, density)[1] @ np.array([0.3, -0.5, 0.8])
    assert ours == pytest.approx(slope, abs=1e-8)


def test_blocks_hold_all_functions_once():
    _, auxmol = molecules()
    for most in (1, 7, 20, np.inf):
        blocks = list(blocks_of(auxmol, most))
        functions = np.concatenate([block.functions for block in blocks])
        assert sorted(functions) == list(range(auxmol.nao))
        assert all(len(block.functions) <= max(most, 5) for block in blocks)


def test_bits_do_not_depend_on_threads_nor_much_on_blocks():
    mol, auxmol = molecules()
    density = random_density(mol.nao, mol.nao, auxmol.nao)
    sizes = []

    def of_block(functions: np.ndarray) -> np.ndarray:
        sizes.append(len(functions))
        return np.ascontiguousarray(density[:, :, functions])

    one, three = (three_centre_gradient(mol, auxmol, of_block, threads=n) for n in (1, 3))
    np.testing.assert_array_equal(one, three)
    assert sizes == [auxmol.nao] * 2
    small = three_centre_gradient(mol, auxmol, of_block, block_bytes=8 * mol.nao**2 * 9)
    assert max(sizes[2:]) <= 9 and sum(sizes[2:]) == auxmol.nao
    np.testing.assert_allclose(small, one, rtol=0, atol=1e-11)


def test_no_density_no_gradient():
    mol, auxmol = molecules()
    assert not three_centre_gradient(mol, auxmol, np.zeros((mol.nao, mol.nao, auxmol.nao))).any()


def test_what_is_refused():
    mol, auxmol = molecules()
    moved = auxmol.set_geom_(auxmol.atom_coords() + 1.0, unit="Bohr", inplace=False)
    good = np.zeros((mol.nao, mol.nao, auxmol.nao))
    with pytest.raises(UnsupportedClass, match="angular momentum 6"):
        three_centre_gradient(*molecules(basis={"default": [[6, [1.0, 1.0]]]}), good)
    with pytest.raises(InputError, match="other atoms"):
        three_centre_gradient(mol, moved, good)
    with pytest.raises(UnsupportedClass, match="cart=True"):
        three_centre_gradient(mol, molecules(cart=True)[1], good)
    with pytest.raises(InputError, match="expected a density"):
        three_centre_gradient(mol, auxmol, lambda functions: good[1:, :, functions])
    with pytest.raises(InputError, match="not finite"):
        three_centre_gradient(mol, auxmol, np.where(np.arange(auxmol.nao) == 4, np.nan, good))
    with pytest.raises(InputError, match="expected a density"):
        two_centre_gradient(auxmol, good[0])
