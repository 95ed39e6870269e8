"""Factors B[i, a, Q] whose rows are spread over ranks.

    blocks of P dealt to ranks: (ia|P) for all i -> each rank sends every other its rows -> rows i, metric divided out

A rank holds its columns and its rows at once, twice B over the number of ranks, and the metric.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np
from pyscf import gto, lib

from trnqc.eri.fitting.thread_pool import single_threaded_pool
from trnqc.errors import MemoryLimit
from trnqc.host.memory import gigabytes
from trnqc.mp2.factors.disk import Progress, finished
from trnqc.mp2.factors.disk_arrays import Rows
from trnqc.mp2.factors.factors import Factors, build_factors, plan_factors
from trnqc.mp2.factors.metric import factorise
from trnqc.mp2.factors.shell_blocks import HalfFitted
from trnqc.mp2.jobs.checkpoint import Store
from trnqc.mp2.jobs.choice import Choice
from trnqc.mp2.pairs.blocks import held_bytes
from trnqc.mp2.pairs.distribution import AHEAD, Spread, set_width
from trnqc.ranks.groups import Ranks, dealt


class SpreadRows:
    """B[nocc, nvir, naux], of which this rank has the sets `held` [rows, nvir, naux] by number.

    naux: no more than that of `spread`, less the linearly dependent. Another's row comes by `fetched`, which all ranks
    have to call.
    """

    def __init__(self, spread: Spread, ranks: Ranks, held: dict[int, np.ndarray], naux: int) -> None:
        self.spread, self.ranks, self.held = spread, ranks, held
        self.shape = (spread.nocc, spread.nvir, naux)

    @property
    def nbytes(self) -> int:
        """Of all ranks' rows, each counted once."""
        return 8 * prod(self.shape)

    def fetched(self, i: int, to: int) -> np.ndarray | None:
        """Row i [nvir, naux] on rank `to`, None on the others."""
        number, at = divmod(int(i), self.spread.width)
        owner, me = self.spread.sender(number, to), self.ranks.rank
        if to in self.spread.holders(number):
            return self.held[number][at] if me == to else None
        row = np.empty(self.shape[1:]) if me == to else None
        sent = [(to, self.held[number][at])] if me == owner else []
        self.ranks.exchange(sent, [] if row is None else [(owner, row)]).wait()
        return row


