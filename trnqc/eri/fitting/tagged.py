"""J and K from fitted integrals for densities as PySCF passes them: stacks, perhaps tagged with their orbitals."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from trnqc.eri.fitting import jk, transitions
from trnqc.ranks import ALONE, Ranks

# The largest difference between a density and the product of its orbitals that is taken for rounding, relative to the
# largest number of electrons of a function.
SAME = 1e-13


def has_orbitals(dm: Any) -> bool:
    """Return whether a density is tagged with its orbitals."""
    return getattr(dm, "mo_coeff", None) is not None


def fitted_jk(
    rows: jk.Rows,
    dm: Any,
    norms: np.ndarray,
    with_j: bool,
    with_k: bool,
    room: float,
    ranks: Ranks = ALONE,
    precision: type[np.floating] = np.float64,
) -> tuple[Any, Any]:
    """Compute J and K [..., nao, nao] from this rank's rows of fitted integrals, for a real density that PySCF may have
    tagged.

    With tags mo_coeff and mo_occ, K is computed from the occupied orbitals, and J from the matrices, as PySCF does; J
    and K differ where a tagged array has been edited. With the tag of `transitions`, K of densities between those
    orbitals and others takes fewer products, and is computed in `precision`, as is J of all densities without tags of
    their orbitals. Other arguments are as in `trnqc.eri.fitting.jk`. The result has None for what is not wanted.
    """
    dms = np.asarray(dm, float)
    square = dms.reshape(-1, *dms.shape[-2:])
    if with_k and has_orbitals(dm):
        orbitals = occupied(dm, len(square), dms.shape[-1])
        together = with_j and all(map(_is_of_orbitals, square, orbitals))
        vjs, vks = zip(*(jk.of_orbitals(rows, c, norms, room, ranks, with_j=together) for c in orbitals))
        if with_j and not together:
            vjs = tuple(jk.coulomb(rows, square, norms, ranks))
        return (np.array(vjs).reshape(dms.shape) if with_j else None), np.array(vks).reshape(dms.shape)
    vj = jk.coulomb(rows, square, norms, ranks, precision).reshape(dms.shape) if with_j else None
    vk = _exchange(rows, square, norms, room, ranks, getattr(dm, transitions.TAG, ()), precision) if with_k else None
    return vj, (np.array(vk).reshape(dms.shape) if with_k else None)


def _exchange(
    rows: jk.Rows,
    dms: np.ndarray,
    norms: np.ndarray,
    room: float,
    ranks: Ranks,
    orbitals: Sequence[np.ndarray],
    precision: type[np.floating],
) -> list[np.ndarray]:
    """Compute K of each density, from the orbitals between which and others it is, if that is so."""
    found: dict[int, np.ndarray] = {}
    for each in orbitals:
        space = transitions.orthonormal(each)
        divided = {n: transitions.divided(dm, space) for n, dm in enumerate(dms) if n not in found}
        chosen = {n: one for n, one in divided.items() if one is not None}
        each_k = transitions.exchange(rows, space, list(chosen.values()), norms, room, ranks, precision)
        found |= zip(chosen, each_k)
    return [found[n] if n in found else jk.exchange(rows, dm, norms, room, ranks) for n, dm in enumerate(dms)]


def _is_of_orbitals(dm: np.ndarray, orbitals: np.ndarray) -> bool:
    """Return whether a density [nao, nao] is C C^T but for rounding, so that both have the same J."""
    # |C_mi C_ni| summed over i is at most sqrt(D_mm D_nn).
    scale = float(np.square(orbitals).sum(axis=1).max(initial=0.0))
    return bool(np.abs(dm - orbitals @ orbitals.T).max(initial=0.0) <= SAME * scale)


def occupied(dm: Any, count: int, nao: int) -> list[np.ndarray]:
    """Return sqrt(occupation) times the occupied orbitals of each of `count` densities; for ROHF, of each spin."""
    coefficients = np.asarray(dm.mo_coeff).reshape(-1, nao, np.shape(dm.mo_coeff)[-1])
    occupations = np.asarray(dm.mo_occ).reshape(-1, coefficients.shape[-1])
    if 2 * len(occupations) == count:
        occupations = np.concatenate([occupations > 0, occupations == 2]).astype(float)
        coefficients = np.concatenate([coefficients, coefficients])
    return [c[:, n > 0] * np.sqrt(n[n > 0]) for c, n in zip(coefficients, occupations)]
