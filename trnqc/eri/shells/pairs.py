"""Pairs of shells of a molecule as the records that kernels read.

Mole -> shells of one kind (same l, primitives, contractions) -> products of two kinds -> classes of pairs

NumPy computes all pairs of two kinds at once. `trnqc.eri.classes` describes a record.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from math import comb, pi
from typing import Any

import numpy as np
from pyscf import gto
from scipy.special import betainc, gamma

from trnqc.eri.classes import BOUND, COEFFICIENT, CONTRACTION, ZETA, P, QuartetClass
from trnqc.errors import MoleculeError

# Products of two primitives with a smaller BOUND, in Hartree^1/2, are left out. Each changes an integral by at most
# this times the bound of the other pair, which is of order one, so that a thousand stay below 1e-14 Hartree.
NEGLIGIBLE = 1e-18
# The fields of ShellPairs with one entry for each pair, beside its records.
_ARRAYS = ("first", "second", "ao_first", "ao_second", "count", "centre", "bound")


@dataclass(frozen=True, eq=False)
class ShellPairs:
    """Pairs (a, b) of shells of one class, as NumPy arrays.

    Parameters
    ----------
    la, lb, nca, ncb
        Angular momenta, la >= lb, and numbers of contractions.
    cartesian
        Whether functions are Cartesian or real spherical ones.
    first, second [npair]
        The numbers of the shells a and b; -1 for the s function of exponent zero that completes a fitting shell.
    ao_first, ao_second [npair]
        The first function of a and b. Contraction c of a shell with n functions begins n c further on.
    records [npair, K, W]
        Records of primitive pairs, padded to the longest: padding has ZETA 1, and COEFFICIENT, BOUND and contraction
        coefficients 0.
    count [npair]
        The primitive pairs that are not padding, at least one.
    centre [npair, 6]
        A, then A - B, in Bohr.
    bound [npair]
        sqrt(max |(ab|ab)|) or an upper bound of it, in Hartree^1/2.
    swapped
        Whether a is a shell of the second molecule; only `pairs_between` returns such pairs.
    """

    la: int
    lb: int
    nca: int
    ncb: int
    cartesian: bool
    first: np.ndarray
    second: np.ndarray
    ao_first: np.ndarray
    ao_second: np.ndarray
    records: np.ndarray
    count: np.ndarray
    centre: np.ndarray
    bound: np.ndarray
    swapped: bool = False

    def __len__(self) -> int:
        return len(self.first)

    def __repr__(self) -> str:
        kind = f"({self.la}{self.lb}) x {self.nca}x{self.ncb} {'Cartesian' if self.cartesian else 'spherical'}"
        return f"ShellPairs({len(self)} {kind}, up to {self.records.shape[1]} primitives)"

    @property
    def general(self) -> bool:
        """Whether several contractions share the primitives."""
        return self.contractions > 1

    @property
    def contractions(self) -> int:
        """Pairs of contractions."""
        return self.nca * self.ncb

    @cached_property
    def extents(self) -> tuple[int, int]:
        """Numbers of functions of one contraction of a and of b."""
        a, b = (functions(l, self.cartesian) for l in (self.la, self.lb))
        return a, b

    def take(self, which: np.ndarray) -> ShellPairs:
        """Return the pairs at these positions, in this order, with no more padding than they need."""
        longest = int(self.count[which].max(initial=1))
        records = np.ascontiguousarray(self.records[which, :longest])
        return replace(self, records=records, **{name: getattr(self, name)[which] for name in _ARRAYS})


def functions(l: int, cartesian: bool) -> int:
    """Return the number of functions of a shell with one contraction."""
    return (l + 1) * (l + 2) // 2 if cartesian else 2 * l + 1


def pair_orbitals(pairs: ShellPairs) -> tuple[np.ndarray, np.ndarray]:
    """Return the functions of a and of b of each product in every pair, both i64 [pairs, contractions, na nb]."""
    na, nb = pairs.extents
    a = np.arange(pairs.nca)[:, None, None, None] * na + np.arange(na)[:, None]
    b = np.arange(pairs.ncb)[:, None, None] * nb + np.arange(nb)
    shape = (len(pairs), pairs.nca, pairs.ncb, na, nb)
    flat = (len(pairs), pairs.contractions, na * nb)
    first, second = (ao[:, None, None, None, None] for ao in (pairs.ao_first, pairs.ao_second))
    return np.broadcast_to(first + a, shape).reshape(flat), np.broadcast_to(second + b, shape).reshape(flat)


def general_records(records: np.ndarray) -> np.ndarray:
    """Return records [n, K, W, ...] as a general kernel reads them: those of a segmented class get a coefficient 1."""
    if records.shape[2] > CONTRACTION:
        return np.ascontiguousarray(records)
    return np.concatenate([records, np.ones((*records.shape[:2], 1, *records.shape[3:]))], axis=2)


def quartet_class(bra: ShellPairs, ket: ShellPairs, operator: str) -> QuartetClass:
    """Return the class of the quartets of two classes of pairs. s and p functions are of one kind, called spherical."""
    l = (bra.la, bra.lb, ket.la, ket.lb)
    return QuartetClass(*l, bra.cartesian and max(l) > 1, bra.general or ket.general, operator)


def pairs_of(mol: gto.Mole, cutoff: float = NEGLIGIBLE) -> tuple[ShellPairs, ...]:
    """Return the classes of all unordered pairs of shells of a molecule.

    Parameters
    ----------
    mol
        The molecule.
    cutoff
        Products of two primitives with a smaller BOUND, in Hartree^1/2, are left out.

    Returns
    -------
    tuple of ShellPairs
        One entry for each class. Every pair is in one of them, once; in a pair of shells of one kind the tighter shell
        stands first.

    Raises
    ------
    MoleculeError
        If an exponent is not a positive finite number.
    """
    kinds = sorted(_kinds(mol), key=lambda k: (-k.l, -k.contractions, -k.primitives))
    parts = []
    for n, a in enumerate(kinds):
        for b in kinds[n:]:
            i, j = np.tril_indices(len(a.ids)) if b is a else _all_pairs(len(a.ids), len(b.ids))
            if b is a:
                i, j = _tighter_first(a, i, j)
            parts.append(_product(a.take(i), b.take(j), cutoff, mol.cart, swapped=False))
    return tuple(_joined(parts))


def _tighter_first(shells: _Shells, i: np.ndarray, j: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Order each pair so that the shell whose most diffuse primitive is tighter comes first.

    P is then near A, about which the vertical recurrence raises. In the other order the horizontal recurrence cancels
    large powers of |A - B|, which costs four digits for g functions.
    """
    smallest = shells.exponents.min(axis=1)
    turned = smallest[i] < smallest[j]
    return np.where(turned, j, i), np.where(turned, i, j)


