"""Whether a solution of the SCF is a minimum of the energy.

The second derivative of the energy with respect to rotations of the orbitals is the matrix of the Z-vector equations.
Its lowest eigenvalue is negative for an unstable solution (R. Seeger and J. A. Pople, J. Chem. Phys. 66, 3045 (1977)):

    (ε_a - ε_i) z_ai + G[z]_ai = λ z_ai

An RHF solution is a point of UHF as well. Rotations z of α and -z of β spin lower its energy more than those of both
spins together do, because the difference of the two matrices, 4 (ia|jb), is positive semidefinite.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from pyscf import lib

from trnqc.errors import NotConverged
from trnqc.mp2.reference.orbitals import kind_of_reference
from trnqc.mp2.reference.spins import SpinOrbitals, spin_orbitals
from trnqc.mp2.response.response import RotationResponse, response_of
from trnqc.mp2.response.rotations import CanonicalRotations, Rotations

# Hartree. A solution is called unstable if the lowest eigenvalue lies below -UNSTABLE, as in PySCF, because rotations
# that change nothing, such as those of an open shell in an atom, have eigenvalues of zero within the convergence.
UNSTABLE = 1e-5
# Davidson's method stops when the eigenvalue changes by less than this (Hartree), or after this many products.
TOLERANCE, MOST_PRODUCTS = 1e-6, 60
# Number of start vectors: the rotations between orbitals of the smallest energy differences, of several symmetries.
STARTS = 4


class BrokenSpinRotations(CanonicalRotations):
    """Rotations z of the α and -z of the β orbitals of a closed shell, whose spatial orbitals are the same."""

    def __init__(self, spin: SpinOrbitals) -> None:
        super().__init__((spin,))

    def blocks(self, x: np.ndarray) -> list[np.ndarray]:
        """Return z[a, i] and -z[a, i]."""
        (block,) = super().blocks(x)
        return [block, -block]

    def response_part(self, columns: Sequence[np.ndarray]) -> np.ndarray:
        """Return G_ai of the α spin."""
        return super().response_part(columns[:1])


def stability_warnings(mf: Any, threads: int) -> tuple[str, ...]:
    """Return a message if a rotation of the orbitals lowers the energy of a converged RHF or UHF object.

    RHF is compared with UHF and, if UHF has a lower energy, with other RHF solutions. Raises UnsupportedError if it is
    another kind of reference; NotConverged if the lowest eigenvalue has not converged.
    """
    spins = spin_orbitals(mf.mo_coeff, mf.mo_energy, mf.mo_occ)
    if len(spins) == 1:
        lowest = _lowest(BrokenSpinRotations(spins[0]), response_of(mf.to_uhf(), 2 * spins, threads))
        if lowest >= -UNSTABLE:
            return ()
        external = (
            f"the RHF solution is unstable: a UHF solution with broken spin symmetry has a lower energy (eigenvalue "
            f"{lowest:.3f} Hartree), so that MP2 of the RHF solution may be poor. mf.stability(external=True)[1] are "
            "orbitals from which UHF finds it (docs/properties.md)"
        )
    lowest_internal = _lowest(CanonicalRotations(spins), response_of(mf, spins, threads))
    kind = kind_of_reference(mf)
    internal = (
        f"the {kind} solution is unstable: another {kind} solution has a lower energy (eigenvalue "
        f"{lowest_internal:.3f} Hartree). mf.stability()[0] are orbitals from which to run the SCF again"
    )
    messages = [external] if len(spins) == 1 else []
    return (*messages, internal) if lowest_internal < -UNSTABLE else tuple(messages)


def _lowest(rotations: Rotations, response: RotationResponse) -> float:
    """Lowest eigenvalue of the second derivative, Hartree, by Davidson's method."""
    gap = rotations.gap
    if not gap.size:
        return np.inf

    def products(vectors: Sequence[np.ndarray]) -> list[np.ndarray]:
        return [
            rotations.fock_part(x) + rotations.response_part(response.rotation(rotations.blocks(x))) for x in vectors
        ]

    def preconditioned(residual: np.ndarray, eigenvalue: float, *_: Any) -> np.ndarray:
        distance = gap - eigenvalue
        return residual / np.where(np.abs(distance) < UNSTABLE, UNSTABLE, distance)

    start = np.zeros((min(STARTS, gap.size), gap.size))
    start[np.arange(len(start)), np.argsort(gap, kind="stable")[: len(start)]] = 1.0
    start[0] += 0.1 / np.maximum(gap, UNSTABLE) ** 2 * gap.min() ** 2  # A part of every symmetry.
    converged, values, _ = lib.davidson1(
        products, list(start), preconditioned, tol=TOLERANCE, max_cycle=MOST_PRODUCTS, nroots=1, verbose=0
    )
    if not converged[0]:
        raise NotConverged(
            f"the lowest eigenvalue of the stability analysis has not converged in {MOST_PRODUCTS} iterations: "
            "converge the SCF more tightly, or use mf.stability()"
        )
    return float(values[0])
