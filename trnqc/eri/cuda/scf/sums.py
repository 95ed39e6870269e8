"""Sums over the matrices of a cycle: energies, norms, and products of the error vectors of DIIS, in one array."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trnqc.eri.cuda.scf.arrays import Arrays
from trnqc.eri.cuda.scf.programs import ScfPrograms


@dataclass(frozen=True, eq=False)
class Sums:
    """Sums of a cycle, energies in Hartree.

    Parameters
    ----------
    one_electron, two_electron, coulomb
        tr h D, tr V D / 2 and tr J D / 2 of all spins.
    gradient, change
        The norms of the orbital gradient, as PySCF defines it, and of the change of D.
    errors
        Products of the new error vector of DIIS with those of all slots.
    """

    one_electron: float
    two_electron: float
    coulomb: float
    gradient: float
    change: float
    errors: np.ndarray


class Summation:
    """Computes the sums of F in a slot of "focks", and of "dm", "v", "j", "change" and "orbitals".

    Parameters
    ----------
    arrays, programs
        The matrices, and the programs of their device.
    occupied
        Occupied orbitals of each spin, or of both.
    """

    def __init__(self, arrays: Arrays, programs: ScfPrograms, occupied: tuple[int, ...]) -> None:
        self._arrays, self._programs, self._occupied = arrays, programs, occupied
        spins = len(occupied)
        # Where each sum is: energies and gradients by spin, and at last the products of errors.
        self._one, self._coulomb, self._gradients = (slice(m * spins, (m + 1) * spins) for m in range(3))
        self._two, self._change, self._errors = 3 * spins, 3 * spins + 1, 3 * spins + 2

    @staticmethod
    def size(spins: int, slots: int) -> int:
        """The elements of the array "sums"."""
        return 3 * spins + 2 + slots

    def sums(self, slot: int, gradient: bool, errors: int) -> Sums:
        """Compute and download the sums.

        slot: that of F. gradient: whether there are orbitals. errors: error vectors, the one to be made for this slot
        included; 0 without DIIS.
        """
        a, square = self._arrays, self._arrays.n**2
        stacked, whole = a.rows("dm", a.spins, square), a.rows("dm", 1, a.whole)
        a.dot(stacked, a.rows("h", 1, square), "sums", self._one.start)
        a.dot(stacked, a.rows("j", 1, square), "sums", self._coulomb.start)
        a.dot(whole, a.rows("v", 1, a.whole), "sums", self._two)
        a.dot(a.rows("change", 1, a.whole), a.rows("change", 1, a.whole), "sums", self._change)
        for spin, occupied in enumerate(self._occupied if gradient else ()):
            self._gradient(slot, spin, occupied)
        if errors:
            self._error(slot, errors)
        found = a.device.download(a["sums"])
        one, coulomb, squares = (float(found[part].sum()) for part in (self._one, self._coulomb, self._gradients))
        # PySCF's gradient has a factor 2 for orbitals of two electrons.
        gradient_norm, change = 2 / a.spins * float(np.sqrt(squares)), float(np.sqrt(found[self._change]))
        products = found[self._errors :][:errors]
        return Sums(one, float(found[self._two]) / 2, coulomb / 2, gradient_norm, change, products)

    def _gradient(self, slot: int, spin: int, occupied: int) -> None:
        """Sum the squares of C_vir^T F C_occ."""
        a, virtual = self._arrays, self._arrays.n - occupied
        if not occupied or not virtual:
            return
        half = a.block("work", a.n, occupied)
        a.multiply(a.square("focks", spin, slot), a.columns("orbitals", spin, 0, occupied), half)
        virtuals = a.columns("orbitals", spin, occupied, a.n)
        a.multiply(virtuals, half, a.block("more", virtual, occupied), transpose=(True, False))
        elements = a.rows("more", 1, virtual * occupied)
        a.dot(elements, elements, "sums", self._gradients.start + spin)

    def _error(self, slot: int, count: int) -> None:
        """Put X^T (FDS - SDF) X into a slot of "errors", and multiply it with all of them."""
        a, whole = self._arrays, self._arrays.whole
        for spin in range(a.spins):
            a.multiply(a.square("xs"), a.square("dm", spin), a.square("work"))
            a.multiply(a.square("focks", spin, slot), a.square("x"), a.square("more"))
            a.multiply(a.square("work"), a.square("more"), a.square("vectors", spin))
        self._programs("commutator", whole, n=a.n, out_at=slot * whole, x=a["vectors"], out=a["errors"])
        a.dot(a.rows("errors", count, whole), a.rows("errors", 1, whole, slot * whole), "sums", self._errors)
