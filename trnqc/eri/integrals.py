"""Two-electron integrals as arrays, in PySCF's layouts and normalisation: (ij|kl), (ij|P) and (P|Q).

molecule -> bra and ket sides: classes of pairs with their places in the array (arrays/sides.py) -> tiles of the array,
filled by threads (arrays/filling.py) -> kernels and their integrals' elements (arrays/writer.py)
"""

from __future__ import annotations

from collections.abc import Sequence
from math import prod
from operator import index
from typing import Any

import numpy as np
from pyscf import gto
from pyscf.gto.moleintor import getints, make_cintopt

from trnqc.eri.arrays.filling import Image, fill, prepare
from trnqc.eri.arrays.sides import ArraySide, fitting_side, part, rectangle, square, triangle
from trnqc.eri.operators import Operator
from trnqc.errors import InputError, UnsupportedClass
from trnqc.host.arrays import zeros

# Integrals in Hartree whose Schwarz bound is below this are left zero.
SCREEN = 1e-14


def int2e(
    mol: gto.Mole,
    shls_slice: Sequence[int] | None = None,
    aosym: str = "s1",
    omega: float | None = None,
    *,
    out: np.ndarray | None = None,
    threads: int | None = None,
) -> np.ndarray:
    """Compute (ij|kl), as ``mol.intor("int2e", shls_slice=..., aosym=...)`` does.

    Parameters
    ----------
    mol : pyscf.gto.Mole
        The molecule.
    shls_slice : sequence of int, optional
        Ranges of shells (i0, i1, j0, j1, k0, k1, l0, l1), or only the first of them.
    aosym : str
        The layout: "s1" [i, j, k, l], "s2ij" [i >= j, k, l], "s2kl" [i, j, k >= l], "s4" [i >= j, k >= l], or "s8" with
        one index of ij >= kl. A pair i >= j has the one index i (i + 1) / 2 + j.
    omega : float, optional
        In 1/Bohr: positive for erf(omega r)/r, negative for erfc(-omega r)/r, 0 for 1/r; None for the molecule's own.
    out : ndarray, optional
        Memory for the result, float64 and of the right size.
    threads : int, optional
        By default `pyscf.lib.num_threads()`.

    Returns
    -------
    ndarray
        Integrals in Hartree.

    Raises
    ------
    InputError
        If there is no such layout.
    UnsupportedClass, CompilerError
        If there are no kernels for these shells.

    Examples
    --------
    >>> from pyscf import gto
    >>> float(int2e(gto.M(atom="He", basis="sto-3g"))[0, 0, 0, 0].round(6))
    1.055713
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
        fill(flat, bra, ket, [Image(0, 0, 1, 1)], Operator.of(mol, omega), SCREEN, threads, same=True, triangular=True)
        return flat
    images = [Image(v, w, ket.size, 1) for v in range(bra.variants) for w in range(ket.variants)]
    if same:
        images += [Image(v, w, 1, ket.size) for v in range(bra.variants) for w in range(ket.variants)]
    flat = _buffer(out, bra.size * ket.size)
    fill(flat, bra, ket, images, Operator.of(mol, omega), SCREEN, threads, same=same)
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
    """Compute (ij|P), as ``pyscf.df.incore.aux_e2(mol, auxmol, aosym=..., shls_slice=...)`` does.

    Parameters
    ----------
    mol, auxmol : pyscf.gto.Mole
        The molecule and its fitting functions, both Cartesian or both spherical.
    aosym : str
        "s1" for [i, j, P] or "s2ij" for [i >= j, P].
    shls_slice : sequence of int, optional
        Ranges of shells (i0, i1, j0, j1, P0, P1), the last in shells of auxmol. With "s2ij" j0 is 0, as in PySCF.
    out, omega, threads
        As in `int2e`.

    Returns
    -------
    ndarray
        Integrals in Hartree. P is the slowest index in memory, i or the pair the fastest.

    Raises
    ------
    InputError
        If there is no such layout.
    UnsupportedClass, CompilerError
        If there are no kernels for these shells.
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
    fill(flat, bra, aux, images, Operator.of(mol, omega), SCREEN, threads, fitted=True)
    return flat.reshape(aux.size, *bra.shape[::-1]).T


def int2c2e(auxmol: gto.Mole, *, omega: float | None = None, threads: int | None = None) -> np.ndarray:
    """Compute the symmetric matrix (P|Q), as ``auxmol.intor("int2c2e")`` does. Arguments as in `int2e`."""
    aux = fitting_side(auxmol)
    flat = _buffer(None, aux.size**2)
    fill(
        flat,
        aux,
        aux,
        [Image(0, 0, aux.size, 1), Image(0, 0, 1, aux.size)],
        Operator.of(auxmol, omega),
        0.0,
        threads,
        fitted=True,
        same=True,
    )
    return flat.reshape(aux.size, aux.size)


