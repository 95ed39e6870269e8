"""Warnings about orbital energies for which MP2 is doubtful.

eps_i + eps_j - eps_a - eps_b -> gap that is not positive, denominators close to zero -> messages
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trnqc.mp2.pairs.sectors import PairSector

# Smallest magnitude of a denominator in Hartree (about 0.5 eV) without a warning. The amplitude of an integral of that
# size, which is typical, then exceeds one, so that second-order perturbation theory does not apply.
SMALLEST = 0.02


def denominator_warnings(sectors: Sequence[PairSector]) -> list[str]:
    """Messages about orbital-energy gaps that are not positive and about denominators that nearly vanish."""
    messages = [_gap(sector) for sector in sectors if sector.right is None]
    messages += [_smallest(sector) for sector in sectors]
    return [message for message in messages if message]


def _gap(sector: PairSector) -> str:
    eps_occ, eps_vir = sector.left.eps_occ, sector.left.eps_vir
    gap = eps_vir.min() - eps_occ.max()
    if gap > 0:
        return ""
    spin = {"aa": "alpha ", "bb": "beta "}.get(sector.name, "")
    return (
        f"the lowest virtual {spin}energy lies {-gap:.3g} Hartree below the highest occupied one: MP2 is not "
        "meaningful for this reference, which may be unstable; check it with --stability or mf.stability()"
    )


def _smallest(sector: PairSector) -> str:
    left, right = sector.left, sector.sides[-1]
    highest = left.eps_occ.max() + right.eps_occ.max() - left.eps_vir.min() - right.eps_vir.min()
    if highest <= -SMALLEST:  # All denominators are negative and at least as large.
        return ""
    same_spin = sector.name in ("aa", "bb")  # Two electrons of one spin have different orbitals.
    i, j = _pairs(len(left.eps_occ), len(right.eps_occ), same_spin)
    a, b = _pairs(len(left.eps_vir), len(right.eps_vir), same_spin)
    if not (len(i) and len(a)):
        return ""
    occupied, virtual = left.eps_occ[i] + right.eps_occ[j], left.eps_vir[a] + right.eps_vir[b]
    order = np.argsort(virtual)
    above = np.minimum(np.searchsorted(virtual[order], occupied), len(order) - 1)
    nearest = np.stack([order[above], order[np.maximum(above - 1, 0)]])
    distance = abs(occupied - virtual[nearest])
    side, n = np.unravel_index(distance.argmin(), distance.shape)
    if distance[side, n] >= SMALLEST:
        return ""
    m = nearest[side, n]
    case = {"aa": " of alpha spin", "ab": " of alpha and beta spin", "bb": " of beta spin"}.get(sector.name, "")
    return (
        f"the denominator of the pair ({i[n]}, {j[n]}) and the virtual orbitals ({a[m]}, {b[m]}){case} is only "
        f"{distance[side, n]:.2g} Hartree: these orbitals are nearly degenerate, and MP2 is not reliable for them"
    )


def _pairs(m: int, n: int, different: bool) -> tuple[np.ndarray, np.ndarray]:
    """Indices of all pairs of m and n orbitals, or of all pairs of different ones among m."""
    if different:
        return np.triu_indices(m, 1)
    i, j = np.indices((m, n)).reshape(2, -1)
    return i, j
