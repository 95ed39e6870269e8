"""Atomic orbitals on points, beside PySCF's eval_gto."""

from __future__ import annotations

from math import comb

import numpy as np
import pytest
from pyscf import gto

from trnqc.xc.ao import AtomicOrbitals
from trnqc.xc.blocks import MULTIPLE, Blocks, bisected

# One shell of each kind: s with several contractions and a coefficient of zero, and p to g.
OXYGEN = [
    [0, [130.7, 0.15, 0.3], [23.8, 0.53, -0.1], [6.44, 0.44, 0.0]],
    [1, [2.5, 0.6, 1.0], [0.4, 0.5, 0.0]],
    [2, [1.1, 1.0]],
    [3, [0.9, 1.0]],
    [4, [0.8, 1.0]],
]
HYDROGEN = [[0, [1.2, 1.0]], [1, [0.8, 1.0]]]


def molecule(cartesian: bool) -> gto.Mole:
    atoms = "O 0 0 0; H 0 0 1.8; H 1.7 0.2 -0.3"
    return gto.M(atom=atoms, unit="B", basis={"O": OXYGEN, "H": HYDROGEN}, cart=cartesian, verbose=0)


def on_points(mol: gto.Mole, points: np.ndarray, order: int, **options: float) -> np.ndarray:
    """Return values [components, points, nao] from all blocks."""
    blocks = Blocks.of(mol, points, None, order, **options)
    aos = AtomicOrbitals(blocks, order)
    values, buffer = np.zeros((aos.components, len(points), mol.nao)), aos.buffer()
    for block in blocks.blocks:
        values[:, blocks.index[block.span][:, None], block.functions] = aos(block, buffer).transpose(0, 2, 1)
    return values


def pyscf_values(mol: gto.Mole, points: np.ndarray, order: int) -> np.ndarray:
    if not len(points):
        return np.zeros((comb(order + 3, 3), 0, mol.nao))
    name = f"GTOval_{'cart' if mol.cart else 'sph'}_deriv{order}"
    return mol.eval_gto(name, points).reshape(-1, len(points), mol.nao)


@pytest.mark.parametrize("cartesian", [False, True], ids=["spherical", "cartesian"])
@pytest.mark.parametrize("order", [0, 1, 2])
def test_values_and_derivatives(cartesian, order):
    mol, points = molecule(cartesian), np.random.default_rng(1).normal(size=(211, 3)) * 2
    reference = pyscf_values(mol, points, order)
    values = on_points(mol, points, order, size=64, cutoff=0.0)
    # The second derivatives of the tight s function are sums of terms of 1e4.
    np.testing.assert_allclose(values, reference, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("count", [0, 1, MULTIPLE, MULTIPLE + 1, 97])
def test_numbers_of_points(count):
    mol, points = molecule(False), np.random.default_rng(2).normal(size=(count, 3))
    values = on_points(mol, points, 0, size=32, cutoff=0.0)
    np.testing.assert_allclose(values, pyscf_values(mol, points, 0), rtol=1e-12, atol=1e-14)


def test_third_derivatives():
    mol, points = molecule(False), np.random.default_rng(3).normal(size=(50, 3))
    reference = pyscf_values(mol, points, 3)
    values = on_points(mol, points, 3, cutoff=0.0)
    np.testing.assert_allclose(values, reference, rtol=1e-11, atol=1e-14 * np.abs(reference).max())


@pytest.mark.parametrize("order", [0, 1])
def test_what_is_left_out_is_below_the_cutoff(order):
    """Functions are left out far from their atoms, and only there."""
    mol, cutoff = molecule(False), 1e-6
    points = np.random.default_rng(4).uniform(-12, 12, size=(2000, 3))
    blocks = Blocks.of(mol, points, None, order, size=64, cutoff=cutoff)
    kept = sum(len(block.functions) * block.points for block in blocks.blocks)
    assert kept < 0.6 * len(points) * mol.nao
    error = np.abs(on_points(mol, points, order, size=64, cutoff=cutoff) - pyscf_values(mol, points, order)).max()
    assert 0 < error < 3 * cutoff  # at most three primitives


def test_heavier_points_keep_more_functions():
    mol, points = molecule(False), np.random.default_rng(5).uniform(4, 8, size=(500, 1)) * [1.0, 0.0, 0.0]
    light, heavy = (Blocks.of(mol, points, np.full(500, w), 0, size=64) for w in (1e-6, 1.0))
    assert sum(len(b.functions) for b in light.blocks) < sum(len(b.functions) for b in heavy.blocks)


def test_points_without_weight_are_left_out():
    weights = np.ones(100)
    weights[40:] = 1e-18
    blocks = Blocks.of(molecule(False), np.random.default_rng(6).normal(size=(100, 3)), weights)
    assert set(blocks.index) == set(range(40))
    assert blocks.weights.sum() == 40


def test_every_point_is_in_one_part():
    points = np.random.default_rng(7).normal(size=(1000, 3))
    parts = list(bisected(points, 64))
    assert sorted(np.concatenate(parts)) == list(range(1000))
    assert sorted(map(len, parts))[1:] == [64] * 15
    spread = max(np.ptp(points[part], axis=0).max() for part in parts)
    assert spread < np.ptp(points, axis=0).max()


def test_a_molecule_without_shells():
    mol = molecule(False)
    mol._bas = mol._bas[:0]
    blocks = Blocks.of(mol, np.zeros((5, 3)))
    assert AtomicOrbitals(blocks, 0)(blocks.blocks[0], np.zeros(0)).shape == (1, 0, MULTIPLE)
