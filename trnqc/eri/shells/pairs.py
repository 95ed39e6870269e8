"""Pairs of shells of a molecule as the records that kernels read.

Mole -> shells of one kind (same l, primitives, contractions) -> products of two kinds -> classes of pairs

Everything is made with NumPy, a kind at a time. classes.py holds the layout of a record.
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

from trnqc.eri.classes import BOUND, COEFFICIENT, CONTRACTION, ZETA, P
from trnqc.errors import MoleculeError

# A product of primitives whose BOUND is below this changes no integral by more than it times the other pair's bound,
# which is of order one: a thousand of them stay below 1e-14.
NEGLIGIBLE = 1e-18
_ARRAYS = ("first", "second", "ao_first", "ao_second", "count", "centre", "bound")


@dataclass(frozen=True, eq=False)
class ShellPairs:
    """Pairs (a, b) of one class: la >= lb, nca and ncb contractions, rows padded to the longest (classes.py).

    first, second [npair]: shells a and b, -1 for the dummy of a fitting shell; ao_first, ao_second [npair]: their first
    functions, contraction c of a shell of n functions standing n c further. records [npair, K, W]; padded rows have
    ZETA 1 and COEFFICIENT, BOUND and contractions 0. count [npair]: rows that are not padding, at least one. centre
    [npair, 6]: A, then A - B, in Bohr. bound [npair]: sqrt(max |(ab|ab)|) or an upper bound of it.
    swapped: a is a shell of the second molecule (`pairs_between` alone).
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
        return self.nca * self.ncb

    @cached_property
    def extents(self) -> tuple[int, int]:
        """Functions of one contraction of a and of b."""
        a, b = (functions(l, self.cartesian) for l in (self.la, self.lb))
        return a, b

    def take(self, rows: np.ndarray) -> ShellPairs:
        """The pairs of the given positions, in that order, padded no further than they need."""
        longest = int(self.count[rows].max(initial=1))
        records = np.ascontiguousarray(self.records[rows, :longest])
        return replace(self, records=records, **{name: getattr(self, name)[rows] for name in _ARRAYS})


def functions(l: int, cartesian: bool) -> int:
    """Functions of a shell with one contraction."""
    return (l + 1) * (l + 2) // 2 if cartesian else 2 * l + 1


def pairs_of(mol: gto.Mole, cutoff: float = NEGLIGIBLE) -> tuple[ShellPairs, ...]:
    """Every unordered pair of shells of the molecule once, each in one class; of equal shells the tighter stands first.

    cutoff: products of primitives with a smaller BOUND are left out. Raises MoleculeError for an impossible exponent.
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
    """Pairs with the larger smallest exponent first: P is then near A, about which the recurrence raises.

    The other way the powers of |A - B| that the horizontal recurrence takes away again are large: four digits at g.
    """
    smallest = shells.exponents.min(axis=1)
    turned = smallest[i] < smallest[j]
    return np.where(turned, j, i), np.where(turned, i, j)


def pairs_between(mol_a: gto.Mole, mol_b: gto.Mole, cutoff: float = NEGLIGIBLE) -> tuple[ShellPairs, ...]:
    """Every shell of one molecule with every shell of the other, both Cartesian or both spherical.

    In a class that is `swapped`, `first` counts shells of mol_b, since la >= lb.
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
    """Every shell as a pair with an s function of exponent zero and coefficient one on its centre."""
    parts = [_product(a, _dummy(a), 0.0, auxmol.cart, swapped=False) for a in _kinds(auxmol)]
    return tuple(_joined(parts))


@dataclass(frozen=True)
class _Shells:
    """n shells of one kind: exponents [n, p], coefficients [n, c, p], centres [n, 3], first functions ao [n]."""

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

    def take(self, rows: np.ndarray) -> _Shells:
        arrays = (self.ids, self.ao, self.centres, self.exponents, self.coefficients)
        return _Shells(self.l, *(array[rows] for array in arrays))