def spread_bytes(nao: int, shape: tuple[int, int, int], ranks: int, threads: int, width: int, pairs: int = 0) -> int:
    """The most that one rank holds: columns, rows, those under way, metric, buffers; then rows, visiting sets, `pairs`.

    width: functions of a block of P; pairs: bytes that the backend allocates for a block of pairs.
    """
    nocc, nvir, naux = shape
    spread = Spread(*shape, ranks)
    share = -(-8 * nocc * nvir * naux // spread.shards)
    buffers = 8 * threads * (nao**2 + width * (nao * (nao + 1) // 2 + nocc * nao + nvir))
    factors = 2 * share + 2 * share // ranks + 3 * 8 * naux**2 + buffers
    return max(factors, share + (AHEAD + 1) * 8 * spread.width * nvir * naux + pairs)


def check_spread(
    nao: int, shape: tuple[int, int, int], ranks: int, threads: int, width: int, limit: float | None, pairs: int = 0
) -> None:
    """MemoryLimit if one rank's part of B[nocc, nvir, naux] and of its pairs does not fit `limit` bytes."""
    needed = spread_bytes(nao, shape, ranks, threads, width, pairs)
    if limit is not None and needed > limit:
        raise MemoryLimit(
            f"factors B{list(shape)} spread over {ranks} ranks need {gigabytes(needed)} on each, the memory limit of a "
            f"rank is {gigabytes(limit)}: raise the limit, take more ranks, or name a checkpoint directory that all "
            "ranks see, where B then is"
        )


def factors_on_ranks(
    mol: gto.Mole,
    auxmol: gto.Mole,
    c_occ: np.ndarray,
    c_vir: np.ndarray,
    eps_occ: np.ndarray,
    eps_vir: np.ndarray,
    ranks: Ranks,
    *,
    schedule: str = "dynamic",
    max_bytes: float | None = None,
    threads: int | None = None,
    progress: Progress | None = None,
    store: Store | None = None,
    pairs: int = 0,
) -> Factors:
    """As `build_factors`, which all ranks call: B spread over them, or, with a store, on the disk that all see.

    store: rank 0's, which then makes B; the others give None. max_bytes: of one rank. pairs: bytes of a block of pairs.
    Raises MemoryLimit, StorageError, CommunicationError.
    """
    threads = threads or lib.num_threads()
    if ranks.at_first(lambda: store is not None):
        made: list[Factors] = []

        def on_disk() -> tuple[Factors, Path, dict[int, int]]:
            made.append(
                build_factors(
                    mol, auxmol, c_occ, c_vir, eps_occ, eps_vir, max_bytes=max_bytes, threads=threads,
                    progress=progress, store=store, pairs=pairs,
                )
            )  # fmt: skip
            B = made[0].B
            assert isinstance(B, Rows)
            return replace(made[0], B=np.empty((0, *B.shape))), B.path.resolve(), B.sums

        ranks.at("factors, which rank 0 makes on disk")
        factors, path, sums = ranks.at_first(on_disk)
        if made:
            return made[0]
        rows = Rows(path, "B", factors.B.shape[1:])
        rows.sums.update(sums)
        return replace(factors, B=rows)
    nocc, nvir, nao = c_occ.shape[1], c_vir.shape[1], len(c_occ)
    width = plan_factors(auxmol, nao, nocc, nvir, None, threads).width
    check_spread(nao, (nocc, nvir, auxmol.nao_nr()), ranks.size, threads, width, max_bytes, pairs)
    half = HalfFitted(mol, auxmol, c_occ, c_vir, width)
    held, note, timings = spread_factors(half, ranks, threads, schedule, progress)
    where = f"in memory, {gigabytes(held.nbytes)} spread over {ranks.size} ranks"
    return Factors(held, np.array(eps_occ), np.array(eps_vir), note, half.made_by, timings, where)


def visited_bytes(shape: tuple[int, int, int], choice: Choice, fused: bool, threads: int | None) -> int:
    """Bytes that the backend allocates for a block of pairs of B[nocc, nvir, naux]."""
    return held_bytes(set_width(*shape), *shape[1:], choice, fused, threads, B=0)


def spread_factors(
    half: HalfFitted, ranks: Ranks, threads: int, schedule: str, progress: Progress | None
) -> tuple[SpreadRows, str, dict[str, float]]:
    """This rank's rows, the metric in words, wall seconds by stage; all ranks call this with the same arguments.

    Raises CommunicationError.
    """
    spread = Spread(*half.shape, ranks.size)
    timings: dict[str, float] = {}
    start = time.perf_counter()
    with single_threaded_pool(threads) as pool:
        ranks.at("integrals")
        made, spent = _columns(half, ranks, pool, threads, schedule, progress)
        owners = _owners(len(half.columns), made, ranks)
        middle = time.perf_counter()
        timings |= dict(zip(("integrals", "transformation"), ((middle - start) * spent / (spent.sum() or 1)).tolist()))

        ranks.at("exchange of factors")
        rows = _exchanged(half, spread, ranks, made, owners)
        made.clear()
        after = time.perf_counter()
        timings["exchange"] = after - middle

        ranks.at("fitting")
        metric = factorise(half.auxmol.intor("int2c2e", hermi=1))
        timings["metric"] = time.perf_counter() - after
        after = time.perf_counter()
        for _ in finished(pool, metric.fit, [row for held in rows.values() for row in held], "fitting", progress):
            pass
        if metric.naux < half.shape[2]:
            rows = {number: np.ascontiguousarray(held[:, :, : metric.naux]) for number, held in rows.items()}
        timings["fitting"] = time.perf_counter() - after
    return SpreadRows(spread, ranks, rows, metric.naux), metric.note, timings


def _columns(
    half: HalfFitted, ranks: Ranks, pool: Any, threads: int, schedule: str, progress: Progress | None
) -> tuple[dict[int, np.ndarray], np.ndarray]:
    """(ia|P) of this rank's blocks of P by number, and seconds of integrals and of transformation."""
    costs = [float(p1 - p0) for p0, p1 in half.columns]
    mine, lock = dealt(costs, ranks, schedule, "factors"), threading.Lock()
    made: dict[int, np.ndarray] = {}

    def work(_: int) -> np.ndarray:
        spent = np.zeros(2)
        for number in _shared(mine, lock):
            p0, p1 = half.columns[number]
            out = np.empty((*half.shape[:2], p1 - p0))
            spent += half.fill(number, out)
            made[number] = out
        return spent

    parts = finished(pool, work, range(threads), "integrals", progress)
    return made, np.sum([spent for _, spent in parts], axis=0)


def _shared(items: Iterator[int], lock: threading.Lock) -> Iterator[int]:
    """One iterator taken from by several threads."""
    while True:
        with lock:
            item = next(items, None)
        if item is None:
            return
        yield item


def _owners(count: int, made: dict[int, np.ndarray], ranks: Ranks) -> list[int]:
    mine = np.zeros(count, np.int64)
    mine[list(made)] = ranks.rank
    return ranks.sum(mine).tolist()  # type: ignore[no-any-return]


def _exchanged(
    half: HalfFitted, spread: Spread, ranks: Ranks, made: dict[int, np.ndarray], owners: list[int]
) -> dict[int, np.ndarray]:
    """All columns of this rank's rows, by set; in every step each rank sends to one and receives from one."""
    me, size = ranks.rank, ranks.size
    rows = {n: np.empty((len(spread.sets[n]), *half.shape[1:])) for n in spread.holds(me)}
    for step in range(size):
        to, source = (me + step) % size, (me - step) % size
        theirs = [(number, n) for number in sorted(n for n, o in enumerate(owners) if o == source) for n in rows]
        arriving = {key: np.empty(_part(half, spread, *key)) for key in theirs}
        leaving = {
            (number, n): np.ascontiguousarray(made[number][spread.sets[n].start : spread.sets[n].stop])
            for number in sorted(made)
            for n in spread.holds(to)
        }
        if step:
            ranks.exchange([(to, a) for a in leaving.values()], [(source, a) for a in arriving.values()]).wait()
        for (number, n), part in (arriving if step else leaving).items():
            p0, p1 = half.columns[number]
            rows[n][:, :, p0:p1] = part
    return rows


def _part(half: HalfFitted, spread: Spread, number: int, n: int) -> tuple[int, int, int]:
    p0, p1 = half.columns[number]
    return len(spread.sets[n]), half.shape[1], p1 - p0
