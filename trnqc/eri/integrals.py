"""Two-electron integrals as arrays, in PySCF's layouts and normalisation: (ij|kl), (ij|P) and (P|Q).

Mole -> sides: classes of pairs with the places of their functions (places.py) -> tasks: a class of bra pairs with one
of ket pairs -> writers (writer.py) on a pool of threads
"""

from __future__ import annotations

from collections.abc import Sequence
from operator import index
from typing import Any

import numpy as np
from pyscf import gto

from trnqc.eri.arrays.filling import Image, Operator, fill, prepare
from trnqc.eri.arrays.sides import Side, fitting_side, part, rectangle, square, triangle
from trnqc.eri.classes import OPERATORS
from trnqc.errors import InputError, UnsupportedClass

SCREEN = 1e-14
"""Integrals whose Schwarz bound is below this are left zero, and primitive contributions below a hundredth of it."""


def int2e(
    mol: gto.Mole,
    shls_slice: Sequence[int] | None = None,
    aosym: str = "s1",
    omega: float | None = None,
    *,
    out: np.ndarray | None = None,
    threads: int | None = None,
) -> np.ndarray:
    """(ij|kl), as ``mol.intor("int2e", shls_slice=..., aosym=...)``.

    shls_slice: (i0, i1, j0, j1, k0, k1, l0, l1), or its first four. aosym: "s1" [i, j, k, l], "s2ij" [i >= j, k, l],
    "s2kl" [i, j, k >= l], "s4" [i >= j, k >= l], "s8" the same with ij >= kl, one index. omega: bohr^-1, as mol.omega:
    above 0 erf(omega r)/r, below 0 erfc(|omega| r)/r, 0 is 1/r; None takes mol's own. out: a buffer of the right size.
    Raises InputError for what has no layout, UnsupportedClass for shells beyond the kernels' limit.
    """
    if aosym not in ("s1", "s2ij", "s2kl", "s4", "s8"):
        raise InputError(f"aosym of int2e is s1, s2ij, s2kl, s4 or s8, found {aosym!r}")
    ranges = _ranges(shls_slice, mol.nbas, 4)
    (i, j), (k, l) = ranges[:2], ranges[2:]
    packed = aosym in ("s2ij", "s4", "s8"), aosym in ("s2kl", "s4", "s8")
    for word, (one, two), wanted in (("ij", (i, j), packed[0]), ("kl", (k, l), packed[1])):
        if wanted and one != two:
            raise InputError(f"aosym={aosym!r} packs {word}, whose shells are to be the same; found {one} and {two}")
    same = (i, j) == (k, l) and packed[0] == packed[1]
    bra = _orbital_side(mol, i, j, packed[0])
    ket = bra if same else _orbital_side(mol, k, l, packed[1])
    if aosym == "s8":
        if not same:
            raise InputError("aosym='s8' packs ij with kl, whose shells are to be the same")
        size = bra.size * (bra.size + 1) // 2
        flat = _buffer(out, size)
        fill(flat, bra, ket, [Image(0, 0, 1, 1)], _operator(mol, omega), SCREEN, threads, same=True, triangular=True)
        return flat
    images = [Image(v, w, ket.size, 1) for v in range(bra.variants) for w in range(ket.variants)]
    if same:
        images += [Image(v, w, 1, ket.size) for v in range(bra.variants) for w in range(ket.variants)]
    flat = _buffer(out, bra.size * ket.size)
    fill(flat, bra, ket, images, _operator(mol, omega), SCREEN, threads, same=same)
    return flat.reshape(*bra.shape, *ket.shape)


def int3c2e(
    mol: gto.Mole,
    auxmol: gto.Mole,
    aosym: str = "s1",
    shls_slice: Sequence[int] | None = None,
    out: np.ndarray | None = None,
    *,
    omega: float | None = None,
    threads: int | None = None,
) -> np.ndarray:
    """(ij|P), as ``pyscf.df.incore.aux_e2(mol, auxmol, aosym=..., shls_slice=...)``.

    Returns [i, j, P] ("s1") or [i >= j, P] ("s2ij") with P slowest in memory, i or the pair fastest. shls_slice: (i0,
    i1, j0, j1, P0, P1), the last two in shells of auxmol; with "s2ij" j runs from the first shell, as in PySCF. omega
    as in `int2e`; None takes that of mol. out: a buffer of the right size. Both molecules Cartesian or both spherical.
    Raises InputError, and UnsupportedClass for shells beyond the kernels' limit.
    """
    if aosym not in ("s1", "s2ij"):
        raise InputError(f"aosym of int3c2e is s1 or s2ij, found {aosym!r}")
    _check_kinds(mol, auxmol)
    i, j, k = _ranges(shls_slice, mol.nbas, 3, last=auxmol.nbas)
    if aosym == "s2ij":
        if j[0] != 0 or j[1] < i[1]:
            raise InputError(f"aosym='s2ij' needs the shells j from 0 to those of i, found i {i} and j {j}")
        bra = triangle(mol, i)
    else:
        bra = square(mol, i) if i == j else rectangle(mol, i, j, fortran=True)
    aux = fitting_side(part(auxmol, k))
    flat = _buffer(out, bra.size * aux.size)
    images = [Image(v, 0, 1, bra.size) for v in range(bra.variants)]
    fill(flat, bra, aux, images, _operator(mol, omega), SCREEN, threads, fitted=True)
    return flat.reshape(aux.size, *bra.shape[::-1]).T


