"""Coupled cluster by matrices over all determinants of a few spin orbitals, as an independent reference.

Operators are dense matrices in the Fock space of n spin orbitals, of 2^n rows. The first orbitals are occupied.
"""

from __future__ import annotations

from functools import cache, lru_cache
from itertools import permutations, product
from math import factorial

import numpy as np


@lru_cache
def annihilators(n: int) -> list[np.ndarray]:
    """The annihilation operators, by the transformation of Jordan and Wigner."""
    lower, sign, one = np.array([[0.0, 1.0], [0.0, 0.0]]), np.diag([1.0, -1.0]), np.eye(2)
    operators = []
    for k in range(n):
        whole = np.eye(1)
        for part in [sign] * k + [lower] + [one] * (n - k - 1):
            whole = np.kron(whole, part)
        operators.append(whole)
    return operators


def reference(n: int, nocc: int) -> np.ndarray:
    """The determinant of the occupied orbitals as a vector."""
    state = np.zeros(2**n)
    state[0] = 1.0
    for operator in reversed(annihilators(n)[:nocc]):
        state = operator.T @ state
    return state


def hamiltonian(h: np.ndarray, g: np.ndarray) -> np.ndarray:
    """sum(pq) h_pq p+ q + 1/4 sum(pqrs) <pq||rs> p+ q+ s r."""
    a = annihilators(len(h))
    total = sum(h[p, q] * a[p].T @ a[q] for p, q in product(range(len(h)), repeat=2))
    for p, q, r, s in np.argwhere(g):
        total = total + 0.25 * g[p, q, r, s] * (a[p].T @ a[q].T @ a[s] @ a[r])
    return total


@cache
def excitation(n: int, occupied: tuple[int, ...], virtual: tuple[int, ...]) -> np.ndarray:
    """a+ b+ c+ k j i of absolute numbers of orbitals."""
    a = annihilators(n)
    operator = np.eye(2**n)
    for x in virtual:
        operator = operator @ a[x].T
    for x in reversed(occupied):
        operator = operator @ a[x]
    return operator


def cluster(amplitudes: list[np.ndarray]) -> np.ndarray:
    """T from antisymmetric amplitudes t[i, j, ..., a, b, ...] of one and more excitations."""
    nocc, nvir = amplitudes[0].shape
    n = nocc + nvir
    total = np.zeros((2**n, 2**n))
    for t in amplitudes:
        order = t.ndim // 2
        for place in np.argwhere(t):
            occupied, virtual = tuple(place[:order]), tuple(place[order:])
            if list(occupied) == sorted(occupied) and list(virtual) == sorted(virtual):
                total += t[tuple(place)] * excitation(n, occupied, tuple(nocc + x for x in virtual))
    return total


def exponential(t: np.ndarray, state: np.ndarray) -> np.ndarray:
    """exp(T) applied to a vector, for a nilpotent T."""
    total, term, k = state, state, 1
    while np.any(term):
        term = t @ term / k
        total, k = total + term, k + 1
    return total


def residuals(operator: np.ndarray, amplitudes: list[np.ndarray]) -> tuple[float, list[np.ndarray]]:
    """Energy and residuals: the elements of exp(-T) H exp(T) on the reference, in the shapes of the amplitudes."""
    nocc, nvir = amplitudes[0].shape
    n = nocc + nvir
    t, state = cluster(amplitudes), reference(n, nocc)
    transformed = exponential(-t, operator @ exponential(t, state))
    values = []
    for amplitude in amplitudes:
        order, value = amplitude.ndim // 2, np.zeros(amplitude.shape)
        for place in product(*map(range, amplitude.shape)):
            occupied, virtual = place[:order], tuple(nocc + x for x in place[order:])
            value[place] = (excitation(n, occupied, virtual) @ state) @ transformed
        values.append(value)
    return float(state @ transformed), values


def lowest(operator: np.ndarray, n: int, electrons: int) -> float:
    """The lowest eigenvalue for so many electrons, as full configuration interaction finds it."""
    count = np.round(np.diag(sum(a.T @ a for a in annihilators(n))))
    chosen = np.flatnonzero(count == electrons)
    return float(np.linalg.eigvalsh(operator[np.ix_(chosen, chosen)])[0])


def antisymmetrised(x: np.ndarray, *groups: tuple[int, ...]) -> np.ndarray:
    """The part of an array that changes its sign under exchange of any two axes of a group."""
    for group in groups:
        total = np.zeros_like(x)
        for order in permutations(range(len(group))):
            axes = list(range(x.ndim))
            for place, k in zip(group, order):
                axes[place] = group[k]
            sign = round(np.linalg.det(np.eye(len(group))[list(order)]))
            total = total + sign * x.transpose(axes)
        x = total / factorial(len(group))
    return x
