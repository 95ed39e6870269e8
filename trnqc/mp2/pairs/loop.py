"""All pairs block by block: rows read ahead while a block is computed, finished blocks recorded.

pair_blocks ─ less those recorded ─► sets of rows (two at work, one being read) ─► block_energies ─► os, ss
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np

from trnqc.mp2.jobs.checkpoint import Store
from trnqc.mp2.jobs.choice import Choice
from trnqc.mp2.pairs.blocks import SETS, PairBlock, block_energies, pair_blocks
from trnqc.types import PairEnergies


def pairs_by_blocks(
    B: Any,
    eps_occ: np.ndarray,
    eps_vir: np.ndarray,
    choice: Choice,
    width: int,
    *,
    fused: bool = True,
    threads: int | None = None,
    store: Store | None = None,
    progress: Callable[[int, int], None] | None = None,
) -> PairEnergies:
    """Energies of all pairs of B[nocc, nvir, naux], of which SETS times `width` rows are held at a time.

    store: where energies of finished blocks are found and put. The digits depend neither on it nor on when a run was
    cut off. Raises StorageError.
    """
    nocc = len(eps_occ)
    energies = PairEnergies(np.zeros((nocc, nocc)), np.zeros((nocc, nocc)), "")
    blocks = {(b.i0, b.i1, b.j0, b.j1): b for b in pair_blocks(nocc, width)}
    ran_on = ""
    for bounds, os, ss, how in [] if store is None else store.found("pairs"):
        _enter(energies, blocks.pop(tuple(bounds)), np.array(os), np.array(ss))
        ran_on = how
    total = nocc * (nocc + 1) // 2
    done = total - sum(block.pairs for block in blocks.values())
    for block, rows, columns in in_turn(B, list(blocks.values())):
        with np.errstate(all="ignore"):  # what is not finite is found and named by who asked for the energies
            found = block_energies(block, rows, columns, eps_occ, eps_vir, choice, fused=fused, threads=threads)
        _enter(energies, block, found.os, found.ss)
        ran_on = f"{found.ran_on}, blocks of {width} orbitals"
        if store is not None:
            bounds = [block.i0, block.i1, block.j0, block.j1]
            store.add("pairs", [bounds, found.os.tolist(), found.ss.tolist(), ran_on])
        done += block.pairs
        if progress is not None:
            progress(done, total)
    return PairEnergies(energies.os, energies.ss, ran_on)


def _enter(energies: PairEnergies, block: PairBlock, os: np.ndarray, ss: np.ndarray) -> None:
    energies.os[block.rows, block.columns] = os
    energies.ss[block.rows, block.columns] = ss


def in_turn(B: Any, blocks: Iterable[PairBlock]) -> Iterator[tuple[PairBlock, np.ndarray, np.ndarray]]:
    """Each block with its rows and columns, while those of the next are being read."""

    def read(rows: slice) -> np.ndarray:
        return np.ascontiguousarray(B[rows], dtype=np.float64)

    held: dict[int, Future[np.ndarray]] = {}
    with ThreadPoolExecutor(1, thread_name_prefix="trnqc-rows") as reader:
        for block, following in _with_next(blocks):
            needed, next_ = _sets(block), _sets(following)
            held = {first: rows for first, rows in held.items() if first in needed or first in next_}
            for first in needed - held.keys():
                held[first] = reader.submit(read, _slice(block, first))
            for first in next_ - held.keys():
                if following is not None and len(held) < SETS:
                    held[first] = reader.submit(read, _slice(following, first))
            yield block, held[block.i0].result(), held[block.j0].result()


def _with_next(blocks: Iterable[PairBlock]) -> Iterator[tuple[PairBlock, PairBlock | None]]:
    found = iter(blocks)
    block = next(found, None)
    while block is not None:
        following = next(found, None)
        yield block, following
        block = following


def _sets(block: PairBlock | None) -> set[int]:
    return set() if block is None else {block.i0, block.j0}


def _slice(block: PairBlock, first: int) -> slice:
    return block.rows if block.i0 == first else block.columns
