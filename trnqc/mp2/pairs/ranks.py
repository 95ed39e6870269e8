"""Pair energies on the ranks of a job. The rows of B are spread over the ranks, or all ranks read them from one file.

    RowsOnRanks: rounds of `Distribution`; while blocks are computed, visiting sets of the next AHEAD rounds arrive
    RowsOnDisk: chunks of blocks divided among ranks, recorded by rank 0 after each chunk

One rank computes a pair, in blocks that do not depend on the number of ranks. The other ranks have zeros in its place,
so that the sum over ranks is exact.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

from trnqc.mp2.execution import Execution
from trnqc.mp2.factors.disk_arrays import RowsOnDisk
from trnqc.mp2.factors.factors import Factors
from trnqc.mp2.factors.ranks import RowsOnRanks
from trnqc.mp2.jobs.store import Store
from trnqc.mp2.pairs.accuracy import pair_energy
from trnqc.mp2.pairs.block_loop import in_turn
from trnqc.mp2.pairs.blocks import PairBlock, block_energies, pair_blocks
from trnqc.mp2.pairs.distribution import AHEAD
from trnqc.ranks import Pending, Ranks, dealt
from trnqc.types import PairEnergies

# Number of blocks that each rank computes between two records in a checkpoint. Ranks wait for one another at every
# record, and the work since the last record is lost if the job is interrupted.
BLOCKS_A_RECORD = 8


@dataclass(eq=False)
class _Sums:
    """Energies of the pairs that this rank has computed, [os or ss, nocc, nocc], and how they were computed."""

    factors: Factors
    execution: Execution
    energies: np.ndarray
    ran_on: str = ""
    done: int = 0

    def add(self, block: PairBlock, rows: np.ndarray, columns: np.ndarray) -> None:
        energies = block_energies(block, rows, columns, self.factors, self.execution)
        self.energies[:, block.rows, block.columns] = energies.os, energies.ss
        self.ran_on, self.done = energies.ran_on, self.done + block.pairs


def pairs_on_ranks(
    factors: Factors, execution: Execution, width_of: Callable[[], int], store: Store | None = None
) -> PairEnergies:
    """Compute the energies of all pairs on every rank, with digits that do not depend on the number of ranks.

    Parameters
    ----------
    factors
        Factors with B in `RowsOnRanks` or `RowsOnDisk`. `Distribution` assigns the blocks of spread rows to ranks;
        blocks of rows on disk are divided by the schedule of `execution`.
    execution
        Backend, precision, threads, ranks and schedule.
    width_of
        Returns the number of orbitals in a set of rows on disk; it is called on rank 0 only.
    store
        Records of finished blocks of rows on disk; only rank 0 passes it.

    Raises
    ------
    CommunicationError, StorageError
        If another rank is lost, or the disk fails.
    """
    ranks, nocc = execution.ranks, len(factors.eps_occ)
    ranks.at("pairs")
    sums = _Sums(factors, execution, np.zeros((2, nocc, nocc)))
    if isinstance(factors.B, RowsOnRanks):
        _with_visitors(factors.B, sums)
        total, width = ranks.sum(sums.energies), factors.B.distribution.width
    else:
        width = ranks.at_first(width_of)
        total = _from_disk(factors.B, pair_blocks(nocc, width), sums, store)
    ran_on = ranks.at_first(lambda: sums.ran_on)
    return PairEnergies(total[0], total[1], f"{ran_on}, blocks of {width} orbitals on {ranks.size} ranks")


def exact_on_ranks(factors: Factors, ranks: Ranks) -> Callable[[np.ndarray, np.ndarray], np.ndarray]:
    """The function `exact` of `accuracy.estimate_error` for rows that ranks share. Ranks take turns with the pairs."""

    def exact(i: np.ndarray, j: np.ndarray) -> np.ndarray:
        ranks.at("error estimate")
        B, energies = factors.B, np.zeros((len(i), 2))
        for n, pair in enumerate(zip(i.tolist(), j.tolist())):
            to = n % ranks.size
            if isinstance(B, RowsOnRanks):
                rows = {k: B.fetched(k, to) for k in sorted(set(pair))}
            else:
                rows = {k: B[k] for k in set(pair)} if to == ranks.rank else {}
            if to == ranks.rank:
                energies[n] = pair_energy(rows, factors.eps_occ, factors.eps_vir, *pair)
        return ranks.sum(energies)

    return exact


def _with_visitors(B: RowsOnRanks, sums: _Sums) -> None:
    """Compute this rank's blocks, round by round, with the sets of rows that visit it."""
    distribution, mine = B.distribution, B.distribution.visits[B.ranks.rank]
    total = sum(block.pairs for visit in mine for block in visit.blocks)
    ahead = deque(_messages(B, round) for round in range(AHEAD))
    behind: deque[Pending] = deque()
    for round in range(distribution.rounds):
        ahead.append(_messages(B, round + AHEAD))
        visitors, pending = ahead.popleft()
        pending.arrived()
        behind.append(pending)
        if len(behind) > AHEAD:
            behind.popleft().wait()
        for block in mine[round].blocks if round < len(mine) else ():
            left, right = (visitors[n] if n in visitors else B.held[n] for n in distribution.numbers(block))
            sums.add(block, left, right)
            sums.execution.report("pairs", sums.done, total)
    for pending in behind:
        pending.wait()


def _messages(B: RowsOnRanks, round: int) -> tuple[dict[int, np.ndarray], Pending]:
    """Start the messages of a round. Returns the set that will arrive, by number, and an object to wait for."""
    sent, received, visitors = [], [], {}
    for sender, receiver, number in B.distribution.messages(round):
        if sender == B.ranks.rank:
            sent.append((receiver, B.held[number]))
        if receiver == B.ranks.rank:
            visitors[number] = np.empty((len(B.distribution.sets[number]), *B.shape[1:]))
            received.append((sender, visitors[number]))
    return visitors, B.ranks.exchange(sent, received)


def _from_disk(B: RowsOnDisk, blocks: tuple[PairBlock, ...], sums: _Sums, store: Store | None) -> np.ndarray:
    """[os or ss, nocc, nocc] of all pairs, including those that the store has recorded."""
    execution, ranks = sums.execution, sums.execution.ranks
    total = np.zeros_like(sums.energies)
    remaining = {block.bounds: block for block in blocks}
    for bounds, os, ss, ran_on in ranks.at_first(lambda: [] if store is None else store.recorded("pairs")):
        block = remaining.pop(tuple(bounds))
        total[:, block.rows, block.columns] = np.array(os), np.array(ss)
        sums.ran_on = ran_on
    waiting, everything = list(remaining.values()), sum(block.pairs for block in blocks)
    step = BLOCKS_A_RECORD * ranks.size
    for start in range(0, len(waiting), step):
        chunk = waiting[start : start + step]
        sums.energies[...] = 0
        mine = dealt([b.cost(*B.shape[1:]) for b in chunk], ranks, execution.schedule, f"pairs {start}")
        for block, rows, columns in in_turn(B, (chunk[n] for n in mine)):
            sums.add(block, rows, columns)
        finished = ranks.sum(sums.energies)
        total += finished
        if store is not None:
            for block in chunk:
                os, ss = finished[:, block.rows, block.columns].tolist()
                store.add("pairs", [list(block.bounds), os, ss, sums.ran_on])
        execution.report("pairs", everything - sum(block.pairs for block in waiting[start + step :]), everything)
    return total
