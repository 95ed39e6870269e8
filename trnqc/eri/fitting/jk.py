"""J and K from fitted integrals, with the same bits for any number of threads and ranks.

rows Q of (Q|ij), in groups -> a thread takes a group: half-transformed rows -> one rank-n update for several Q -> each
group's term is rounded once and added exactly, over the threads of all ranks (exact_sums.py)

The threads are ours, because those of a BLAS library gain nothing from products as small as these: K of 51 orbitals
takes longer on two of them than on one. A rank that has part of the rows has whole groups.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Sequence

import numpy as np
from pyscf import lib

from trnqc.eri.fitting import half_transform
from trnqc.eri.fitting.file_rows import FileRows
from trnqc.eri.jk.densities import is_symmetric
from trnqc.eri.jk.exact_sums import ExactSum, add_all
from trnqc.host.arrays import empty
from trnqc.host.rank_updates import add_product
from trnqc.host.thread_pool import single_threaded_pool
from trnqc.ranks import ALONE, Ranks

# Auxiliary functions of a group: one task, whose part of J or K is rounded as one term.
GROUP = 32
# Auxiliary functions of one rank-n update of K. Each update ends with a pass over K.
WIDE = 32
# Rows that J reads together, for the second time from the cache.
NEAR = 8
# Columns whose norms are computed together.
COLUMNS = 1024
# Eigenvalues of a density below this share of the largest are rounding errors.
NEGLIGIBLE = 1e-14

Rows = np.ndarray | FileRows
"""Rows (Q|ij) [naux, pairs] in memory or in a file. Each thread takes one slice of them at a time."""
# Called with begin, end and arrays; adds to the arrays what the rows begin .. end contribute.
AddRows = Callable[..., None]


class BoundExceeded(Exception):
    """J or K is larger than the norms of the rows allow: the rows have changed since the norms were computed."""


def norms_of(rows: np.ndarray) -> np.ndarray:
    """Return sqrt(sum_Q (Q|ij)^2) of rows [naux, pairs], which by Schwarz's inequality bound J and K; [pairs]."""
    norms = np.empty(rows.shape[1])

    def norm(begin: int) -> None:
        part = rows[:, begin : begin + COLUMNS]
        norms[begin : begin + COLUMNS] = np.sqrt(np.einsum("qp,qp->p", part, part))

    with single_threaded_pool(lib.num_threads()) as pool:
        list(pool.map(norm, range(0, rows.shape[1], COLUMNS)))
    return norms


class Norms:
    """The norms of an array of fitted integrals, kept until another array is asked for.

    Where the array is edited in place, norms that are too small are noticed by `BoundExceeded`. Larger ones than
    necessary are bounds too.
    """

    def __init__(self) -> None:
        self._rows: weakref.ref[np.ndarray] | None = None
        self._norms = np.empty(0)

    def __call__(self, cderi: np.ndarray) -> np.ndarray:
        """Return the norms [nao, nao] of rows [naux, pairs]."""
        if self._rows is None or self._rows() is not cderi:
            self._rows, self._norms = weakref.ref(cderi), lib.unpack_tril(norms_of(cderi))
        return self._norms

    def __reduce__(self) -> tuple[type[Norms], tuple[()]]:
        return Norms, ()  # A copy of the owner has an array of its own.


def coulomb(
    cderi: Rows, dms: np.ndarray, norms: np.ndarray, ranks: Ranks = ALONE, precision: type[np.floating] = np.float64
) -> np.ndarray:
    """Compute J_ij = sum_Q (ij|Q) sum_kl (Q|kl) D_kl [n, nao, nao] of real densities from this rank's packed rows
    [naux, pairs].

    `norms` [nao, nao] are those of the rows of all ranks. In single `precision`, np.float32, NEAR rows are rounded at a
    time, and their contributions are added in double precision.
    """
    folded = packed_densities(dms).astype(precision, copy=False)

    def worker() -> AddRows:
        def add(begin: int, end: int, out: np.ndarray) -> None:
            for first in range(begin, end, NEAR):
                rows = np.asarray(cderi[first : min(first + NEAR, end)], precision)
                out += (folded @ rows.T) @ rows

        return add

    bound = bound_of_coulomb(dms, norms)
    (packed,) = sums_of_groups(worker, len(cderi), lib.num_threads(), [folded.shape], [bound], ranks)
    return lib.unpack_tril(packed)