def pairs_between(mol_a: gto.Mole, mol_b: gto.Mole, cutoff: float = NEGLIGIBLE) -> tuple[ShellPairs, ...]:
    """Return the classes of all pairs of a shell of one molecule with a shell of the other.

    Both molecules are Cartesian or both spherical, else a MoleculeError is raised. In a class that is `swapped`,
    `first` numbers shells of mol_b, since la >= lb. cutoff: as in `pairs_of`.
    """
    if mol_a.cart != mol_b.cart:
        raise MoleculeError(f"pairs need one kind of functions, found cart={mol_a.cart} and cart={mol_b.cart}")
    parts = []
    for a, b in product(_kinds(mol_a), _kinds(mol_b)):
        i, j = _all_pairs(len(a.ids), len(b.ids))
        swapped = a.l < b.l
        one, two = (b.take(j), a.take(i)) if swapped else (a.take(i), b.take(j))
        parts.append(_product(one, two, cutoff, mol_a.cart, swapped))
    return tuple(_joined(parts))


def fitting_shells(auxmol: gto.Mole) -> tuple[ShellPairs, ...]:
    """Return every shell as a pair with an s function of exponent zero and coefficient one on the same centre."""
    parts = [_product(a, _unit_functions(a), 0.0, auxmol.cart, swapped=False) for a in _kinds(auxmol)]
    return tuple(_joined(parts))


