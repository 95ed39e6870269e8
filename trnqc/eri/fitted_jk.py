"""J and K from fitted integrals: each thread takes a share of the auxiliary functions, one product at a time.

Q's row -> unpacked -> half transformed -> gathered for WIDE functions Q -> K of this thread += a rank-n update

A library's own threads would share products that are too small for them: K of 51 orbitals takes longer on two threads
than on one that way.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from pyscf import lib

from trnqc.eri.densities import is_symmetric
from trnqc.eri.workers import workers

# Auxiliary functions of one rank-n update: many, since each ends with a pass over K.
WIDE = 32
# Rows that J reads twice, the second time from a cache.
NEAR = 8
# Eigenvalues of a density that are rounding errors, as a share of the largest.
NEGLIGIBLE = 1e-14


def coulomb(cderi: np.ndarray, dms: np.ndarray) -> np.ndarray:
    """J [n, nao, nao] from rows cderi [naux, pairs] and densities [n, nao, nao]."""
    nao = dms.shape[-1]
    i, j = np.tril_indices(nao)
    both = (dms + dms.transpose(0, 2, 1))[:, i, j] * np.where(i == j, 0.5, 1.0)

    def of(begin: int, end: int) -> np.ndarray:
        packed = np.zeros_like(both)
        for first in range(begin, end, NEAR):
            rows = cderi[first : min(first + NEAR, end)]
            packed += (both @ rows.T) @ rows
        return packed

    return lib.unpack_tril(_sum_of_shares(of, len(cderi), lib.num_threads(), both.shape))


def exchange_of_orbitals(cderi: np.ndarray, orbitals: np.ndarray, room: float) -> np.ndarray:
    """K [nao, nao] of the density C C^T, C [nao, nocc]: sum over Q and i of (Q|i mu) (Q|i nu). room: free bytes."""
    nao, nocc = orbitals.shape
    left = np.ascontiguousarray(orbitals.T)
    threads, wide = _division(room, fixed=3 * nao**2, each=nocc * nao)

    def of(begin: int, end: int) -> np.ndarray:
        k, update, square = np.zeros((nao, nao)), np.empty((nao, nao)), np.empty((nao, nao))
        half = np.empty((wide, nocc, nao))
        for first in range(begin, end, wide):
            rows = cderi[first : min(first + wide, end)]
            for row, made in zip(rows, half):
                np.matmul(left, lib.unpack_tril(row, out=square), out=made)
            made = half[: len(rows)].reshape(-1, nao)
            k += np.matmul(made.T, made, out=update)
        return k

    return _sum_of_shares(of, len(cderi) if nocc else 0, threads, (nao, nao))


def exchange(cderi: np.ndarray, dm: np.ndarray, room: float) -> np.ndarray:
    """K [nao, nao] of any real density: sum over Q of (Q|mu la) D[la, si] (Q|si nu). room: free bytes.

    A symmetric density goes by its eigenvectors where these are fewer than half the functions.
    """
    if not is_symmetric(dm):
        return _exchange_of_matrix(cderi, dm, room)
    w, c = np.linalg.eigh((dm + dm.T) / 2)
    large = np.abs(w) > NEGLIGIBLE * np.abs(w).max(initial=0.0)
    if 2 * large.sum() > len(w):
        return _exchange_of_matrix(cderi, dm, room)
    plus, minus = (c[:, part] * np.sqrt(np.abs(w[part])) for part in (large & (w > 0), large & (w < 0)))
    return exchange_of_orbitals(cderi, plus, room) - exchange_of_orbitals(cderi, minus, room)


def _exchange_of_matrix(cderi: np.ndarray, dm: np.ndarray, room: float) -> np.ndarray:
    nao = len(dm)
    left = np.ascontiguousarray(dm.T)
    threads, wide = _division(room, fixed=2 * nao**2, each=2 * nao**2)

    def of(begin: int, end: int) -> np.ndarray:
        k, update = np.zeros((nao, nao)), np.empty((nao, nao))
        square, half = np.empty((2, wide, nao, nao))
        for first in range(begin, end, wide):
            rows = cderi[first : min(first + wide, end)]
            for row, full, made in zip(rows, square, half):
                np.matmul(left, lib.unpack_tril(row, out=full), out=made)
            made, full = (many[: len(rows)].reshape(-1, nao) for many in (half, square))
            k += np.matmul(made.T, full, out=update)
        return k

    return _sum_of_shares(of, len(cderi), threads, (nao, nao))


def _division(room: float, fixed: int, each: int) -> tuple[int, int]:
    """Threads, and auxiliary functions of one update, whose arrays (counts of f64 given) fit; one at the least."""
    threads = lib.num_threads()
    while threads > 1 and 8 * threads * (fixed + each) > room:
        threads -= 1
    return threads, int(max(1, min(WIDE, (room / 8 / threads - fixed) // max(each, 1))))


def _sum_of_shares(
    of: Callable[[int, int], np.ndarray], count: int, threads: int, shape: tuple[int, ...]
) -> np.ndarray:
    """The sum of of(begin, end) over as many ranges as there are threads, each with a BLAS of one thread."""
    if not count:
        return np.zeros(shape)
    edges = np.linspace(0, count, min(threads, count) + 1).astype(int)
    with workers(len(edges) - 1) as pool:
        return np.sum(list(pool.map(of, edges[:-1], edges[1:])), axis=0)