def packed_densities(dms: np.ndarray) -> np.ndarray:
    """Return D_ij + D_ji, and D_ii on the diagonal, for pairs i >= j; [n, pairs] for densities [n, nao, nao]."""
    i, j = np.tril_indices(dms.shape[-1])
    return (dms + dms.transpose(0, 2, 1))[:, i, j] * np.where(i == j, 0.5, 1.0)


def bound_of_coulomb(dms: np.ndarray, norms: np.ndarray) -> np.ndarray:
    """Return a bound on the absolute values of all elements of J, for each density."""
    return np.asarray(norms.max(initial=0.0) * (np.abs(dms) * norms).sum(axis=(1, 2)))


def bound_of_exchange(orbitals: np.ndarray, norms: np.ndarray) -> np.ndarray:
    """Return a bound [nao] on the absolute values of all elements of each row of K of the density C C^T."""
    diagonal = ((norms @ np.abs(orbitals)) ** 2).sum(axis=1)
    return np.asarray(np.sqrt(diagonal * diagonal.max(initial=0.0)))


def of_orbitals(
    cderi: Rows,
    orbitals: np.ndarray,
    norms: np.ndarray,
    room: float,
    ranks: Ranks = ALONE,
    *,
    with_j: bool = True,
) -> tuple[np.ndarray | None, np.ndarray]:
    """Compute J (None without `with_j`) and K of the density C C^T, [nao, nao], in one pass over the packed rows
    [naux, pairs].

    With X_Q = B_Q C, J is sum_Q B_Q tr(C^T X_Q) and K is sum_Q X_Q X_Q^T. `orbitals` [nao, nocc] are C, the orbitals
    times the square roots of their occupations. `cderi`, `norms` and `ranks` are as in `coulomb`, and `room` are bytes
    for working arrays.
    """
    nao, nocc = orbitals.shape
    pairs = nao * (nao + 1) // 2
    orbitals = np.ascontiguousarray(orbitals)
    # Each thread has the sums of a group with their integers, and one X_Q.
    fixed, each = 2 * nao**2 + 3 * pairs + orbitals.size, orbitals.size + elements_read(cderi)
    threads, wide = division(room, fixed, each)

    def worker() -> AddRows:
        transform = half_transform.HalfTransform(orbitals)
        halves = empty((wide * orbitals.size,), orbitals.dtype)

        def add(begin: int, end: int, exchange: np.ndarray, *coulomb: np.ndarray) -> None:
            for first in range(begin, end, wide):
                rows = cderi[first : min(first + wide, end)]
                half = halves[: len(rows) * orbitals.size].reshape(nao, len(rows), nocc)
                traces = transform(rows, half)
                for packed in coulomb:
                    packed += traces @ rows
                add_product(exchange, half.reshape(nao, -1))

        return add

    shapes, bounds = [(nao, nao)], [bound_of_exchange(orbitals, norms)]
    if with_j:
        shapes.append((1, pairs))
        bounds.append(bound_of_coulomb((orbitals @ orbitals.T)[None], norms))
    vk, *packed = sums_of_groups(worker, len(cderi) if nocc else 0, threads, shapes, bounds, ranks)
    return (lib.unpack_tril(packed[0][0]) if with_j else None), lib.hermi_triu(vk, inplace=True)


