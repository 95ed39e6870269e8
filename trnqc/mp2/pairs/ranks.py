"""Pairs on the ranks of a job: rows of other ranks come to visit, or all rows are read from one file.

    SpreadRows: rounds of spread.py, the next AHEAD visitors under way while blocks are computed
    Rows on disk: chunks of blocks dealt to ranks, recorded by rank 0 after each chunk

A pair is computed by one rank, in the blocks that any number of ranks has; the others hold zeros for it, so that the
sum over ranks is exact.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

import numpy as np

from trnqc.mp2.factors.disk_arrays import Rows
from trnqc.mp2.factors.ranks import SpreadRows
from trnqc.mp2.jobs.checkpoint import Store
from trnqc.mp2.jobs.choice import Choice
from trnqc.mp2.pairs.accuracy import pair_energy
from trnqc.mp2.pairs.blocks import PairBlock, block_energies, pair_blocks
from trnqc.mp2.pairs.distribution import AHEAD, set_width
from trnqc.mp2.pairs.loop import in_turn
from trnqc.ranks.groups import Pending, Ranks, dealt
from trnqc.types import PairEnergies

# Blocks that each rank computes between two records.
A_RECORD = 8

Progress = Callable[[int, int], None]


class _Sums:
    """os and ss of this rank's pairs, [nocc, nocc] each, and how they were made."""

    def __init__(self, nocc: int, of: Callable[[PairBlock, np.ndarray, np.ndarray], PairEnergies]) -> None:
        self.energies, self.ran_on, self._of, self.done = np.zeros((2, nocc, nocc)), "", of, 0

    def add(self, block: PairBlock, rows: np.ndarray, columns: np.ndarray) -> None:
        with np.errstate(all="ignore"):  # what is not finite is found and named by who asked for the energies
            found = self._of(block, rows, columns)
        self.energies[:, block.rows, block.columns] = found.os, found.ss
        self.ran_on, self.done = found.ran_on, self.done + block.pairs


def pairs_on_ranks(
    B: SpreadRows | Rows,
    eps_occ: np.ndarray,
    eps_vir: np.ndarray,
    choice: Choice,
    ranks: Ranks,
    *,
    fused: bool = True,
    threads: int | None = None,
    schedule: str = "dynamic",
    store: Store | None = None,
    width_of: Callable[[], int] | None = None,
    progress: Progress | None = None,
) -> PairEnergies:
    """Energies of all pairs, the same on every rank, with digits that do not depend on their number.

    schedule: of blocks whose rows are read from disk (trnqc.ranks.groups.dealt); visits are settled beforehand. store:
    that of rank 0, for finished blocks. width_of: orbitals a set of rows on disk, asked of rank 0. progress: of this
    rank's pairs. Raises CommunicationError, StorageError.
    """

    def energies_of(block: PairBlock, rows: np.ndarray, columns: np.ndarray) -> PairEnergies:
        return block_energies(block, rows, columns, eps_occ, eps_vir, choice, fused=fused, threads=threads)

    ranks.at("pairs")
    sums = _Sums(len(eps_occ), energies_of)
    if isinstance(B, SpreadRows):
        _visited(B, ranks, sums, progress)
        total, width = ranks.sum(sums.energies), B.spread.width
    else:
        width = ranks.at_first(width_of or (lambda: set_width(*B.shape)))
        total = _read(B, pair_blocks(len(B), width), ranks, sums, schedule, store, progress)
    ran_on = ranks.at_first(lambda: sums.ran_on)
    return PairEnergies(total[0], total[1], f"{ran_on}, blocks of {width} orbitals on {ranks.size} ranks")


def exact_on_ranks(
    B: SpreadRows | Rows, eps_occ: np.ndarray, eps_vir: np.ndarray, ranks: Ranks
) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """What `accuracy.estimate_error` takes for `exact`: pairs i, j in turn on one rank after the other."""

    def exact(i: np.ndarray, j: np.ndarray) -> np.ndarray:
        ranks.at("error estimate")
        found = np.zeros((len(i), 2))
        for n, pair in enumerate(zip(i.tolist(), j.tolist())):
            to = n % ranks.size
            if isinstance(B, SpreadRows):
                rows = {k: B.fetched(k, to) for k in sorted(set(pair))}
            else:
                rows = {k: B[k] for k in set(pair)} if to == ranks.rank else {}
            if to == ranks.rank:
                found[n] = pair_energy(rows, eps_occ, eps_vir, *pair)
        return ranks.sum(found)

    return exact


def _visited(B: SpreadRows, ranks: Ranks, sums: _Sums, progress: Progress | None) -> None:
    spread, mine = B.spread, B.spread.visits[ranks.rank]
    total = sum(block.pairs for visit in mine for block in visit.blocks)
    ahead = deque(_invited(B, ranks, round) for round in range(AHEAD))
    behind: deque[Pending] = deque()
    for round in range(spread.rounds):
        ahead.append(_invited(B, ranks, round + AHEAD))
        there, pending = ahead.popleft()
        pending.arrived()
        behind.append(pending)
        if len(behind) > AHEAD:
            behind.popleft().wait()
        for block in mine[round].blocks if round < len(mine) else ():
            left, right = (there[n] if n in there else B.held[n] for n in spread.numbers(block))
            sums.add(block, left, right)
            if progress is not None:
                progress(sums.done, total)
    for pending in behind:
        pending.wait()


def _invited(B: SpreadRows, ranks: Ranks, round: int) -> tuple[dict[int, np.ndarray], Pending]:
    """The messages of a round, started: the set that is to come here, by number, and what is waited for."""
    sent, received, there = [], [], {}
    for sender, receiver, number in B.spread.messages(round):
        if sender == ranks.rank:
            sent.append((receiver, B.held[number]))
        if receiver == ranks.rank:
            there[number] = np.empty((len(B.spread.sets[number]), *B.shape[1:]))
            received.append((sender, there[number]))
    return there, ranks.exchange(sent, received)


def _read(
    B: Rows,
    blocks: tuple[PairBlock, ...],
    ranks: Ranks,
    sums: _Sums,
    schedule: str,
    store: Store | None,
    progress: Progress | None,
) -> np.ndarray:
    """[2, nocc, nocc] of all pairs, those on record among them."""
    total = np.zeros_like(sums.energies)
    left = {(b.i0, b.i1, b.j0, b.j1): b for b in blocks}
    for bounds, os, ss, how in ranks.at_first(lambda: [] if store is None else store.found("pairs")):
        block = left.pop(tuple(bounds))
        total[:, block.rows, block.columns] = np.array(os), np.array(ss)
        sums.ran_on = how
    waiting, everything = list(left.values()), sum(block.pairs for block in blocks)
    step = A_RECORD * ranks.size
    for start in range(0, len(waiting), step):
        chunk = waiting[start : start + step]
        sums.energies[...] = 0
        mine = dealt([b.cost(*B.shape[1:]) for b in chunk], ranks, schedule, f"pairs {start}")
        for block, rows, columns in in_turn(B, (chunk[n] for n in mine)):
            sums.add(block, rows, columns)
        made = ranks.sum(sums.energies)
        total += made
        if store is not None:
            for block in chunk:
                os, ss = made[:, block.rows, block.columns].tolist()
                store.add("pairs", [[block.i0, block.i1, block.j0, block.j1], os, ss, sums.ran_on])
        if progress is not None:
            progress(everything - sum(block.pairs for block in waiting[start + step :]), everything)
    return total
