"""Sums over occupied-virtual pairs, G[P, Q] = sum_ia w[i, a] B[i, a, P] B[i, a, Q], of which ring diagrams are made."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from trnqc.errors import MemoryLimit
from trnqc.host.memory import gigabytes
from trnqc.host.rank_updates import add_gram_matrix
from trnqc.host.thread_pool import single_threaded_pool
from trnqc.mp2.execution import Execution
from trnqc.mp2.factors.factors import Factors

ROWS = 4096
"""Rows ia of B that one matrix product contracts, at least: enough for BLAS to reach its speed with any naux."""

Weight = Callable[[int, np.ndarray], np.ndarray]
"""weight(k, gaps): the non-negative w_k[i, a] for gaps eps_a - eps_i [block, nvir] in Hartree."""


def gram_matrices(
    channels: Sequence[Factors], weight: Weight, count: int, execution: Execution, stage: str
) -> Iterator[list[np.ndarray]]:
    """Yield the Gram matrices [naux, naux] of each spin, fp64, for the sets of weights k = 0 .. count - 1 in turn.

    As many sets as fit the memory are summed while B is read once, in blocks of rows ia, by a thread for each set. The
    product of a matrix with its own transpose computes one triangle only, so a set of weights costs nocc * nvir *
    naux^2 operations for each spin. Square roots of the weights (`Weight`) multiply both factors, and the factors of
    all spins have the same auxiliary functions. Only the lower triangles are filled. Raises MemoryLimit if the matrices
    of one set, B if it is in memory, and two blocks of B do not fit the memory of `execution`.
    """
    held = sum(factors.bytes_in_memory for factors in channels)
    at_once = _sets_at_once(channels, count, execution.memory - held, execution.threads)
    for first in range(0, count, at_once):
        sets = range(first, min(first + at_once, count))
        sums = [_sums(factors, weight, sets, execution.threads) for factors in channels]
        execution.report(stage, sets.stop, count)
        for of_spins in zip(*sums):
            yield list(of_spins)


def _sums(factors: Factors, weight: Weight, sets: range, threads: int) -> np.ndarray:
    nocc, _, naux = factors.shape
    width = _block(factors)
    gaps = factors.eps_vir - factors.eps_occ[:, None]
    sums = np.zeros((len(sets), naux, naux))
    with single_threaded_pool(min(threads, len(sets))) as pool:
        for i0 in range(0, nocc, width):
            rows = slice(i0, min(i0 + width, nocc))
            block = np.asarray(factors.B[rows]).reshape(-1, naux)

            def add(total: np.ndarray, k: int, rows: slice = rows, block: np.ndarray = block) -> None:
                add_gram_matrix(total, np.sqrt(weight(k, gaps[rows])).reshape(-1, 1) * block)

            list(pool.map(add, sums, sets))
    return sums


def _block(factors: Factors) -> int:
    """Occupied orbitals a block."""
    nocc, nvir, _ = factors.shape
    return min(nocc, -(-ROWS // nvir))


def _sets_at_once(channels: Sequence[Factors], count: int, memory: float, threads: int) -> int:
    matrix = 8 * channels[0].shape[2] ** 2 * len(channels)
    block = 8 * max(_block(factors) * factors.shape[1] * factors.shape[2] for factors in channels)
    needed = 2 * block + matrix
    if needed > memory:
        raise MemoryLimit(
            f"ring correlation needs {gigabytes(needed)} for matrices of {channels[0].shape[2]} auxiliary functions "
            f"and blocks of B; the limit leaves {gigabytes(max(memory, 0))}: raise max_memory or take a smaller "
            "auxiliary basis"
        )
    # A block that is read serves all threads, each of which holds its product with the weights of one set.
    whole = memory - (1 + threads) * block >= threads * matrix
    return int(min(count, (memory - (1 + threads) * block) / matrix if whole else (memory - block) / (matrix + block)))
