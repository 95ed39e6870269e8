"""Pairs of shells of a molecule as the records that kernels read.

Mole -> shells of one kind (records.py) -> products of two kinds -> classes of pairs
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import product
from typing import Any

import numpy as np
from pyscf import gto

from trnqc.eri.classes import BOUND, CONTRACTION, ZETA, QuartetClass
from trnqc.eri.shells.records import Shells, kinds_of, product_records, unit_functions
from trnqc.errors import MoleculeError

# Products of two primitives with a smaller BOUND, in Hartree^1/2, are left out. Each changes an integral by at most
# this times the bound of the other pair, which is of order one, so that a thousand stay below 1e-14 Hartree.
NEGLIGIBLE = 1e-18
# The fields of ShellPairs with one entry for each pair, beside its records.
_ARRAYS = ("first", "second", "ao_first", "ao_second", "count", "centre", "bound")


@dataclass(frozen=True, eq=False)
class ShellPairs:
    """Pairs (a, b) of shells of one class, la >= lb, with nca and ncb contractions, as NumPy arrays.

    `first` and `second` [npair] are the numbers of the shells; -1 for the s function of exponent zero that completes a
    fitting shell. `ao_first` and `ao_second` [npair] are their first functions: contraction c of a shell with n
    functions begins n c further on. `records` [npair, K, W] of primitive pairs are padded to the longest: padding has
    ZETA 1, and COEFFICIENT, BOUND and contraction coefficients 0. `count` [npair] are the primitive pairs that are not
    padding, at least one. `centre` [npair, 6] is A, then A - B, in Bohr. `bound` [npair] is sqrt(max |(ab|ab)|) or an
    upper bound of it, in Hartree^1/2. `swapped` states that a is a shell of the second molecule; only `pairs_between`
    returns such pairs.
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

    def take(self, which: np.ndarray | slice) -> ShellPairs:
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
    """Return records [n, K, W, ...] in the form that a general kernel reads: records of a segmented class get a
    coefficient 1.
    """
    if records.shape[2] > CONTRACTION:
        return np.ascontiguousarray(records)
    return np.concatenate([records, np.ones((*records.shape[:2], 1, *records.shape[3:]))], axis=2)


def quartet_class(bra: ShellPairs, ket: ShellPairs, operator: str) -> QuartetClass:
    """Return the class of the quartets of two classes of pairs. s and p functions are of one kind, called spherical."""
    l = (bra.la, bra.lb, ket.la, ket.lb)
    return QuartetClass(*l, bra.cartesian and max(l) > 1, bra.general or ket.general, operator)


def pairs_of(mol: gto.Mole, cutoff: float = NEGLIGIBLE, exponents: bool = False) -> tuple[ShellPairs, ...]:
    """Return the classes of all unordered pairs of shells of a molecule.

    Parameters
    ----------
    mol
        The molecule.
    cutoff
        Products of two primitives with a smaller BOUND, in Hartree^1/2, are left out.
    exponents
        Whether records have a last column for derivatives, see `product_records`.

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
    kinds = sorted(kinds_of(mol), key=lambda k: (-k.l, -k.contractions, -k.primitives))
    parts = []
    for n, a in enumerate(kinds):
        for b in kinds[n:]:
            i, j = np.tril_indices(len(a.ids)) if b is a else _all_pairs(len(a.ids), len(b.ids))
            if b is a:
                i, j = _tighter_first(a, i, j)
            parts.append(_product(a.take(i), b.take(j), cutoff, mol.cart, exponents=exponents))
    return tuple(_joined(parts))


def _tighter_first(shells: Shells, i: np.ndarray, j: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Order each pair so that the shell whose most diffuse primitive is tighter comes first.

    P is then near A, about which the vertical recurrence raises. In the other order the horizontal recurrence cancels
    large powers of |A - B|, which costs four digits for g functions.
    """
    smallest = shells.exponents.min(axis=1)
    turned = smallest[i] < smallest[j]
    return np.where(turned, j, i), np.where(turned, i, j)


def pairs_between(
    mol_a: gto.Mole, mol_b: gto.Mole, cutoff: float = NEGLIGIBLE, exponents: bool = False
) -> tuple[ShellPairs, ...]:
    """Return the classes of all pairs of a shell of one molecule with a shell of the other.

    Both molecules are Cartesian or both spherical, else a MoleculeError is raised. In a class that is `swapped`,
    `first` numbers shells of mol_b, since la >= lb. cutoff, exponents: as in `pairs_of`.
    """
    if mol_a.cart != mol_b.cart:
        raise MoleculeError(f"pairs need one kind of functions, found cart={mol_a.cart} and cart={mol_b.cart}")
    parts = []
    for a, b in product(kinds_of(mol_a), kinds_of(mol_b)):
        i, j = _all_pairs(len(a.ids), len(b.ids))
        swapped = a.l < b.l
        one, two = (b.take(j), a.take(i)) if swapped else (a.take(i), b.take(j))
        parts.append(_product(one, two, cutoff, mol_a.cart, swapped=swapped, exponents=exponents))
    return tuple(_joined(parts))


def fitting_shells(auxmol: gto.Mole, exponents: bool = False) -> tuple[ShellPairs, ...]:
    """Return every shell as a pair with an s function of exponent zero and coefficient one on the same centre.

    exponents: as in `pairs_of`.
    """
    parts = [_product(a, unit_functions(a), 0.0, auxmol.cart, exponents=exponents) for a in kinds_of(auxmol)]
    return tuple(_joined(parts))


def _all_pairs(n: int, m: int) -> tuple[np.ndarray, np.ndarray]:
    return np.repeat(np.arange(n), m), np.tile(np.arange(m), n)


def _product(
    a: Shells, b: Shells, cutoff: float, cartesian: bool, *, swapped: bool = False, exponents: bool = False
) -> ShellPairs:
    """Return the pairs of shell n of a with shell n of b, for all n."""
    records, count = product_records(a, b, cutoff, cartesian, exponents)
    return ShellPairs(
        *(a.l, b.l, a.contractions, b.contractions, cartesian, a.ids, b.ids, a.ao, b.ao, records, count),
        centre=np.concatenate([a.centres, a.centres - b.centres], axis=1),
        bound=records[..., BOUND].sum(axis=1),
        swapped=swapped,
    )


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
