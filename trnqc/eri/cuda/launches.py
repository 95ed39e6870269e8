"""The launches of one pass over the integrals on a GPU, and the sizes of their buffers, from the tasks of a molecule.

tasks -> blocks of bra and ket pairs -> two launches each, with all arguments but densities and buffers

They depend on the molecule and on the number of densities alone, so that passes of an SCF share them.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from trnqc.eri.cuda.batch import OWN
from trnqc.eri.cuda.screen import queue_size
from trnqc.eri.cuda.slots import Wants, divided, slots_of
from trnqc.eri.cuda.tiers import Tier
from trnqc.eri.cuda.tile import share_slots
from trnqc.eri.jk.batch import SCHWARZ, Batch
from trnqc.eri.jk.tasks import Task
from trnqc.eri.kernels import boys
from trnqc.eri.kernels.parameters import work_size
from trnqc.jit.device import Built, DeviceArray

# Rows of a launch, and ket pairs of a row, at most. A stream has queues for so many quartets, 16 bytes each.
ROWS, KETS = 2048, 2048
# Rows of a launch for each worker, where bra pairs alone would not keep the workers busy.
ITEMS = 4
# The fewest vectors of ket pairs of a row: its last vector has lanes without a quartet.
FEWEST = 8


@dataclass(frozen=True, eq=False)
class Programs:
    """The programs of a driver on a device: the tier of the integrals, and what is launched."""

    tier: Tier
    screen: Built
    work: Built


Kernels = Mapping[Batch, Programs]


@dataclass(frozen=True)
class Kind:
    """What the launches of a pass depend on besides the tasks.

    Parameters
    ----------
    number, devices
        The number of this device, and of all that share the tasks. They take bra pairs in turn.
    multiprocessors
        Those of this device.
    divisor
        By what the workers are divided, where their buffers do not fit.
    count
        The number of densities.
    with_j, with_k
        Whether J and K are wanted.
    cutoff
        The threshold of integrals.
    """

    number: int
    devices: int
    multiprocessors: int
    divisor: int
    count: int
    with_j: bool
    with_k: bool
    cutoff: float


@dataclass(frozen=True, eq=False)
class Launch:
    """The two launches of a block: groups of each program, and arguments without densities and buffers."""

    programs: Programs
    rows: int
    workers: int
    arguments: dict[str, Any]


@dataclass(frozen=True, eq=False)
class Plan:
    """All launches in order, the elements of each buffer of a stream, and the most workers of a launch."""

    launches: tuple[Launch, ...]
    elements: dict[str, int]
    workers: int


@dataclass(frozen=True)
class Block:
    """Bra pairs begin .. end of a task, with ket pairs ket_begin .. ket_end in `parts` rows for each bra pair."""

    begin: int
    end: int
    ket_begin: int
    ket_end: int
    parts: int

    @property
    def ket_part(self) -> int:
        """Ket pairs of a row."""
        return -(-(self.ket_end - self.ket_begin) // self.parts)


def blocks(task: Task, cutoff: float, lanes: int, workers: int, rows: int) -> Iterator[Block]:
    """Yield blocks of a task's pairs which contain all quartets that can matter, whatever the density.

    Both tables have falling Schwarz bounds, so that the bra pairs that can matter to a range of ket pairs are those
    before some pair. A block has at most `rows` rows.
    """
    bra, ket, same = task.bra.measures[:, SCHWARZ], task.ket.measures[:, SCHWARZ], task.bra is task.ket
    for start in range(0, len(ket), KETS):
        begin = max(task.begin, start) if same else task.begin
        end = min(task.end, int(np.searchsorted(-bra * ket[start], -cutoff, side="right")))
        stop = min(start + KETS, len(ket))
        if end > begin:
            vectors = -(-(stop - start) // lanes)
            parts = max(1, min(-(-ITEMS * workers // (end - begin)), vectors // FEWEST))
            step = max(1, rows // parts)
            yield from (Block(n, min(n + step, end), start, stop, min(parts, rows)) for n in range(begin, end, step))


def plan(tasks: Sequence[Task], kernels: Kernels, kind: Kind, resident: Callable[[np.ndarray], DeviceArray]) -> Plan:
    """Return the launches of the tasks of all devices on one of them.

    Parameters
    ----------
    tasks
        The tasks, which are numbered in this order.
    kernels
        The programs of each driver on this device.
    kind
        What else they depend on.
    resident
        Returns an array of pairs in the memory of the device.
    """
    most = dict.fromkeys((*OWN, "counts", "queue", "weight"), 1)
    launches: list[Launch] = []
    widest = 1
    for number, task in enumerate(tasks):
        programs = kernels[Batch(task.cls, kind.with_j, kind.with_k)]
        workers = max(1, kind.multiprocessors * programs.work.blocks // kind.divisor)
        widest, sizes = max(widest, workers), _sizes(task, kind.count)
        fixed = _tables(task, programs.work.lanes, resident) | {OWN[name]: size for name, size in sizes.items()}
        needs = [{name: size * workers * programs.work.lanes for name, size in sizes.items()}]
        rows = max(1, ROWS // kind.divisor) * kind.devices
        for block in blocks(task, kind.cutoff, programs.work.lanes, workers * kind.devices, rows):
            launch, need = _launch(number, block, programs, workers, kind, fixed)
            needs.append(need)
            tile = _tile(task, block, programs.tier.tile, launch, kind, resident)
            launches += [replace(launch, arguments=launch.arguments | tile)] if launch.rows else []
        most = {name: max(size, *(need.get(name, 0) for need in needs)) for name, size in most.items()}
    return Plan(tuple(launches), most, widest)


def _launch(
    task: int, block: Block, programs: Programs, workers: int, kind: Kind, fixed: dict[str, Any]
) -> tuple[Launch, dict[str, int]]:
    """Return the launches of a block, and the elements of their queues on the device with the most rows."""
    # Bra pair n belongs to device n modulo their number, whatever the blocks of another device.
    first = block.begin + (kind.number - block.begin) % kind.devices
    rows = max(0, -(-(block.end - first) // kind.devices)) * block.parts
    step = queue_size(block.ket_part, programs.screen.lanes)
    numbers = {"task": task, "first_pair": first, "step": kind.devices, "parts": block.parts, "queue_step": step}
    numbers |= {"ket_begin": block.ket_begin, "ket_end": block.ket_end, "ket_part": block.ket_part}
    workers = min(rows, workers)
    launch = Launch(programs, rows, workers, fixed | numbers | {"rows": rows, "n_workers": workers})
    most = -(-(block.end - block.begin) // kind.devices) * block.parts
    return launch, {"counts": most, "queue": most * step, "weight": most * step}


def _tile(
    task: Task, block: Block, tile: int, launch: Launch, kind: Kind, resident: Callable[[np.ndarray], DeviceArray]
) -> dict[str, Any]:
    """Return the arguments of a launch that say what has a place in a tile of so many elements."""
    if not tile:
        return {}
    slots = slots_of(task.ket, KETS, share_slots(task.cls))
    wants = Wants.of(task, kind.count, kind.with_j, kind.with_k)
    pairs, again = block.ket_end - block.ket_begin, launch.rows > launch.workers
    places = divided(tile, wants, task.cls, slots, block.ket_begin // KETS, pairs, again)
    return places | {"ket_slots": resident(slots.of_pairs), "slot_shells": resident(slots.shells)}


def _sizes(task: Task, count: int) -> dict[str, int]:
    """Return the elements of each buffer for one lane of a worker."""
    bra, ket, cls = task.bra, task.ket, task.cls
    n_ab, n_cd = bra.pairs.contractions, ket.pairs.contractions
    a, b, c, d = cls.extents
    _, rows, wide = ket.records_for(cls).shape
    return {
        "lanes_ket": rows * wide,
        "lanes_centre": 6,
        "work": work_size(cls, n_ab, n_cd),
        "out": n_ab * n_cd * a * b * c * d,
        "j_ab": count * n_ab * a * b,
    }


def _tables(task: Task, lanes: int, resident: Callable[[np.ndarray], DeviceArray]) -> dict[str, Any]:
    """Return the arrays of a task's pairs, in the memory of the device."""
    bra, ket = task.bra, task.ket
    arrays = {
        "bra": bra.records_for(task.cls),
        "bra_places": bra.places,
        "bra_measures": bra.measures,
        "ket": ket.records_for(task.cls),
        "ket_places": ket.places,
        "ket_measures": ket.measures,
        "ket_bounds": ket.bounds,
        "boys": boys.table(task.cls.order),
        "lane": _lane_numbers(lanes),
    }
    return {name: resident(array) for name, array in arrays.items()}


@cache
def _lane_numbers(lanes: int) -> np.ndarray:
    """Return 0, 1, ...: always the same array, so that it is uploaded once."""
    return np.arange(lanes)
