"""Pair energies on the ranks of a job. The rows of B are spread over the ranks, or all ranks read them from one file.

    RowsOnRanks: `Rounds`; while blocks are computed, visiting sets of the next AHEAD rounds arrive
    RowsOnDisk: chunks of blocks divided among ranks, recorded by rank 0 after each chunk

One rank computes a pair, in blocks that do not depend on the number of ranks. The other ranks have zeros in its place,
so that the sum over ranks is exact.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trnqc.mp2.execution import Execution
from trnqc.mp2.factors.ranks import RowsOnRanks
from trnqc.mp2.pairs.accuracy import Exact, sector_energy
from trnqc.mp2.pairs.block_energies import block_energies
from trnqc.mp2.pairs.block_loop import in_turn
from trnqc.mp2.pairs.rounds import Rounds, RowSet
from trnqc.mp2.pairs.sectors import PairSector
from trnqc.mp2.partition.blocks import PairBlock
from trnqc.mp2.partition.distribution import AHEAD
from trnqc.mp2.store import JobStore
from trnqc.ranks import Pending, Ranks, dealt
from trnqc.types import PairEnergies

# Number of blocks that each rank computes between two records in a checkpoint. Ranks wait for one another at every
# record, and the work since the last record is lost if the job is interrupted.
BLOCKS_A_RECORD = 8


@dataclass(eq=False)
class _Sums:
    """Energies of the pairs that this rank has computed, [os or ss, m, n], and how they were computed."""

    sector: PairSector
    execution: Execution
    energies: np.ndarray
    ran_on: str = ""
    done: int = 0

    def add(self, block: PairBlock, rows: np.ndarray, columns: np.ndarray) -> None:
        energies = block_energies(block, rows, columns, self.sector, self.execution)
        self.energies[:, block.rows, block.columns] = energies.os, energies.ss
        self.ran_on, self.done = energies.ran_on, self.done + block.pairs


def pairs_on_ranks(
    sector: PairSector, execution: Execution, width_of: Callable[[], int], store: JobStore | None = None
) -> PairEnergies:
    """Compute the energies of all pairs on every rank, with digits that do not depend on the number of ranks.

    Parameters
    ----------
    sector
        The pairs, with factors in `RowsOnRanks` or `RowsOnDisk`. `Rounds` assigns the blocks of spread rows to ranks;
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
    ranks = execution.ranks
    ranks.at("pairs")
    sums = _Sums(sector, execution, np.zeros((2, *sector.shape)))
    if isinstance(sector.left.B, RowsOnRanks):
        rounds = Rounds(*(side.B.distribution for side in sector.sides))
        _with_visitors(rounds, sums)
        total, width = ranks.sum(sums.energies), rounds.left.width
    else:
        width = ranks.at_first(width_of)
        total = _from_disk(sector.blocks(width), sums, store)
    ran_on = ranks.at_first(lambda: sums.ran_on)
    return PairEnergies(total[0], total[1], f"{ran_on}, blocks of {width} orbitals on {ranks.size} ranks")


def exact_on_ranks(sectors: Sequence[PairSector], ranks: Ranks) -> Exact:
    """The function `exact` of `accuracy.estimate_error` for rows that ranks share. Ranks take turns with the pairs."""

    def exact(number: np.ndarray, i: np.ndarray, j: np.ndarray) -> np.ndarray:
        ranks.at("error estimate")
        energies = np.zeros((len(i), 2))
        for n, (k, *pair) in enumerate(zip(number.tolist(), i.tolist(), j.tolist())):
            sector, to = sectors[k], n % ranks.size
            rows = [_row(side.B, orbital, to, ranks) for side, orbital in zip((sector.left, sector.sides[-1]), pair)]
            if to == ranks.rank:
                energies[n] = sector_energy(sector, *pair, *rows)
        return ranks.sum(energies)

    return exact


def _row(B: Any, i: int, to: int, ranks: Ranks) -> np.ndarray | None:
    """Row i on rank `to`, None on the others."""
    if isinstance(B, RowsOnRanks):
        return B.fetched(i, to)
    return B[i] if to == ranks.rank else None


def _with_visitors(rounds: Rounds, sums: _Sums) -> None:
    """Compute this rank's blocks, round by round, with the sets of rows that visit it."""
    sides = [side.B for side in sums.sector.sides]
    mine = rounds.visits[sides[0].ranks.rank]
    total = sum(block.pairs for visit in mine for block in visit.blocks)
    ahead = deque(_messages(rounds, sides, round) for round in range(AHEAD))
    behind: deque[Pending] = deque()
    for round in range(rounds.count):
        ahead.append(_messages(rounds, sides, round + AHEAD))
        visitors, pending = ahead.popleft()
        pending.arrived()
        behind.append(pending)
        if len(behind) > AHEAD:
            behind.popleft().wait()
        for block in mine[round].blocks if round < len(mine) else ():
            left, right = (
                visitors[rows] if rows in visitors else sides[rows[0]].held[rows[1]] for rows in rounds.sets(block)
            )
            sums.add(block, left, right)
            sums.execution.report("pairs", sums.done, total)
    for pending in behind:
        pending.wait()


def _messages(rounds: Rounds, sides: list[RowsOnRanks], round: int) -> tuple[dict[RowSet, np.ndarray], Pending]:
    """Start the messages of a round. Returns the set that will arrive, and an object to wait for."""
    sent, received, visitors, ranks = [], [], {}, sides[0].ranks
    for sender, receiver, rows in rounds.messages(round):
        B, number = sides[rows[0]], rows[1]
        if sender == ranks.rank:
            sent.append((receiver, B.held[number]))
        if receiver == ranks.rank:
            visitors[rows] = np.empty((len(B.distribution.sets[number]), *B.shape[1:]))
            received.append((sender, visitors[rows]))
    return visitors, ranks.exchange(sent, received)


def _from_disk(blocks: tuple[PairBlock, ...], sums: _Sums, store: JobStore | None) -> np.ndarray:
    """[os or ss, m, n] of all pairs, including those that the store has recorded."""
    sector, execution, ranks = sums.sector, sums.execution, sums.execution.ranks
    total = np.zeros_like(sums.energies)
    remaining = {block.bounds: block for block in blocks}
    for bounds, os, ss, ran_on in ranks.at_first(lambda: [] if store is None else store.recorded(sector.record)):
        block = remaining.pop(tuple(bounds))
        total[:, block.rows, block.columns] = np.array(os), np.array(ss)
        sums.ran_on = ran_on
    waiting, everything = list(remaining.values()), sector.pairs
    step = BLOCKS_A_RECORD * ranks.size
    for start in range(0, len(waiting), step):
        chunk = waiting[start : start + step]
        sums.energies[...] = 0
        costs = [block.cost(sector.nvir, sector.naux) for block in chunk]
        mine = dealt(costs, ranks, execution.schedule, f"{sector.record} {start}")
        for block, rows, columns in in_turn(sector, (chunk[n] for n in mine)):
            sums.add(block, rows, columns)
        finished = ranks.sum(sums.energies)
        total += finished
        if store is not None:
            for block in chunk:
                os, ss = finished[:, block.rows, block.columns].tolist()
                store.add(sector.record, [list(block.bounds), os, ss, sums.ran_on])
        execution.report("pairs", everything - sum(block.pairs for block in waiting[start + step :]), everything)
    return total
