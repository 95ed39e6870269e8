"""Laws that integrals keep whatever the shells: nothing is compared with another program here."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as s
from pyscf import gto
from scipy.spatial.transform import Rotation

from tests.eri.quartets import ours, pairs, shells
from trnqc.eri import int2e
from trnqc.eri.classes import QuartetClass

KINDS = [("0000", False), ("1010", False), ("1110", True), ("2011", False), ("2110", False), ("3020", True)]
CLASSES = [QuartetClass(*map(int, digits), cartesian=cartesian) for digits, cartesian in KINDS]
classes = pytest.mark.parametrize("cls", CLASSES, ids=lambda cls: cls.name)
few = settings(max_examples=15, deadline=None)
# Centres in bohr, and exponents from diffuse to tight in powers of ten.
point = s.tuples(*[s.floats(-3, 3)] * 3)
quartet = s.tuples(s.lists(point, min_size=4, max_size=4), s.lists(s.floats(-1.5, 3), min_size=8, max_size=8))


def integrals(cls: QuartetClass, centres: np.ndarray, exponents: np.ndarray) -> np.ndarray:
    """(ab|cd) [na nb, nc nd] of shells with two primitives each."""
    moles = [
        shells(l, centres[n : n + 1], exponents[n : n + 1], np.array([[[0.7, 0.4]]]), cls.cartesian)
        for n, l in enumerate(cls.shells)
    ]
    return ours(cls, pairs(moles[:2]), pairs(moles[2:]))[0, 0, :, :, 0]


def drawn(case) -> tuple[np.ndarray, np.ndarray]:
    centres, powers = case
    return np.array(centres), 10.0 ** np.array(powers).reshape(4, 2)


def alike(a: np.ndarray, b: np.ndarray, rtol: float = 0.0) -> None:
    """Functions are normalised, so that integrals are numbers of order one over a distance."""
    np.testing.assert_allclose(a, b, rtol=rtol, atol=1e-12)


@classes
@few
@given(case=quartet, shift=point)
def test_moving_all_centres_changes_nothing(cls, case, shift):
    centres, exponents = drawn(case)
    alike(integrals(cls, centres + shift, exponents), integrals(cls, centres, exponents))


@classes
@few
@given(case=quartet)
def test_bra_and_ket_may_change_places(cls, case):
    centres, exponents = drawn(case)
    la, lb, lc, ld = cls.shells
    swapped = integrals(
        QuartetClass(lc, ld, la, lb, cartesian=cls.cartesian), centres[[2, 3, 0, 1]], exponents[[2, 3, 0, 1]]
    )
    alike(swapped.T, integrals(cls, centres, exponents))


@classes
@few
@given(case=quartet)
def test_inversion_gives_the_parity_of_the_functions(cls, case):
    centres, exponents = drawn(case)
    alike(integrals(cls, -centres, exponents), (-1) ** cls.order * integrals(cls, centres, exponents))


@classes
@few
@given(case=quartet, scale=s.floats(0.5, 2.0))
def test_integrals_go_with_the_inverse_length(cls, case, scale):
    centres, exponents = drawn(case)
    alike(integrals(cls, scale * centres, exponents / scale**2) * scale, integrals(cls, centres, exponents), rtol=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("exponents", [(3.43, 0.308), (0.308, 3.43)], ids=["tight first", "diffuse first"])
def test_turning_a_molecule_of_g_shells_keeps_the_norm_of_every_block(exponents):
    """libcint's own norms differ here by 3e-11 from one orientation to the other, so that it is no reference."""
    turn = Rotation.from_rotvec([0.4, -1.1, 0.7]).as_matrix()
    centres = np.array([[0.0, 0.0, 0.0], [1.9, -1.2, 1.8]])
    basis = {f"ghost-He{n}": [[4, [exponent, 1.0]]] for n, exponent in enumerate(exponents)}
    norms = []
    for points in (centres, centres @ turn.T):
        atoms = list(zip(basis, map(tuple, points)))
        mol = gto.M(atom=atoms, basis=basis, unit="Bohr", verbose=0)
        blocks = int2e(mol).reshape(2, 9, 2, 9, 2, 9, 2, 9)
        norms.append(np.sqrt(np.einsum("aibjckdl,aibjckdl->abcd", blocks, blocks)))
    alike(*norms)