@dataclass(frozen=True)
class _Shells:
    """n shells with the same l, primitives and contractions.

    ids [n]: their numbers; ao [n]: their first functions; centres [n, 3]; exponents [n, primitives]; coefficients [n,
    contractions, primitives].
    """

    l: int
    ids: np.ndarray
    ao: np.ndarray
    centres: np.ndarray
    exponents: np.ndarray
    coefficients: np.ndarray

    @property
    def primitives(self) -> int:
        return self.exponents.shape[1]

    @property
    def contractions(self) -> int:
        return self.coefficients.shape[1]

    def take(self, which: np.ndarray) -> _Shells:
        arrays = (self.ids, self.ao, self.centres, self.exponents, self.coefficients)
        return _Shells(self.l, *(array[which] for array in arrays))


def _kinds(mol: gto.Mole) -> list[_Shells]:
    """Sort shells by (l, primitives, contractions). Coefficients include the angular factors of s and p functions."""
    bas, env, ao = mol._bas, mol._env, mol.ao_loc_nr()
    points = mol._atm[bas[:, gto.ATOM_OF], gto.PTR_COORD][:, None] + np.arange(3)
    kinds = []
    for l, n, c in np.unique(bas[:, [gto.ANG_OF, gto.NPRIM_OF, gto.NCTR_OF]], axis=0).tolist():
        ids = np.flatnonzero((bas[:, [gto.ANG_OF, gto.NPRIM_OF, gto.NCTR_OF]] == (l, n, c)).all(axis=1))
        exponents = env[bas[ids, gto.PTR_EXP][:, None] + np.arange(n)]
        if not (exponents > 0).all() or not np.isfinite(exponents).all():
            shell = ids[np.flatnonzero(~((exponents > 0) & np.isfinite(exponents)).all(axis=1))[0]]
            raise MoleculeError(
                f"exponents of Gaussians are positive numbers; shell {shell} of {mol.atom_symbol(bas[shell, 0])} has "
                f"{mol.bas_exp(shell)}: correct the basis set"
            )
        coefficients = env[bas[ids, gto.PTR_COEFF][:, None] + np.arange(n * c)].reshape(-1, c, n)
        coefficients = coefficients * (np.sqrt((2 * l + 1) / (4 * pi)) if l < 2 else 1.0)
        kinds.append(_Shells(l, ids, ao[ids].astype(np.int64), env[points[ids]], exponents, coefficients))
    return kinds


def _unit_functions(shells: _Shells) -> _Shells:
    """Return an s function of exponent zero and coefficient one for every shell, with number -1."""
    n = len(shells.ids)
    exponents, coefficients = np.zeros((n, 1)), np.ones((n, 1, 1))
    return _Shells(0, np.full(n, -1), np.zeros(n, np.int64), shells.centres, exponents, coefficients)


def _all_pairs(n: int, m: int) -> tuple[np.ndarray, np.ndarray]:
    return np.repeat(np.arange(n), m), np.tile(np.arange(m), n)


