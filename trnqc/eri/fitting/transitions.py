"""K from fitted integrals for densities between few orbitals and all others: transition and response densities.

densities, few orbitals -> D = U C^T + C V^T, checked -> B_Q C once for all densities, B_Q U, B_Q V -> K

K is sum_Q (B_Q U) (B_Q C)^T + (B_Q C) (B_Q V)^T, which takes a fifth of the products of K of any matrix for the excited
states of a molecule in a double-zeta basis. TDDFT, and coupled-perturbed equations of Hessians and MP2, have such
densities, of which C are the occupied orbitals.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from pyscf import lib

from trnqc.eri.fitting import jk
from trnqc.eri.fitting.half_transform import HalfTransform
from trnqc.eri.jk.densities import is_symmetric
from trnqc.host.arrays import empty, zeros
from trnqc.host.rank_updates import add_general_product, add_products
from trnqc.ranks import ALONE, Ranks

# What is left of a density between other orbitals counts as rounding up to this share of its largest element.
SAME = 1e-14
# Auxiliary functions of a block, whose rows all transitions read from the cache.
NEAR = 8
# Name of the attribute of a tagged density: arrays [nao, n] of orbitals, between which and others it may be.
TAG = "between_orbitals"


@dataclass(frozen=True, eq=False)
class Transition:
    """A density D = U C^T + C V^T [nao, nao]. V is None where it is zero, and where D is symmetric, so that V is U."""

    density: np.ndarray
    left: np.ndarray
    right: np.ndarray | None
    symmetric: bool


def tagged(dm: Any, orbitals: Sequence[np.ndarray]) -> Any:
    """Return a density that says between which orbitals [nao, n] and others it may be."""
    return lib.tag_array(dm, **{TAG: tuple(orbitals)})


def orthonormal(orbitals: np.ndarray) -> np.ndarray:
    """Return orthonormal vectors of the space of orbitals [nao, n]."""
    return np.ascontiguousarray(np.linalg.qr(orbitals)[0])


def divided(density: np.ndarray, space: np.ndarray) -> Transition | None:
    """Return a density as a transition between a space, orthonormal [nao, n], and others; None if it is not one."""
    smallest = SAME * np.abs(density).max(initial=0.0) * len(density)
    left = density @ space
    rest = density - left @ space.T
    right = (space.T @ rest).T
    if not np.abs(rest - space @ right.T).max(initial=0.0) <= smallest:  # NaN is not a transition either.
        return None
    if is_symmetric(density):
        return Transition(density, left - space @ (space.T @ left) / 2, None, symmetric=True)
    is_one_sided = np.abs(right).max(initial=0.0) <= smallest
    return Transition(density, left, None if is_one_sided else right, symmetric=False)


def exchange(
    rows: jk.Rows,
    space: np.ndarray,
    transitions: Sequence[Transition],
    norms: np.ndarray,
    room: float,
    ranks: Ranks = ALONE,
    precision: type[np.floating] = np.float64,
) -> list[np.ndarray]:
    """Compute K [nao, nao] of each transition from this rank's packed rows [naux, pairs].

    Parameters
    ----------
    rows, norms, room, ranks
        As in `trnqc.eri.fitting.jk.of_orbitals`.
    space
        Orthonormal vectors [nao, n] that all transitions have in common.
    transitions
        As `divided` returns them for the space.
    precision
        In single precision, np.float32, the contribution of a few rows is computed in it, and their sum in double
        precision.
    """
    nao, size = len(space), space.size
    # A sum takes its integers, and its term on each thread.
    most = int(max(1, room / 4 / (8 * nao**2) / (1 + lib.num_threads())))
    results: list[np.ndarray] = []
    for first in range(0, len(transitions), most):
        part = transitions[first : first + most]
        copied = jk.elements_read(rows) if precision == np.float64 else rows.shape[1]
        fixed, each = 2 * len(part) * (nao**2 + 2 * size), 2 * size + copied
        threads, wide = jk.division(room, fixed, each)
        wide = min(wide, NEAR)
        bounds = [(norms @ np.abs(one.density) @ norms).max(axis=1, initial=0.0) for one in part]
        shapes = [(nao, nao)] * len(part)
        worker = partial(_adding, rows, space, part, wide, np.dtype(precision))
        sums = jk.sums_of_groups(worker, len(rows), threads, shapes, bounds, ranks)
        results += [lib.hermi_triu(k, inplace=True) if one.symmetric else k for one, k in zip(part, sums)]
    return results


def _adding(
    rows: jk.Rows, space: np.ndarray, transitions: Sequence[Transition], wide: int, precision: np.dtype
) -> jk.AddRows:
    """Return what adds the contributions of some rows to K of all transitions, on one thread."""
    nao, n = space.shape

    def transform(orbitals: np.ndarray) -> HalfTransform:
        return HalfTransform(orbitals.astype(precision, copy=False))

    common = transform(space)
    sides = [(transform(t.left), None if t.right is None else transform(t.right)) for t in transitions]
    halves = empty((2, wide * space.size), precision)
    update = None if precision == np.float64 else zeros((nao, nao), precision)

    def add(begin: int, end: int, *sums: np.ndarray) -> None:
        for first in range(begin, end, wide):
            block = np.asarray(rows[first : min(first + wide, end)], precision)
            ours, other = (half[: len(block) * space.size].reshape(nao, len(block), n) for half in halves)
            common(block, ours)
            shared, changed = ours.reshape(nao, -1), other.reshape(nao, -1)
            for transition, (left, right), k in zip(transitions, sides, sums):
                to = k if update is None else update
                left(block, other)
                if transition.symmetric:
                    add_products(to, changed, shared)
                else:
                    add_general_product(to, changed, shared.T)
                    if right is not None:
                        right(block, other)
                        add_general_product(to, shared, changed.T)
                if update is not None:
                    k += update
                    update.fill(0.0)

    return add
