"""Shells of a molecule by kind, and the records of products of two shells.

Mole -> shells of one kind (same l, primitives, contractions) -> records of products of two kinds

NumPy computes all products of two kinds at once. `trnqc.eri.classes` describes a record.
"""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product
from math import comb, pi

import numpy as np
from pyscf import gto
from scipy.special import betainc, gamma

from trnqc.eri.classes import BOUND, COEFFICIENT, CONTRACTION, ZETA, P
from trnqc.errors import MoleculeError


@dataclass(frozen=True)
class Shells:
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

    def take(self, which: np.ndarray) -> Shells:
        arrays = (self.ids, self.ao, self.centres, self.exponents, self.coefficients)
        return Shells(self.l, *(array[which] for array in arrays))


def kinds_of(mol: gto.Mole) -> list[Shells]:
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
        kinds.append(Shells(l, ids, ao[ids].astype(np.int64), env[points[ids]], exponents, coefficients))
    return kinds


def unit_functions(shells: Shells) -> Shells:
    """Return an s function of exponent zero and coefficient one for every shell, with number -1."""
    n = len(shells.ids)
    exponents, coefficients = np.zeros((n, 1)), np.ones((n, 1, 1))
    return Shells(0, np.full(n, -1), np.zeros(n, np.int64), shells.centres, exponents, coefficients)


def product_records(
    a: Shells, b: Shells, cutoff: float, cartesian: bool, exponents: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """Compute the records [n, K, W] of the products of shell n of a with shell n of b, for all n, and the numbers [n]
    of products that are not padding, at least one.

    Records are by falling BOUND, padded to the longest (`trnqc.eri.classes`); products of two primitives with a BOUND
    below `cutoff`, in Hartree^1/2, become padding. With `exponents`, records have one more column at their end: twice
    the exponent of a's primitive, in 1/Bohr^2.
    """
    n, combined = len(a.ids), a.contractions * b.contractions
    alpha, beta = a.exponents[:, :, None], b.exponents[:, None, :]
    zeta = alpha + beta
    distance = a.centres - b.centres
    # P is computed relative to A, so that nothing cancels where the centres coincide.
    pa = -(beta / zeta)[..., None] * distance[:, None, None, :]
    overlap = np.exp(-alpha * beta / zeta * (distance**2).sum(axis=1)[:, None, None])
    pairs = np.einsum("ncp,ndq->npqcd", a.coefficients, b.coefficients).reshape(n, *zeta.shape[1:], combined)
    records = np.empty((*zeta.shape, CONTRACTION + (combined if combined > 1 else 0) + exponents))
    records[..., ZETA] = zeta
    records[..., P : P + 3] = a.centres[:, None, None, :] + pa
    records[..., COEFFICIENT] = np.sqrt(2) * pi**1.25 * overlap / zeta
    if combined > 1:
        records[..., CONTRACTION : CONTRACTION + combined] = pairs
    else:
        records[..., COEFFICIENT] *= pairs[..., 0]
    if exponents:
        records[..., -1] = 2 * alpha
    lengths = np.linalg.norm(pa, axis=-1), (alpha / zeta) * np.linalg.norm(distance, axis=1)[:, None, None]
    weight = overlap * np.abs(pairs).max(axis=-1) * _angular(a.l, cartesian) * _angular(b.l, cartesian)
    records[..., BOUND] = weight * _self_repulsion(a.l, b.l, zeta, *lengths)
    return _by_bound(records.reshape(n, -1, records.shape[-1]), cutoff)


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
