"""Warnings about orbital energies for which MP2 is doubtful.

eps_i + eps_j - eps_a - eps_b -> gap that is not positive, denominators close to zero -> messages
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trnqc.mp2.pairs.sectors import Sector

# Smallest magnitude of a denominator in Hartree (about 0.5 eV) without a warning. The amplitude of an integral of that
# size, which is typical, then exceeds one, so that second-order perturbation theory does not apply.
SMALLEST = 0.02


def denominator_warnings(sectors: Sequence[Sector]) -> list[str]:
    """Messages about orbital-energy gaps that are not positive and about denominators that nearly vanish."""
    messages = [_gap(sector) for sector in sectors if sector.right is None]
    messages += [_smallest(sector) for sector in sectors]
    return [message for message in messages if message]


def _gap(sector: Sector) -> str:
    eps_occ, eps_vir = sector.left.eps_occ, sector.left.eps_vir
    gap = eps_vir.min() - eps_occ.max()
    if gap > 0:
        return ""
    spin = {"aa": "alpha ", "bb": "beta "}.get(sector.name, "")
    return (
        f"the lowest virtual {spin}energy lies {-gap:.3g} Hartree below the highest occupied one: MP2 is not "
        "meaningful for this reference, which may be unstable; check it with mf.stability()"
    )


def _smallest(sector: Sector) -> str:
    left, right = sector.left, sector.sides[-1]
    occupied = np.add.outer(left.eps_occ, right.eps_occ)
    virtual = np.add.outer(left.eps_vir, right.eps_vir)
    order = np.argsort(virtual, axis=None)
    sums = virtual.flat[order]
    at = np.clip(np.searchsorted(sums, occupied), 1, max(len(sums) - 1, 1))
    nearest = np.where(abs(occupied - sums[at - 1]) <= abs(occupied - sums[np.minimum(at, len(sums) - 1)]), at - 1, at)
    nearest = np.minimum(nearest, len(sums) - 1)
    distance = abs(occupied - sums[nearest])
    i, j = np.unravel_index(distance.argmin(), distance.shape)
    if distance[i, j] >= SMALLEST:
        return ""
    a, b = np.unravel_index(order[nearest[i, j]], virtual.shape)
    case = {"aa": " of alpha spin", "ab": " of alpha and beta spin", "bb": " of beta spin"}.get(sector.name, "")
    return (
        f"the denominator of the pair ({i}, {j}) and the virtual orbitals ({a}, {b}){case} is only "
        f"{distance[i, j]:.2g} Hartree: these orbitals are nearly degenerate, and MP2 is not reliable for them"
    )
