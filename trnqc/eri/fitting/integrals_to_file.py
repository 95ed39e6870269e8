"""Fitted integrals written to a file, for molecules whose integrals do not fit into memory.

runs of pairs ij -> (P|ij) for all P -> metric divided out -> columns of a matrix [naux, pairs] in an HDF5 file

A thread takes one run after the other through all steps, so that no integral is read again. The numbers have the bits
of integrals in memory, since the metric is divided out of the same ranges of columns. J and K read rows of the matrix,
which are consecutive in the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from queue import SimpleQueue

import numpy as np
from pyscf import gto, lib

from trnqc.eri.fitting.fitted_integrals import COLUMNS, columns_of, metric_factor, shell_blocks
from trnqc.eri.integrals import ThreeCentre
from trnqc.host.arrays import empty
from trnqc.host.disk_arrays import added_to
from trnqc.host.progress import StageBars
from trnqc.host.thread_pool import single_threaded_pool

# Bytes of a run at most: each row of it is written at once, and larger pieces of the file are not written faster.
LARGEST = 1 << 26
# Runs of a thread at least, so that threads end at about the same time.
SHARES = 4

Columns = tuple[int, int]
"""A range of pairs ij, i >= j."""


def write_fitted_integrals(mol: gto.Mole, auxmol: gto.Mole, path: Path, name: str, room: float) -> np.ndarray:
    """Write L^-1 (P|ij) to a dataset [naux, nao (nao + 1) / 2] of an HDF5 file, and return the norms sqrt(sum_Q
    (Q|ij)^2).

    See `fitted_integrals`, and `added_to` for `path` and `name`. Arrays may take `room` bytes, but one thread with the
    smallest run works in any case. Raises UnsupportedClass or CompilerError if there are no kernels for these shells,
    before anything is written; StorageError if the file cannot be written, and the dataset is not in it then.
    """
    integrals, factor, ranges = (
        ThreeCentre(mol, auxmol),
        metric_factor(mol, auxmol),
        columns_of(mol, shell_blocks(mol)),
    )
    pairs = ranges[-1][1]
    threads, runs = division(ranges, factor.nfit, lib.num_threads(), room)
    norms = np.empty(pairs)
    longest = max(run[-1][1] - run[0][0] for run in runs)
    free: SimpleQueue[np.ndarray] = SimpleQueue()
    for _ in range(threads):
        free.put(empty((factor.nfit * longest,), np.float64))

    with (
        added_to(path, name, (factor.naux, pairs)) as file,
        single_threaded_pool(threads) as pool,
        StageBars() as bars,
    ):

        def write(run: Sequence[Columns]) -> None:
            begin, end, memory = run[0][0], run[-1][1], free.get()
            block = integrals.of_pairs(begin, end, memory)
            for first, last in run:
                part = block[:, first - begin : last - begin]
                factor.fit_columns(part)
                rows = part[: factor.naux]
                norms[first:last] = np.sqrt(np.einsum("qp,qp->p", rows, rows))
            file.put_columns(begin, block[: factor.naux])
            free.put(memory)

        for done, _ in enumerate(pool.map(write, runs), 1):
            bars("fitted integrals", done, len(runs))
    return norms


def division(ranges: Sequence[Columns], nfit: int, threads: int, room: float) -> tuple[int, list[list[Columns]]]:
    """Return how many threads have room for their runs, and the runs of consecutive ranges of pairs, of which there is
    at least one.

    `room` are the bytes for all threads. A run takes its integrals twice at most, with the products of the solution.
    """
    each = 2 * 8 * nfit
    threads = max(1, min(threads, int(room / (each * COLUMNS))))
    pairs = ranges[-1][1]
    width = min(room / (each * threads), LARGEST / (8 * nfit), pairs / (SHARES * threads))
    runs: list[list[Columns]] = []
    for first, last in ranges:
        if runs and last - runs[-1][0][0] <= width:
            runs[-1].append((first, last))
        else:
            runs.append([(first, last)])
    return threads, runs