class ThreeCentre:
    """(ij|P) of a molecule, for ranges of fitting shells or of pairs. Several threads may call one object.

    Its constructor, and no later call, raises UnsupportedClass or CompilerError if there are no kernels for these
    shells.
    """

    def __init__(self, mol: gto.Mole, auxmol: gto.Mole) -> None:
        _check_kinds(mol, auxmol)
        self._auxmol, self._operator, self._pairs = auxmol, Operator.of(mol), triangle(mol)
        self._fitting = fitting_side(auxmol)
        prepare(self._pairs, self._fitting, self._operator, fitted=True)

    def __call__(self, shells: tuple[int, int]) -> np.ndarray:
        """Return [P, i >= j] of a range of fitting shells, computed in the calling thread."""
        aux = fitting_side(part(self._auxmol, shells))
        return self._filled(self._pairs, aux, np.zeros((aux.size, self._pairs.size)))

    def of_pairs(self, first: int, last: int, memory: np.ndarray) -> np.ndarray:
        """Return [P, first <= ij < last] for all pairs of some shells i, computed in the calling thread.

        memory: a flat array, where the result is put.
        """
        shape = self._fitting.size, last - first
        out = memory[: prod(shape)].reshape(shape)
        out.fill(0.0)
        return self._filled(self._pairs.within(first, last), self._fitting, out)

    def _filled(self, pairs: ArraySide, aux: ArraySide, out: np.ndarray) -> np.ndarray:
        fill(out.reshape(-1), pairs, aux, [Image(0, 0, 1, pairs.size)], self._operator, SCREEN, 1, fitted=True)
        return out


class PySCFThreeCentre:
    """(ij|P) of ranges of fitting shells by PySCF, or their derivatives. Several threads may call one object.

    `name` is PySCF's name of the integrals, without the suffix for the kind of functions.
    """

    def __init__(self, mol: gto.Mole, auxmol: gto.Mole, name: str = "int3c2e") -> None:
        self._name, self._shells = mol._add_suffix(name), mol.nbas
        self._arrays = gto.conc_env(mol._atm, mol._bas, mol._env, auxmol._atm, auxmol._bas, auxmol._env)
        self._optimizer = make_cintopt(*self._arrays, self._name)

    def __call__(self, shells: tuple[int, int]) -> np.ndarray:
        """Return [P, i >= j] of a range of fitting shells."""
        return np.ascontiguousarray(self.as_pyscf(shells, aosym="s2ij").T)

    def as_pyscf(self, shells: tuple[int, int], **layout: Any) -> np.ndarray:
        """Return what `pyscf.gto.moleintor.getints` does; `layout` are its comp and aosym."""
        n, (first, last) = self._shells, shells
        ends = 0, n, 0, n, n + first, n + last
        return np.asarray(getints(self._name, *self._arrays, ends, cintopt=self._optimizer, **layout))


def _check_kinds(mol: gto.Mole, auxmol: gto.Mole) -> None:
    if mol.cart != auxmol.cart:
        raise UnsupportedClass(
            f"three-centre integrals need one kind of functions, found cart={mol.cart} for orbitals and "
            f"cart={auxmol.cart} for fitting functions; build both alike"
        )


def _orbital_side(mol: gto.Mole, i: tuple[int, int], j: tuple[int, int], packed: bool) -> ArraySide:
    if packed:
        return triangle(part(mol, i))
    return square(mol, i) if i == j else rectangle(mol, i, j)


def _ranges(shls_slice: Sequence[int] | None, nbas: int, count: int, last: int | None = None) -> list[tuple[int, int]]:
    """Return `count` ranges of shells from a flat slice; missing ones are whole. last: shells of the last index."""
    limits = [nbas] * count
    if last is not None:
        limits[-1] = last
    try:
        words = [] if shls_slice is None else [index(n) for n in shls_slice]
    except TypeError:
        raise InputError(f"shls_slice holds whole numbers, found {shls_slice!r}") from None
    if len(words) % 2 or len(words) > 2 * count:
        raise InputError(f"shls_slice holds pairs of shell numbers for up to {count} indices, found {tuple(words)}")
    ranges = list(zip(words[::2], words[1::2]))
    ranges += [(0, limit) for limit in limits[len(ranges) :]]
    for (begin, end), limit in zip(ranges, limits):
        if not 0 <= begin <= end <= limit:
            raise InputError(f"shells {begin} to {end} are not a range of the {limit} there are")
    return ranges


def _buffer(out: Any, size: int) -> np.ndarray:
    """Return a flat array of zeros, in `out` if that is not None."""
    if out is None:
        return zeros(size)
    usable = isinstance(out, np.ndarray) and not isinstance(out, np.ma.MaskedArray)
    if not usable or out.dtype != np.float64 or out.size < size:
        kind = f"{out.dtype} of {out.size}" if usable else type(out).__name__
        raise InputError(f"out is to be a float64 array of at least {size} elements, found {kind}")
    if not (out.flags.c_contiguous or out.flags.f_contiguous) or not out.flags.writeable:
        raise InputError("out is to be contiguous and writable")
    flat: np.ndarray = np.asarray(out).reshape(-1, order="A")[:size]
    flat[:] = 0.0
    return flat