def _product(a: _Shells, b: _Shells, cutoff: float, cartesian: bool, swapped: bool) -> ShellPairs:
    """Return the pairs of shell n of a with shell n of b, for all n."""
    n, combined = len(a.ids), a.contractions * b.contractions
    alpha, beta = a.exponents[:, :, None], b.exponents[:, None, :]
    zeta = alpha + beta
    distance = a.centres - b.centres
    # P is computed relative to A, so that nothing cancels where the centres coincide.
    pa = -(beta / zeta)[..., None] * distance[:, None, None, :]
    overlap = np.exp(-alpha * beta / zeta * (distance**2).sum(axis=1)[:, None, None])
    pairs = np.einsum("ncp,ndq->npqcd", a.coefficients, b.coefficients).reshape(n, *zeta.shape[1:], combined)
    records = np.empty((*zeta.shape, CONTRACTION + (combined if combined > 1 else 0)))
    records[..., ZETA] = zeta
    records[..., P : P + 3] = a.centres[:, None, None, :] + pa
    records[..., COEFFICIENT] = np.sqrt(2) * pi**1.25 * overlap / zeta
    if combined > 1:
        records[..., CONTRACTION:] = pairs
    else:
        records[..., COEFFICIENT] *= pairs[..., 0]
    lengths = np.linalg.norm(pa, axis=-1), (alpha / zeta) * np.linalg.norm(distance, axis=1)[:, None, None]
    weight = overlap * np.abs(pairs).max(axis=-1) * _angular(a.l, cartesian) * _angular(b.l, cartesian)
    records[..., BOUND] = weight * _self_repulsion(a.l, b.l, zeta, *lengths)
    records, count = _by_bound(records.reshape(n, -1, records.shape[-1]), cutoff)
    return ShellPairs(
        *(a.l, b.l, a.contractions, b.contractions, cartesian, a.ids, b.ids, a.ao, b.ao, records, count),
        centre=np.concatenate([a.centres, distance], axis=1),
        bound=records[..., BOUND].sum(axis=1),
        swapped=swapped,
    )


def _angular(l: int, cartesian: bool) -> float:
    """Return an upper bound of a shell's functions over r^l, without the factors of s and p in the coefficients."""
    return 1.0 if cartesian or l < 2 else np.sqrt((2 * l + 1) / (4 * pi))


def _self_repulsion(la: int, lb: int, zeta: np.ndarray, pa: np.ndarray, pb: np.ndarray) -> np.ndarray:
    """Return an upper bound of sqrt((ab|ab)) for r_A^la r_B^lb exp(-zeta r_P^2) and operators up to 1/r.

    From r_A <= r_P + |PA| the density is at most a sum of r^k exp(-zeta r^2) with positive factors, and the square root
    of a self-repulsion is a norm, so that the triangle inequality holds. The self-repulsion of r^k exp(-r^2) is 8 pi^2
    Gamma(p) Gamma(q) I_1/2(p, q) with p = (k + 3)/2, q = k/2 + 1 and the regularised incomplete beta function I.
    """
    total = np.zeros_like(zeta)
    for i, j in product(range(la + 1), range(lb + 1)):
        k = la + lb - i - j
        p, q = (k + 3) / 2, k / 2 + 1
        one = np.sqrt(8 * pi**2 * gamma(p) * gamma(q) * betainc(p, q, 0.5))
        total += comb(la, i) * comb(lb, j) * one * pa**i * pb**j * zeta ** (-(2 * k + 5) / 4)
    return total


def _by_bound(records: np.ndarray, cutoff: float) -> tuple[np.ndarray, np.ndarray]:
    """Sort the primitive pairs of each record by falling BOUND, make those below the cutoff padding, count the rest."""
    order = np.argsort(-records[..., BOUND], axis=1, kind="stable")
    records = np.take_along_axis(records, order[..., None], axis=1)
    count = np.maximum((records[..., BOUND] >= cutoff).sum(axis=1), 1)
    records = records[:, : count.max()]
    padding = np.arange(records.shape[1]) >= count[:, None]
    records[padding] = 0.0
    records[padding, ZETA] = 1.0
    return records, count


def _joined(parts: list[ShellPairs]) -> Iterator[ShellPairs]:
    """Join the parts of each class, and yield them in the order of their classes."""
    by_class: dict[Any, list[ShellPairs]] = {}
    for part in parts:
        by_class.setdefault((part.la, part.lb, part.nca, part.ncb, part.swapped), []).append(part)
    for _, group in sorted(by_class.items()):
        longest = max(part.records.shape[1] for part in group)
        arrays: dict[str, Any] = {n: np.concatenate([getattr(part, n) for part in group]) for n in _ARRAYS}
        width = group[0].records.shape[2]
        records = np.zeros((len(arrays["first"]), longest, width))
        records[..., ZETA] = 1.0
        start = 0
        for part in group:
            records[start : start + len(part), : part.records.shape[1]] = part.records
            start += len(part)
        yield replace(group[0], records=records, **arrays)
