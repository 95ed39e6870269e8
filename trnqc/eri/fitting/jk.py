"""J and K from fitted integrals, with the same bits for any number of threads and ranks.

groups of Q -> threads: Q's row -> unpacked -> half transformed -> gathered for WIDE functions Q -> a rank-n update
            -> what each group gives is rounded once and added up exactly (exact.py), over the threads of all ranks

A library's own threads would share products that are too small for them: K of 51 orbitals takes longer on two threads
than on one that way. A rank that has some of the rows has whole groups of them.
"""

from __future__ import annotations

import threading
import weakref
from collections.abc import Callable, Iterator

import numpy as np
from pyscf import lib

from trnqc.eri.fitting.workers import workers
from trnqc.eri.jk.densities import is_symmetric
from trnqc.eri.jk.exact_sums import ExactSum, Terms
from trnqc.ranks import ALONE, Ranks

GROUP = 32
"""Auxiliary functions whose part of J or K is rounded as one; a group is one task."""
# Auxiliary functions of one rank-n update: many, since each ends with a pass over K.
WIDE = 32
# Rows that J reads twice, the second time from a cache.
NEAR = 8
# Columns of which norms are made at a time.
COLUMNS = 1024
# Eigenvalues of a density that are rounding errors, as a share of the largest.
NEGLIGIBLE = 1e-14

Add = Callable[[int, int, np.ndarray], None]


def norms_of(rows: np.ndarray) -> np.ndarray:
    """sqrt(sum over Q of (Q|ij)^2), packed [pairs], of rows [naux, pairs]: by Schwarz, what bounds J and K."""
    found = np.empty(rows.shape[1])

    def of(begin: int) -> None:
        part = rows[:, begin : begin + COLUMNS]
        found[begin : begin + COLUMNS] = np.sqrt(np.einsum("qp,qp->p", part, part))

    with workers(lib.num_threads()) as pool:
        list(pool.map(of, range(0, rows.shape[1], COLUMNS)))
    return found


class Norms:
    """The norms of an array of fitted integrals, kept as long as it is the one that is asked for."""

    def __init__(self) -> None:
        self._of: weakref.ref[np.ndarray] | None = None
        self._found = np.empty(0)

    def __call__(self, cderi: np.ndarray) -> np.ndarray:
        """[nao, nao]"""
        if self._of is None or self._of() is not cderi:
            self._of, self._found = weakref.ref(cderi), lib.unpack_tril(norms_of(cderi))
        return self._found

    def __reduce__(self) -> tuple[type[Norms], tuple[()]]:
        return Norms, ()  # a copy has an array of its own


def coulomb(cderi: np.ndarray, dms: np.ndarray, norms: np.ndarray, ranks: Ranks = ALONE) -> np.ndarray:
    """J [n, nao, nao] from rows cderi [naux, pairs] and densities [n, nao, nao].

    norms [nao, nao] are those of the rows of all ranks.
    """
    nao = dms.shape[-1]
    i, j = np.tril_indices(nao)
    both = (dms + dms.transpose(0, 2, 1))[:, i, j] * np.where(i == j, 0.5, 1.0)

    def adding() -> Add:
        def add(begin: int, end: int, out: np.ndarray) -> None:
            for first in range(begin, end, NEAR):
                rows = cderi[first : min(first + NEAR, end)]
                out += (both @ rows.T) @ rows

        return add

    bound = norms.max(initial=0.0) * (np.abs(dms) * norms).sum(axis=(1, 2))
    return lib.unpack_tril(_sum_of_groups(adding, len(cderi), lib.num_threads(), both.shape, bound, ranks))


def exchange_of_orbitals(
    cderi: np.ndarray, orbitals: np.ndarray, norms: np.ndarray, room: float, ranks: Ranks = ALONE
) -> np.ndarray:
    """K [nao, nao] of the density C C^T, C [nao, nocc]: sum over Q and i of (Q|i mu) (Q|i nu). room: free bytes."""
    nao, nocc = orbitals.shape
    left = np.ascontiguousarray(orbitals.T)
    threads, wide = _division(room, fixed=5 * nao**2, each=nocc * nao)

    def adding() -> Add:
        update, square, half = np.empty((nao, nao)), np.empty((nao, nao)), np.empty((wide, nocc, nao))

        def add(begin: int, end: int, out: np.ndarray) -> None:
            for first in range(begin, end, wide):
                rows = cderi[first : min(first + wide, end)]
                for row, made in zip(rows, half):
                    np.matmul(left, lib.unpack_tril(row, out=square), out=made)
                made = half[: len(rows)].reshape(-1, nao)
                out += np.matmul(made.T, made, out=update)

        return add

    diagonal = ((norms @ np.abs(orbitals)) ** 2).sum(axis=1)
    bound = np.sqrt(diagonal * diagonal.max(initial=0.0))
    return _sum_of_groups(adding, len(cderi) if nocc else 0, threads, (nao, nao), bound, ranks)


