"""The launches of one pass over the integrals on a GPU, and the sizes of their buffers, from the tasks of a molecule.

tasks -> blocks of bra and ket pairs -> two or three launches each, with all arguments but densities and buffers

They depend on the molecule and on the number of densities alone, so that passes of an SCF share them.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import numpy as np

from trnqc.eri.cuda import blocks
from trnqc.eri.cuda.batch import OWN
from trnqc.eri.cuda.screen import queue_size
from trnqc.eri.cuda.slots import Wants, divided, slots_of
from trnqc.eri.cuda.targets import BUFFERS
from trnqc.eri.cuda.tiers import Tier
from trnqc.eri.cuda.tile import share_slots
from trnqc.eri.jk.batch import Batch
from trnqc.eri.jk.tasks import QuartetTask
from trnqc.eri.kernels import boys
from trnqc.eri.kernels.parameters import target_count, work_size
from trnqc.jit.device import BuiltKernel, DeviceArray

# Bytes of a stream for targets between two programs, at most: blocks whose targets need more are cut. Those of one
# vector for each group that an H100 runs at once take 0.10 GB for (21|21) and 0.26 GB for (22|22).
TARGET_BYTES = 1 << 29


@dataclass(frozen=True, eq=False)
class DriverPrograms:
    """The programs of a driver on a device: the tier of the integrals, and what is launched.

    targets: the program between the other two, in a tier that is split.
    """

    tier: Tier
    screen: BuiltKernel
    work: BuiltKernel
    targets: BuiltKernel | None = None

    def workers(self, kind: blocks.Kind) -> tuple[int, int]:
        """Return the most groups of `work` and of `targets`, 0 without these."""
        share = kind.multiprocessors
        targets = max(1, share * self.targets.blocks // kind.divisor) if self.targets else 0
        return max(1, share * self.work.blocks // kind.divisor), targets


Kernels = Mapping[Batch, DriverPrograms]


@dataclass(frozen=True, eq=False)
class BlockLaunch:
    """The launches of a block: groups of each program, and arguments without densities and buffers.

    target_workers: groups of the program of targets; 0 without one.
    """

    programs: DriverPrograms
    rows: int
    workers: int
    target_workers: int
    arguments: dict[str, Any]

    @property
    def steps(self) -> list[tuple[BuiltKernel, int]]:
        """The programs in order, with their groups."""
        programs = self.programs
        targets = [(programs.targets, self.target_workers)] if programs.targets else []
        return [(programs.screen, self.rows), *targets, (programs.work, self.workers)]


@dataclass(frozen=True, eq=False)
class LaunchPlan:
    """All launches in order, the elements of each buffer of a stream, and the most workers of a launch."""

    launches: tuple[BlockLaunch, ...]
    elements: dict[str, int]
    workers: int


def plan(
    tasks: Sequence[QuartetTask], kernels: Kernels, kind: blocks.Kind, resident: Callable[[np.ndarray], DeviceArray]
) -> LaunchPlan:
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
    most = dict.fromkeys((*OWN, "counts", "queue", "weight", "targets"), 1)
    launches: list[BlockLaunch] = []
    widest = 1
    for number, task in enumerate(tasks):
        programs = kernels[Batch(task.cls, kind.with_j, kind.with_k)]
        lanes, workers, sizes = programs.work.lanes, programs.workers(kind), _sizes(task, kind.count)
        widest = max(widest, *workers)
        fixed = _tables(task, lanes, resident) | {OWN[name]: size for name, size in sizes.items()}
        groups = {name: max(workers) if name in BUFFERS else workers[0] for name in sizes}
        needs = [{name: size * groups[name] * lanes for name, size in sizes.items()}]
        vector = target_count(task.cls) * lanes if programs.targets else 0
        room = max(1, TARGET_BYTES // kind.divisor // (8 * vector)) if vector else None
        for block in blocks.blocks_of(task, kind, lanes, workers[0], room):
            launch, need = _launch(number, block, programs, workers, kind, fixed)
            needs.append(need | {"targets": need["vectors"] * vector})
            tile = _tile(task, block, programs.tier.tile, launch, kind, resident)
            launches += [replace(launch, arguments=launch.arguments | tile)] if launch.rows else []
        most = {name: max(size, *(need.get(name, 0) for need in needs)) for name, size in most.items()}
    return LaunchPlan(tuple(launches), most, widest)


def _launch(
    task: int,
    block: blocks.QuartetBlock,
    programs: DriverPrograms,
    workers: tuple[int, int],
    kind: blocks.Kind,
    fixed: dict[str, Any],
) -> tuple[BlockLaunch, dict[str, int]]:
    """Return the launches of a block, and the elements of queues and the vectors on the device with the most rows."""
    # Bra pair n belongs to device n modulo their number, whatever the blocks of another device.
    first = block.begin + (kind.number - block.begin) % kind.devices
    rows = max(0, -(-(block.end - first) // kind.devices)) * block.parts
    step = queue_size(block.ket_part, programs.screen.lanes)
    numbers = {"task": task, "first_pair": first, "step": kind.devices, "parts": block.parts, "queue_step": step}
    numbers |= {"ket_begin": block.ket_begin, "ket_end": block.ket_end, "ket_part": block.ket_part}
    vectors = -(-block.ket_part // programs.work.lanes)
    own, target_workers = min(rows, workers[0]), min(rows * vectors, workers[1])
    numbers |= {"rows": rows, "n_workers": own, "target_workers": target_workers, "row_vectors": vectors}
    launch = BlockLaunch(programs, rows, own, target_workers, fixed | numbers)
    most = -(-(block.end - block.begin) // kind.devices) * block.parts
    return launch, {"counts": most, "queue": most * step, "weight": most * step, "vectors": most * vectors}


def _tile(
    task: QuartetTask,
    block: blocks.QuartetBlock,
    tile: int,
    launch: BlockLaunch,
    kind: blocks.Kind,
    resident: Callable[[np.ndarray], DeviceArray],
) -> dict[str, Any]:
    """Return the arguments of a launch that say what has a place in a tile of so many elements."""
    if not tile:
        return {}
    slots = slots_of(task.ket, blocks.KETS, share_slots(task.cls))
    wants = Wants.of(task, kind.count, kind.with_j, kind.with_k)
    pairs, again = block.ket_end - block.ket_begin, launch.rows > launch.workers
    places = divided(tile, wants, task.cls, slots, block.ket_begin // blocks.KETS, pairs, again)
    return places | {"ket_slots": resident(slots.of_pairs), "slot_shells": resident(slots.shells)}


def _sizes(task: QuartetTask, count: int) -> dict[str, int]:
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


def _tables(task: QuartetTask, lanes: int, resident: Callable[[np.ndarray], DeviceArray]) -> dict[str, Any]:
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
