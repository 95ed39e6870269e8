"""One pass over the integrals on GPUs: the arrays of a device, and the launches of its tasks.

The pairs of a molecule stay in the memory of a device. A pass copies densities and the numbers of all tasks there. The
host then launches two programs for each block of bra and ket pairs (batch.py), on the streams of the device in turn,
and waits for all of them at the end. Launches of one stream share its buffers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from trnqc.eri.cuda.batch import OWN
from trnqc.eri.cuda.screen import queue_size
from trnqc.eri.cuda.tiers import Tier
from trnqc.eri.jk.batch import REALS, SCHWARZ, Batch
from trnqc.eri.jk.run import Run
from trnqc.eri.jk.tasks import Task
from trnqc.eri.kernels import boys
from trnqc.eri.kernels.parameters import work_size
from trnqc.errors import MemoryLimit
from trnqc.jit.device import Built, Device, DeviceArray

CUTOFF = REALS.index("cutoff")
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


class ResidentArrays:
    """Arrays of the pairs in the memory of a device, for as long as the builder lives."""

    def __init__(self, device: Device) -> None:
        self.device = device
        # The array is kept too, so that its id stays its own.
        self._uploaded: dict[int, tuple[np.ndarray, DeviceArray]] = {}
        self._elements: dict[Any, dict[str, int]] = {}

    def __call__(self, array: np.ndarray) -> DeviceArray:
        if id(array) not in self._uploaded:
            self._uploaded[id(array)] = array, self.device.upload(array)
        return self._uploaded[id(array)][1]

    def elements(self, key: Any, count: Callable[[], dict[str, int]]) -> dict[str, int]:
        """Return the elements of each buffer of a stream, counted once for each key, as all pairs count."""
        if key not in self._elements:
            self._elements[key] = count()
        return self._elements[key]

    @property
    def nbytes(self) -> int:
        """Bytes of all arrays."""
        return sum(memory.nbytes for _, memory in self._uploaded.values())


class DeviceRun:
    """The share of one device in one pass.

    Parameters
    ----------
    resident
        The arrays of the pairs on this device.
    kernels
        The programs of each driver on this device.
    run
        The pass.
    tasks
        The tasks of all devices.
    number, devices
        The number of this device, and of all that share the tasks. They take bra pairs in turn.
    note
        Called with what did not go as planned, in words.

    Raises
    ------
    MemoryLimit
        If there is no memory for the buffers of one worker.
    """

    def __init__(
        self,
        resident: ResidentArrays,
        kernels: Kernels,
        run: Run,
        tasks: Sequence[Task],
        number: int,
        devices: int,
        note: Callable[[str], None],
    ) -> None:
        self.resident, self.kernels, self.run, self.tasks, self.note = resident, kernels, run, tasks, note
        self.number, self.devices, self.device = number, devices, resident.device
        # Memory is copied on stream 0, which must not wait for kernels.
        self.streams = list(range(1, self.device.streams)) or [0]
        self._pass: dict[str, DeviceArray] = {}
        self._buffers: dict[int, dict[str, DeviceArray]] = {}
        try:
            self._tables = [self._arrays(task) for task in tasks]
            self._allocate()
        except BaseException:
            self.release()
            raise

    def launch(self) -> None:
        """Queue all tasks, without waiting for any."""
        launches = 0
        for n, task in enumerate(self.tasks):
            programs, sizes = self._programs(task), self._sizes(task)
            fixed: dict[str, Any] = self._pass | self._tables[n] | {OWN[name]: size for name, size in sizes.items()}
            for block in self._blocks(task):
                stream = self.streams[launches % len(self.streams)]
                launches += 1
                # Bra pair n belongs to device n modulo their number, whatever the blocks of another device.
                first = block.begin + (self.number - block.begin) % self.devices
                rows = max(0, -(-(block.end - first) // self.devices)) * block.parts
                if not rows:
                    continue
                numbers = {"task": n, "first_pair": first, "step": self.devices, "parts": block.parts}
                numbers |= {"ket_begin": block.ket_begin, "ket_end": block.ket_end, "ket_part": block.ket_part}
                numbers["queue_step"] = queue_size(block.ket_part, programs.screen.lanes)
                arguments = fixed | self._buffers[stream] | numbers
                self.device.launch(programs.screen, rows, arguments, stream)
                workers = min(rows, self._workers(task))
                self.device.launch(programs.work, workers, arguments | {"rows": rows, "n_workers": workers}, stream)

    def results(self) -> tuple[np.ndarray, np.ndarray]:
        """Return J by pairs and K by blocks, once all launches have ended."""
        self.device.synchronize()
        return self.device.download(self._pass["vj"]), self.device.download(self._pass["vk"])

    def memory(self) -> dict[str, int]:
        """Return the bytes of the pairs ("tables"), of each array of the pass, and of each buffer on all streams."""
        buffers = {name: sum(own[name].nbytes for own in self._buffers.values()) for name in self._largest()}
        return {"tables": self.resident.nbytes} | {name: m.nbytes for name, m in self._pass.items()} | buffers

    def release(self) -> None:
        """Free the memory of matrices and buffers."""
        self.device.release(*self._pass.values(), *(b for own in self._buffers.values() for b in own.values()))
        self._pass, self._buffers = {}, {}

    def _programs(self, task: Task) -> Programs:
        return self.kernels[Batch(task.cls, self.run.with_j, self.run.with_k)]

    def _workers(self, task: Task) -> int:
        """Return the groups of the second program that run at once, or fewer where their buffers do not fit."""
        return max(1, self.device.multiprocessors * self._programs(task).work.blocks // self._divisor)

    def _blocks(self, task: Task) -> Iterator[Block]:
        lanes = self._programs(task).work.lanes
        rows = max(1, ROWS // self._divisor) * self.devices
        return blocks(task, float(self.run.reals[CUTOFF]), lanes, self._workers(task) * self.devices, rows)

    def _allocate(self) -> None:
        """Allocate the arrays of the pass, and buffers for as many workers as there is memory for."""
        run, device = self.run, self.device
        self._divisor = 1
        uploads = {"reals": run.reals, "dm_max": run.maxima, "dm_pairs": run.pairs, "dm": run.blocks}
        uploads["numbers"] = np.array([run.numbers(t, self._programs(t).work.lanes) for t in self.tasks], np.int64)
        try:
            for name, array in uploads.items():
                self._pass[name] = device.upload(array)
            for name, like in (("vj", run.pairs), ("vk", run.blocks)):
                self._pass[name] = device.zeros(*like.shape)
            while not self._have_buffers():
                pass
        except MemoryLimit as error:
            raise MemoryLimit(
                f"{error}: the buffers of one block of threads do not fit beside {run.count} densities of "
                f"{run.layout.order.size} orbitals; use a device with more memory, or backend='cpu'"
            ) from error

    def _have_buffers(self) -> bool:
        """Allocate the buffers of all streams. Where they do not fit, halve the workers and return False."""
        try:
            for stream in self.streams:
                own = self._buffers.setdefault(stream, {})
                for name, elements in self._largest().items():
                    own[name] = self.device.zeros(elements, dtype=np.int64 if name in INTEGERS else np.float64)
        except MemoryLimit as error:
            self.device.release(*(b for own in self._buffers.values() for b in own.values()))
            self._buffers = {}
            if self._divisor > ROWS:
                raise
            self._divisor *= 2
            fewer = max(map(self._workers, self.tasks))
            self.note(f"{error}; going on with at most {fewer} blocks of threads at once")
            return False
        return True

    def _largest(self) -> dict[str, int]:
        """Return the elements of each buffer of a stream, which all its launches use."""
        run, cutoff = self.run, float(self.run.reals[CUTOFF])
        key = (tuple(self.tasks), self._divisor, self.devices, run.count, run.with_j, run.with_k, cutoff)
        return self.resident.elements(key, self._count_elements)

    def _count_elements(self) -> dict[str, int]:
        most = dict.fromkeys((*OWN, "counts", "queue", "weight"), 1)
        for task in self.tasks:
            programs, workers = self._programs(task), self._workers(task)
            needs = {name: size * workers * programs.work.lanes for name, size in self._sizes(task).items()}
            for block in self._blocks(task):
                rows = -(-(block.end - block.begin) // self.devices) * block.parts
                queues = rows * queue_size(block.ket_part, programs.screen.lanes)
                for name, size in (("counts", rows), ("queue", queues), ("weight", queues)):
                    needs[name] = max(needs.get(name, 0), size)
            most = {name: max(size, needs.get(name, 0)) for name, size in most.items()}
        return most

    def _sizes(self, task: Task) -> dict[str, int]:
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
            "j_ab": self.run.count * n_ab * a * b,
        }

    def _arrays(self, task: Task) -> dict[str, Any]:
        """Return the arrays of a task's pairs, in the memory of the device."""
        bra, ket = task.bra, task.ket
        resident = {
            "bra": bra.records_for(task.cls),
            "bra_places": bra.places,
            "bra_measures": bra.measures,
            "ket": ket.records_for(task.cls),
            "ket_places": ket.places,
            "ket_measures": ket.measures,
            "ket_bounds": ket.bounds,
            "boys": boys.table(task.cls.order),
            "lane": _lane_numbers(self._programs(task).work.lanes),
        }
        return {name: self.resident(array) for name, array in resident.items()}


# The buffers of integers.
INTEGERS = ("queue", "counts")


@cache
def _lane_numbers(lanes: int) -> np.ndarray:
    """Return 0, 1, ...: always the same array, so that it is uploaded once."""
    return np.arange(lanes)
