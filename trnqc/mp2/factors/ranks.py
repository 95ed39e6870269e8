"""Factors B[i, a, Q] whose rows are spread over the memory of several ranks.

    blocks of P divided among ranks: (ia|P) for all i -> rows sent to their ranks -> rows i: metric divided out

While B is computed, a rank holds the metric, its columns of B and its rows of B. Columns and rows together have twice
the size of B divided by the number of ranks.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor
from dataclasses import replace
from math import prod

import numpy as np

from trnqc.errors import MemoryLimit
from trnqc.fitted.ranks import fill_from_every_rank
from trnqc.host.memory import gigabytes
from trnqc.host.thread_pool import single_threaded_pool
from trnqc.mp2.execution import Execution
from trnqc.mp2.factors.factors import Factors
from trnqc.mp2.factors.metric import fit_all
from trnqc.mp2.factors.shell_blocks import HalfFitted, divided
from trnqc.mp2.partition.distribution import RowDistribution
from trnqc.mp2.reference.orbitals import ActiveOrbitals
from trnqc.ranks import Ranks, dealt


class RowsOnRanks:
    """B[nocc, nvir, naux] over the memory of several ranks; this rank holds sets of rows [rows, nvir, naux].

    `distribution.naux` includes linearly dependent functions, `naux` does not.
    """

    def __init__(self, distribution: RowDistribution, ranks: Ranks, held: dict[int, np.ndarray], naux: int) -> None:
        self.distribution, self.ranks, self.held = distribution, ranks, held
        self.shape = (distribution.nocc, distribution.nvir, naux)

    @property
    def nbytes(self) -> int:
        """Bytes of the rows of all ranks, each row counted once."""
        return 8 * prod(self.shape)

    def fetched(self, i: int, to: int) -> np.ndarray | None:
        """Send row i [nvir, naux] to rank `to`; returns None on the others. All ranks have to call this."""
        number, at = divmod(int(i), self.distribution.width)
        sender, me = self.distribution.sender(number, to), self.ranks.rank
        if to in self.distribution.holders(number):
            return self.held[number][at] if me == to else None
        row = np.empty(self.shape[1:]) if me == to else None
        sent = [(to, self.held[number][at])] if me == sender else []
        self.ranks.exchange(sent, [] if row is None else [(sender, row)]).wait()
        return row

    def gathered(self) -> np.ndarray:
        """Return all rows, [nocc, nvir, naux], on every rank. All ranks have to call this."""
        B, nothing = np.empty(self.shape), np.zeros(self.shape[1:])
        for i in range(self.shape[0]):
            number, at = divmod(i, self.distribution.width)
            mine = self.ranks.rank == min(self.distribution.holders(number))
            B[i] = self.ranks.sum(self.held[number][at] if mine else nothing)
        return B


def on_every_rank(factors: Sequence[Factors], execution: Execution) -> list[Factors]:
    """Factors whose rows this process can read without the other ranks.

    Rows that are spread over ranks are copied to the memory of all ranks; other rows remain where they are. Raises
    MemoryLimit if the copies do not fit.
    """
    spread = [f for f in factors if isinstance(f.B, RowsOnRanks)]
    needed = sum(f.B.nbytes for f in spread)
    if needed > execution.memory:
        raise MemoryLimit(
            f"densities on several ranks need all factors B, {gigabytes(needed)}, in the memory of each rank, and the "
            f"memory limit is {gigabytes(execution.memory)}: raise the limit, or set a checkpoint directory that all "
            "ranks see, where B is kept on disk"
        )
    return [replace(f, B=f.B.gathered(), where="in memory") if f in spread else f for f in factors]


def spread_factors(half: HalfFitted, orbitals: ActiveOrbitals, execution: Execution, spin: str = "") -> Factors:
    """Compute this rank's rows of the factors. All ranks call this with the same arguments.

    The blocks of `spin`, "alpha" or "beta" of an open shell, are counted apart from those of the other spin. Raises
    CommunicationError if another rank is lost.
    """
    ranks = execution.ranks
    distribution = RowDistribution(*half.shape, ranks.size)
    start = time.perf_counter()
    with single_threaded_pool(execution.threads) as pool:
        ranks.at("integrals")
        columns, spent = _columns(half, pool, execution, f"factors {spin}".rstrip())
        owners = _owners(len(half.columns), columns, ranks)
        middle = time.perf_counter()
        timings = divided(middle - start, spent)

        ranks.at("exchange of factors")
        rows = _exchanged(half, distribution, ranks, columns, owners)
        columns.clear()
        timings["exchange"] = time.perf_counter() - middle

        ranks.at("fitting")
        metric, of_fit = fit_all(half.auxmol, (row for held in rows.values() for row in held), pool, execution)
    timings |= of_fit
    if metric.naux < half.shape[2]:
        rows = {number: np.ascontiguousarray(held[:, :, : metric.naux]) for number, held in rows.items()}
    B = RowsOnRanks(distribution, ranks, rows, metric.naux)
    where = f"in memory, {gigabytes(B.nbytes)} spread over {ranks.size} ranks"
    return Factors(B, orbitals.eps_occ, orbitals.eps_vir, metric.note, half.ran_on, timings, where)


def _columns(
    half: HalfFitted, pool: Executor, execution: Execution, work_name: str
) -> tuple[dict[int, np.ndarray], np.ndarray]:
    """Compute (ia|P) of this rank's blocks of P, by number. Also returns seconds of integrals and transformation."""
    costs = [float(p1 - p0) for p0, p1 in half.columns]
    mine, lock = dealt(costs, execution.ranks, execution.schedule, work_name), threading.Lock()
    columns: dict[int, np.ndarray] = {}

    def work(_: int) -> np.ndarray:
        spent = np.zeros(2)
        for number in _shared(mine, lock):
            p0, p1 = half.columns[number]
            out = np.empty((*half.shape[:2], p1 - p0))
            spent += half.fill(number, out)
            columns[number] = out
        return spent

    parts = execution.finished(pool, work, range(execution.threads), "integrals")
    return columns, np.sum([spent for _, spent in parts], axis=0)


def _shared(items: Iterator[int], lock: threading.Lock) -> Iterator[int]:
    """The items of an iterator that several threads share."""
    while True:
        with lock:
            item = next(items, None)
        if item is None:
            return
        yield item


def _owners(count: int, columns: dict[int, np.ndarray], ranks: Ranks) -> list[int]:
    """The rank that has computed each block of P."""
    mine = np.zeros(count, np.int64)
    mine[list(columns)] = ranks.rank
    return ranks.sum(mine).tolist()


def _exchanged(
    half: HalfFitted, distribution: RowDistribution, ranks: Ranks, columns: dict[int, np.ndarray], owners: list[int]
) -> dict[int, np.ndarray]:
    """All columns of this rank's rows, by set."""
    rows = {n: np.empty((len(distribution.sets[n]), *half.shape[1:])) for n in distribution.holds(ranks.rank)}

    def places(source: int) -> list[np.ndarray]:
        """Where the arrays of a rank belong: its blocks of P of each set of rows."""
        numbers = [number for number, owner in enumerate(owners) if owner == source]
        return [rows[n][:, :, slice(*half.columns[number])] for number in numbers for n in rows]

    def leaving(to: int) -> list[np.ndarray]:
        sets = [distribution.sets[n] for n in distribution.holds(to)]
        return [columns[n][rows.start : rows.stop] for n in sorted(columns) for rows in sets]

    fill_from_every_rank(ranks, leaving, places)
    return rows
