"""Cartesian powers and solid harmonics against PySCF's."""

from __future__ import annotations

import numpy as np
import pytest
from pyscf import gto

from trnqc.eri.kernels.angular import cartesians, ncart, raised, spherical

SHELLS = range(8)


@pytest.mark.parametrize("l", SHELLS)
def test_spherical_as_in_pyscf(l):
    np.testing.assert_allclose(spherical(l), gto.cart2sph(l, normalized="sp"), rtol=0, atol=1e-13)


@pytest.mark.parametrize("l", SHELLS)
def test_cartesians_are_all_powers_in_descending_order(l):
    powers = cartesians(l)
    assert len(set(powers)) == ncart(l) == len(powers)
    assert all(sum(p) == l for p in powers)
    assert list(powers) == sorted(powers, reverse=True)


@pytest.mark.parametrize("l", range(2, 8))
def test_harmonics_are_orthonormal_on_the_sphere(l):
    # Gauss-Legendre in cos(theta) and equal steps in phi integrate products of degree 2 l exactly.
    cosine, weight = np.polynomial.legendre.leggauss(l + 1)
    phi = 2 * np.pi * np.arange(2 * l + 2) / (2 * l + 2)
    sine = np.sqrt(1 - cosine**2)
    r = np.array([np.outer(sine, np.cos(phi)), np.outer(sine, np.sin(phi)), np.outer(cosine, np.ones_like(phi))])
    functions = np.array([np.prod([r[n] ** p for n, p in enumerate(powers)], axis=0) for powers in cartesians(l)])
    y = np.einsum("ctp,cm->mtp", functions, spherical(l))
    overlap = np.einsum("mtp,ntp,t->mn", y, y, weight) * 2 * np.pi / len(phi)
    np.testing.assert_allclose(overlap, np.eye(2 * l + 1), atol=1e-12)


def test_raised_changes_one_axis():
    assert raised((1, 0, 2), 1) == (1, 1, 2)
    assert raised((1, 0, 2), 2, by=-1) == (1, 0, 1)