def _kinds(mol: gto.Mole) -> list[_Shells]:
    """Shells by (l, primitives, contractions), with the factors of s and p functions (classes.py)."""
    bas, env, ao = mol._bas, mol._env, mol.ao_loc_nr()
    points = mol._atm[bas[:, gto.ATOM_OF], gto.PTR_COORD][:, None] + np.arange(3)
    kinds = []
    for l, n, c in np.unique(bas[:, [gto.ANG_OF, gto.NPRIM_OF, gto.NCTR_OF]], axis=0).tolist():
        wanted = (bas[:, gto.ANG_OF] == l) & (bas[:, gto.NPRIM_OF] == n) & (bas[:, gto.NCTR_OF] == c)
        ids = np.flatnonzero(wanted)
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


def _dummy(shells: _Shells) -> _Shells:
    n = len(shells.ids)
    nothing, one = np.zeros((n, 1)), np.ones((n, 1, 1))
    return _Shells(0, np.full(n, -1), np.zeros(n, np.int64), shells.centres, nothing, one)


def _all_pairs(n: int, m: int) -> tuple[np.ndarray, np.ndarray]:
    return np.repeat(np.arange(n), m), np.tile(np.arange(m), n)


def _product(a: _Shells, b: _Shells, cutoff: float, cartesian: bool, swapped: bool) -> ShellPairs:
    """Shell n of a with shell n of b, for all n."""
    n, combined = len(a.ids), a.contractions * b.contractions
    alpha, beta = a.exponents[:, :, None], b.exponents[:, None, :]
    zeta = alpha + beta
    distance = a.centres - b.centres
    # P relative to A and B, so that nothing cancels where the centres coincide.
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
    rows, count = _sorted_rows(records.reshape(n, -1, records.shape[-1]), cutoff)
    return ShellPairs(
        *(a.l, b.l, a.contractions, b.contractions, cartesian, a.ids, b.ids, a.ao, b.ao, rows, count),
        centre=np.concatenate([a.centres, distance], axis=1),
        bound=rows[..., BOUND].sum(axis=1),
        swapped=swapped,
    )


def _angular(l: int, cartesian: bool) -> float:
    """What the largest function of a shell is at most, in units of r^l; the factors of s and p stand elsewhere."""
    return 1.0 if cartesian or l < 2 else np.sqrt((2 * l + 1) / (4 * pi))


def _self_repulsion(la: int, lb: int, zeta: np.ndarray, pa: np.ndarray, pb: np.ndarray) -> np.ndarray:
    """An upper bound of sqrt((ab|ab)) of r_A^la r_B^lb exp(-zeta r_P^2), the operator being at most 1/r.

    r_A <= r_P + |PA| gives a sum of r^k exp(-zeta r^2) with positive factors, and the root of a self-repulsion is a
    norm. That of r^k exp(-r^2) is 8 pi^2 Gamma(p) Gamma(q) I_1/2(p, q) with p = (k + 3)/2, q = k/2 + 1.
    """
    total = np.zeros_like(zeta)
    for i, j in product(range(la + 1), range(lb + 1)):
        k = la + lb - i - j
        p, q = (k + 3) / 2, k / 2 + 1
        one = np.sqrt(8 * pi**2 * gamma(p) * gamma(q) * betainc(p, q, 0.5))
        total += comb(la, i) * comb(lb, j) * one * pa**i * pb**j * zeta ** (-(2 * k + 5) / 4)
    return total


def _sorted_rows(records: np.ndarray, cutoff: float) -> tuple[np.ndarray, np.ndarray]:
    """Rows by BOUND, largest first, those below the cutoff made padding; and how many are left."""
    order = np.argsort(-records[..., BOUND], axis=1, kind="stable")
    rows = np.take_along_axis(records, order[..., None], axis=1)
    count = np.maximum((rows[..., BOUND] >= cutoff).sum(axis=1), 1)
    rows = rows[:, : count.max()]
    return _padded(rows, np.arange(rows.shape[1]) >= count[:, None]), count


def _padded(rows: np.ndarray, where: np.ndarray) -> np.ndarray:
    rows[where] = 0.0
    rows[where, ZETA] = 1.0
    return rows


def _joined(parts: list[ShellPairs]) -> Iterator[ShellPairs]:
    """Parts of one class as one, in order of class."""
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
