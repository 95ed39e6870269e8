"""Which way of computing K takes less time for a molecule, by estimates of the seconds of one K on one thread.

fitted          operations of matrix products: 3 nao^2 nocc naux
exact           quartets that Schwarz's inequality leaves, at the relative cost of their class
seminumerical   pairs of primitives that matter anywhere, times points

The rates were measured with `scripts/eri/bench_exchange.py`. Only their ratios decide, which differ little between
CPUs.
"""

from __future__ import annotations

import numpy as np
from pyscf import gto

from trnqc.eri.jk.tasks import relative_cost
from trnqc.eri.seminumerical.pairs import point_pairs
from trnqc.eri.seminumerical.program import COUNT, PEAK
from trnqc.eri.shells.pairs import ShellPairs, pairs_of

# Seconds per floating-point operation of fitted K, at 480 functions (Intel Xeon, Sapphire Rapids).
FITTED = 1.8e-11
# Seconds per unit of relative cost of exact K, on the same CPU.
DIRECT = 7.5e-11
# Seconds per pair of primitives and point, on the same CPU.
POINT = 4e-9
# Points of an atom, with the default level of the grid.
POINTS = 3000
# Products of two Schwarz bounds below this are left out of exact K, in Hartree: the screening for densities around 0.1.
QUARTET = 1e-12
# Pairs of primitives with a smaller potential matter nowhere, in Hartree: `field.POTENTIAL` for densities of 0.1.
PAIR = 1e-6


def is_cheaper(mol: gto.Mole, naux: int) -> bool:
    """Return whether seminumerical K is estimated to be faster than fitted K, or than exact K if naux is 0.

    >>> from pyscf import gto
    >>> is_cheaper(gto.M(atom="He", basis="cc-pvdz"), naux=0)
    False
    """
    return seminumerical_seconds(mol) < (fitted_seconds(mol, naux) if naux else direct_seconds(mol))


def fitted_seconds(mol: gto.Mole, naux: int) -> float:
    """Estimate the seconds of K from fitted integrals and the occupied orbitals of a closed shell."""
    return FITTED * 3 * mol.nao_nr() ** 2 * (mol.nelectron / 2) * naux


def direct_seconds(mol: gto.Mole) -> float:
    """Estimate the seconds of exact K."""
    classes = pairs_of(mol)
    costs = [relative_cost(a, b, _quartets(a, b)) for n, a in enumerate(classes) for b in classes[: n + 1]]
    return DIRECT * sum(costs)


def _quartets(bra: ShellPairs, ket: ShellPairs) -> float:
    """Return the number of quartets of two classes that Schwarz's inequality leaves."""
    least = np.sort(ket.bound)
    left = len(least) - np.searchsorted(least, QUARTET / np.maximum(bra.bound, QUARTET))
    return float(left.sum()) / (2 if bra is ket else 1)


def seminumerical_seconds(mol: gto.Mole) -> float:
    """Estimate the seconds of seminumerical K. All points count for every pair, so that this is an upper bound."""
    primitives = 0
    for pairs in point_pairs(mol):
        real = np.arange(pairs.records.shape[1]) < pairs.places[:, COUNT, None]
        primitives += int((real & (pairs.records[..., PEAK] > PAIR)).sum())
    return POINT * primitives * POINTS * mol.natm