def exchange(cderi: np.ndarray, dm: np.ndarray, norms: np.ndarray, room: float, ranks: Ranks = ALONE) -> np.ndarray:
    """K [nao, nao] of any real density: sum over Q of (Q|mu la) D[la, si] (Q|si nu). room: free bytes.

    A symmetric density goes by its eigenvectors where these are fewer than half the functions.
    """
    if not is_symmetric(dm):  # nor is one with NaN
        return _exchange_of_matrix(cderi, dm, norms, room, ranks)
    w, c = np.linalg.eigh((dm + dm.T) / 2)
    large = np.abs(w) > NEGLIGIBLE * np.abs(w).max(initial=0.0)
    if 2 * large.sum() > len(w):
        return _exchange_of_matrix(cderi, dm, norms, room, ranks)
    plus, minus = (c[:, part] * np.sqrt(np.abs(w[part])) for part in (large & (w > 0), large & (w < 0)))
    return exchange_of_orbitals(cderi, plus, norms, room, ranks) - exchange_of_orbitals(
        cderi, minus, norms, room, ranks
    )


def _exchange_of_matrix(cderi: np.ndarray, dm: np.ndarray, norms: np.ndarray, room: float, ranks: Ranks) -> np.ndarray:
    nao = len(dm)
    left = np.ascontiguousarray(dm.T)
    threads, wide = _division(room, fixed=4 * nao**2, each=2 * nao**2)

    def adding() -> Add:
        update = np.empty((nao, nao))
        square, half = np.empty((2, wide, nao, nao))

        def add(begin: int, end: int, out: np.ndarray) -> None:
            for first in range(begin, end, wide):
                rows = cderi[first : min(first + wide, end)]
                for row, full, made in zip(rows, square, half):
                    np.matmul(left, lib.unpack_tril(row, out=full), out=made)
                made, full = (many[: len(rows)].reshape(-1, nao) for many in (half, square))
                out += np.matmul(made.T, full, out=update)

        return add

    bound = (norms @ np.abs(dm) @ norms).max(axis=1, initial=0.0)
    return _sum_of_groups(adding, len(cderi), threads, (nao, nao), bound, ranks)


def _division(room: float, fixed: int, each: int) -> tuple[int, int]:
    """Threads, and auxiliary functions of one update, whose arrays (counts of f64 given) fit; one at the least."""
    threads = lib.num_threads()
    while threads > 1 and 8 * threads * (fixed + each) > room:
        threads -= 1
    return threads, int(max(1, min(WIDE, (room / 8 / threads - fixed) // max(each, 1))))


def _sum_of_groups(
    adding: Callable[[], Add], count: int, threads: int, shape: tuple[int, int], bound: np.ndarray, ranks: Ranks
) -> np.ndarray:
    """The exact sum of what all groups add to an array, each with a BLAS of one thread.

    adding: makes a thread's function add(begin, end, out). bound: by row of the array, what no sum of some of the
    terms exceeds. All ranks call this with the same bound.
    """
    if not np.isfinite(bound).all():
        return np.full(shape, np.nan)
    total = ExactSum(shape, bound)
    groups = _shared(range(0, count, GROUP))

    def work(_: int) -> None:
        add, terms = adding(), Terms(total)
        for begin in groups():
            add(begin, min(begin + GROUP, count), terms.array)
            terms.flush()

    threads = min(threads, -(-count // GROUP))
    if threads:
        with workers(threads) as pool:
            list(pool.map(work, range(threads)))
    total.total = ranks.sum(total.total)
    return total.value()


def _shared(items: range) -> Callable[[], Iterator[int]]:
    """A way for each of several threads to take items, each item once."""
    rest, lock = iter(items), threading.Lock()

    def taken() -> Iterator[int]:
        while True:
            with lock:
                item = next(rest, None)
            if item is None:
                return
            yield item

    return taken