def int2c2e(auxmol: gto.Mole, *, omega: float | None = None, threads: int | None = None) -> np.ndarray:
    """(P|Q), as ``auxmol.intor("int2c2e")``: a symmetric matrix. omega as in `int2e`."""
    aux = fitting_side(auxmol)
    flat = _buffer(None, aux.size**2)
    fill(flat, aux, aux, [Image(0, 0, aux.size, 1), Image(0, 0, 1, aux.size)], _operator(auxmol, omega), 0.0, threads,
         fitted=True, same=True)  # fmt: skip
    return flat.reshape(aux.size, aux.size)


class ThreeCentre:
    """(ij|P) for one range of fitting shells after the other; threads may share it.

    Raises UnsupportedClass, CompilerError when made, not later.
    """

    def __init__(self, mol: gto.Mole, auxmol: gto.Mole) -> None:
        _check_kinds(mol, auxmol)
        self._auxmol, self._operator, self._pairs = auxmol, _operator(mol, None), triangle(mol)
        prepare(self._pairs, fitting_side(auxmol), self._operator, fitted=True)

    def __call__(self, shells: tuple[int, int]) -> np.ndarray:
        """f64 [P, i >= j] of the shells in a range, computed in the calling thread."""
        aux = fitting_side(part(self._auxmol, shells))
        flat = np.zeros(aux.size * self._pairs.size)
        fill(flat, self._pairs, aux, [Image(0, 0, 1, self._pairs.size)], self._operator, SCREEN, 1, fitted=True)
        return flat.reshape(aux.size, self._pairs.size)


def _check_kinds(mol: gto.Mole, auxmol: gto.Mole) -> None:
    if mol.cart != auxmol.cart:
        raise UnsupportedClass(
            f"three-centre integrals need one kind of functions, found cart={mol.cart} for orbitals and "
            f"cart={auxmol.cart} for fitting functions; build both alike"
        )


def _orbital_side(mol: gto.Mole, i: tuple[int, int], j: tuple[int, int], packed: bool) -> Side:
    if packed:
        return triangle(part(mol, i))
    return square(mol, i) if i == j else rectangle(mol, i, j)


def _ranges(given: Sequence[int] | None, nbas: int, count: int, last: int | None = None) -> list[tuple[int, int]]:
    """Ranges of shells from a flat slice, whole ones where nothing is given; `last` counts the shells of the last."""
    limits = [nbas] * count
    if last is not None:
        limits[-1] = last
    try:
        words = [] if given is None else [index(n) for n in given]
    except TypeError:
        raise InputError(f"shls_slice holds whole numbers, found {given!r}") from None
    if len(words) % 2 or len(words) > 2 * count:
        raise InputError(f"shls_slice holds pairs of shell numbers for up to {count} indices, found {tuple(words)}")
    found = list(zip(words[::2], words[1::2]))
    found += [(0, limit) for limit in limits[len(found) :]]
    for (begin, end), limit in zip(found, limits):
        if not 0 <= begin <= end <= limit:
            raise InputError(f"shells {begin} to {end} are not a range of the {limit} there are")
    return found


def _operator(mol: gto.Mole, omega: float | None) -> Operator:
    """From PySCF's sign convention."""
    value = float(mol.omega or 0.0) if omega is None else omega
    if not isinstance(value, int | float | np.number) or not np.isfinite(value):
        raise InputError(f"omega is a finite number of bohr^-1, found {omega}")
    coulomb, long_range, short_range = OPERATORS
    return Operator(coulomb if value == 0 else long_range if value > 0 else short_range, abs(float(value)))


def _buffer(out: Any, size: int) -> np.ndarray:
    """A flat array of zeros, in the caller's memory if there is some."""
    if out is None:
        return np.zeros(size)
    usable = isinstance(out, np.ndarray) and not isinstance(out, np.ma.MaskedArray)
    if not usable or out.dtype != np.float64 or out.size < size:
        found = f"{out.dtype} of {out.size}" if usable else type(out).__name__
        raise InputError(f"out is to be a float64 array of at least {size} elements, found {found}")
    if not (out.flags.c_contiguous or out.flags.f_contiguous) or not out.flags.writeable:
        raise InputError("out is to be contiguous and writable")
    flat: np.ndarray = np.asarray(out).reshape(-1, order="A")[:size]
    flat[:] = 0.0
    return flat
