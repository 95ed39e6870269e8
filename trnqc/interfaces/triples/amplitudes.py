"""What perturbative triples read: amplitudes, integrals and orbital energies, checked, and padded to whole tiles."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from trnqc.errors import InputError, NotConverged
from trnqc.host.arrays import zeros
from trnqc.interfaces.triples.programs import TILE


@dataclass(frozen=True)
class Operands:
    """Amplitudes and integrals of o occupied and v virtual orbitals of a closed shell, which are real.

    Attributes
    ----------
    t1, t2 : ndarray
        Singles t_i^a [o, v] and doubles t_ij^ab [o, o, v, v].
    fock : ndarray
        f_ia [o, v], Hartree.
    occupied, virtual : ndarray
        Diagonal elements of the Fock matrix [o] and [v], Hartree.
    ovov, ovoo : ndarray or dataset
        (ia|jb) [o, v, o, v] and (ia|jk) [o, v, o, o].
    ovvv : callable
        ovvv(i) is (ia|bc) [v, v, v] of an occupied orbital.
    """

    t1: np.ndarray
    t2: np.ndarray
    fock: np.ndarray
    occupied: np.ndarray
    virtual: np.ndarray
    ovov: Any
    ovoo: Any
    ovvv: Callable[[int], np.ndarray]

    def __post_init__(self) -> None:
        o, v = _extents(self.t1)
        shapes = {
            "t1": (o, v),
            "t2": (o, o, v, v),
            "fock": (o, v),
            "occupied": (o,),
            "virtual": (v,),
            "ovov": (o, v, o, v),
            "ovoo": (o, v, o, o),
        }
        for name, shape in shapes.items():
            value = getattr(self, name)
            if np.shape(value) != shape or np.dtype(value.dtype) != np.float64:
                raise InputError(f"{name} must be real fp64 of shape {shape}, as t1 is {(o, v)}; found {_words(value)}")


def of_pyscf(mycc: Any, t1: Any, t2: Any, eris: Any) -> Operands:
    """The operands of PySCF's CCSD object. What is None is taken from it.

    Raises
    ------
    InputError
        If it is not closed-shell CCSD with real orbitals.
    NotConverged
        If its amplitudes are not those of a converged calculation.
    """
    if (t1 is None) != (t2 is None):
        raise InputError("expected both t1 and t2 or neither of them, found one")
    if t1 is None:
        t1, t2 = mycc.t1, mycc.t2
        if t1 is None or t2 is None:
            raise NotConverged("the CCSD object has no amplitudes: call its kernel() first, or pass t1 and t2")
        if not mycc.converged:
            raise NotConverged("CCSD has not converged: allow more cycles, or pass t1 and t2 to use them as they are")
    eris = mycc.ao2mo(mycc.mo_coeff) if eris is None else eris
    if missing := [name for name in ("ovov", "ovoo", "get_ovvv", "fock", "mo_energy") if not hasattr(eris, name)]:
        raise InputError(
            f"expected the integrals of pyscf.cc.ccsd.CCSD; {type(eris).__name__} has no {', '.join(missing)}"
        )
    o, _ = _extents(t1)
    energies = np.asarray(eris.mo_energy)

    def ovvv(i: int) -> np.ndarray:
        block: np.ndarray = eris.get_ovvv(slice(i, i + 1))[0]
        return block

    fock = np.asarray(eris.fock)[:o, o:]
    return Operands(t1, t2, fock, energies[:o], energies[o:], eris.ovov, eris.ovoo, ovvv)


def _extents(t1: Any) -> tuple[int, int]:
    """The numbers of occupied and of virtual orbitals. Raises InputError for what is no array of singles."""
    if np.ndim(t1) != 2:
        raise InputError(f"t1 must be one array [occupied, virtual] of a closed shell, found {_words(t1)}")
    o, v = np.shape(t1)
    return o, v


def _words(value: Any) -> str:
    if isinstance(value, tuple):
        return f"a tuple of {len(value)}"
    return f"{getattr(value, 'dtype', type(value).__name__)} of shape {np.shape(value)}"


@dataclass(frozen=True)
class Padded:
    """Operands with virtual orbitals padded by zeros to whole tiles, v' of them.

    Attributes
    ----------
    o, v : int
        Numbers of occupied and of virtual orbitals.
    doubles, integrals : ndarray
        t_ij^ab and (ia|jb) as [i, j, a, b], [o, o, v', v'].
    ovoo : ndarray
        -(ia|jk) as [i, j, k, a], [o, o, o, v].
    singles, fock : ndarray
        [o, v'].
    occupied, virtual : ndarray
        [o] and [v']. The energies of the added orbitals are so high that they contribute nothing.
    """

    o: int
    v: int
    doubles: np.ndarray
    integrals: np.ndarray
    ovoo: np.ndarray
    singles: np.ndarray
    fock: np.ndarray
    occupied: np.ndarray
    virtual: np.ndarray

    @classmethod
    def of(cls, operands: Operands) -> Padded:
        o, v = operands.t1.shape
        side = tiles(v) * TILE
        doubles, integrals = zeros((o, o, side, side)), zeros((o, o, side, side))
        doubles[:, :, :v, :v] = operands.t2
        for i in range(o):
            integrals[i, :, :v, :v] = np.asarray(operands.ovov[i]).transpose(1, 0, 2)
        ovoo = -np.asarray(operands.ovoo).transpose(0, 2, 3, 1)
        virtual = np.full(side, FAR)
        virtual[:v] = operands.virtual
        singles, fock = (np.pad(x, ((0, 0), (0, side - v))) for x in (operands.t1, operands.fock))
        return cls(o, v, doubles, integrals, np.ascontiguousarray(ovoo), singles, fock, operands.occupied, virtual)


# Hartree. Three of them are finite, and a product divided by one is negligible.
FAR = 1e200


def tiles(extent: int) -> int:
    """The number of tiles that cover so many orbitals."""
    return -(-extent // TILE)