def exchange(cderi: Rows, dm: np.ndarray, norms: np.ndarray, room: float, ranks: Ranks = ALONE) -> np.ndarray:
    """Compute K_il = sum_Qjk (ij|Q) D_jk (Q|kl) of any real density; [nao, nao].

    The eigenvectors of a symmetric density are used if at most half of them matter. Arguments are as in `of_orbitals`.
    """
    if not is_symmetric(dm):  # NaN is not symmetric either.
        return _exchange_of_matrix(cderi, dm, norms, room, ranks)
    w, c = np.linalg.eigh((dm + dm.T) / 2)
    large = np.abs(w) > NEGLIGIBLE * np.abs(w).max(initial=0.0)
    if 2 * large.sum() > len(w):
        return _exchange_of_matrix(cderi, dm, norms, room, ranks)
    plus, minus = (
        of_orbitals(cderi, c[:, part] * np.sqrt(np.abs(w[part])), norms, room, ranks, with_j=False)[1]
        for part in (large & (w > 0), large & (w < 0))
    )
    return plus - minus


def _exchange_of_matrix(cderi: Rows, dm: np.ndarray, norms: np.ndarray, room: float, ranks: Ranks) -> np.ndarray:
    nao = len(dm)
    left = np.ascontiguousarray(dm.T)
    threads, wide = division(room, fixed=4 * nao**2, each=2 * nao**2 + elements_read(cderi))

    def worker() -> AddRows:
        update = np.empty((nao, nao))
        square, half = np.empty((2, wide, nao, nao))

        def add(begin: int, end: int, out: np.ndarray) -> None:
            for first in range(begin, end, wide):
                rows = cderi[first : min(first + wide, end)]
                for row, full, transformed in zip(rows, square, half):
                    np.matmul(left, lib.unpack_tril(row, out=full), out=transformed)
                transformed, full = (many[: len(rows)].reshape(-1, nao) for many in (half, square))
                out += np.matmul(transformed.T, full, out=update)

        return add

    bound = (norms @ np.abs(dm) @ norms).max(axis=1, initial=0.0)
    return sums_of_groups(worker, len(cderi), threads, [(nao, nao)], [bound], ranks)[0]


def division(room: float, fixed: int, each: int) -> tuple[int, int]:
    """Return the threads, and the auxiliary functions of one update, whose arrays fit into `room` bytes.

    fixed, each: f64 elements that a thread needs in any case, and for each function. Both results are at least one.
    """
    threads = lib.num_threads()
    while threads > 1 and 8 * threads * (fixed + each) > room:
        threads -= 1
    return threads, int(max(1, min(WIDE, (room / 8 / threads - fixed) // max(each, 1))))


def elements_read(rows: Rows) -> int:
    """Return the elements that a thread needs in memory for a row: none if the rows are there anyway."""
    return 0 if isinstance(rows, np.ndarray) else rows.shape[1]


def sums_of_groups(
    worker: Callable[[], AddRows],
    count: int,
    threads: int,
    shapes: Sequence[tuple[int, int]],
    bounds: Sequence[np.ndarray],
    ranks: Ranks,
) -> list[np.ndarray]:
    """Return the exact sums of the contributions of all groups of `count` rows; NaN if a bound is not finite.

    `worker` is called once on each thread; `bounds` are as in `ExactSum`, the same on all ranks. Raises BoundExceeded
    if a sum is beyond its bound, which is then that of other rows.
    """
    if not all(np.isfinite(bound).all() for bound in bounds):
        return [np.full(shape, np.nan) for shape in shapes]
    totals = [ExactSum(shape, bound, checked=True) for shape, bound in zip(shapes, bounds)]

    def adding() -> Callable[[int, tuple[np.ndarray, ...]], None]:
        add = worker()
        return lambda begin, arrays: add(begin, min(begin + GROUP, count), *arrays)

    groups = range(0, count, GROUP)
    with single_threaded_pool(max(threads, 1)) as pool:
        add_all(totals, groups, adding, pool, min(threads, len(groups)), ranks)
    if any(total.exceeded for total in totals):
        raise BoundExceeded
    return [total.value() for total in totals]
