"""One pass over the integrals on GPUs: quartets selected on the host, and the share of each device.

task -> selections of quartets (batch.select) -> launches on the streams of a device -> its J and K
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from trnqc.eri.cuda.batch import NEXT, OWN, TASKS, USED, select_name
from trnqc.eri.cuda.tiers import Tier
from trnqc.eri.jk.batch import Batch
from trnqc.eri.jk.run import Run
from trnqc.eri.jk.tasks import Task
from trnqc.eri.kernels import boys
from trnqc.eri.kernels.parameters import work_size
from trnqc.errors import MemoryLimit
from trnqc.jit import Library
from trnqc.jit.device import Built, Device, DeviceArray

# Positions of the queue that a selection fills, if one bra pair does not need more.
QUEUE = 1 << 20
# Vectors of the queue that a worker takes at a time.
SHARE = 8


@dataclass(frozen=True)
class Selection:
    """Quartets of a task that pass the test, as `batch.select` returns them, and the next bra pair to select for."""

    numbers: np.ndarray
    tasks: np.ndarray
    queue: np.ndarray
    weight: np.ndarray
    next_pair: int


def selection(task: Task, batch: Batch, run: Run, host: Library, lanes: int, begin: int) -> Selection:
    """Select quartets from bra pair `begin` on: as many as the queue takes, and those of one bra pair at least."""
    capacity = max(QUEUE, len(task.ket) + lanes)
    state = np.array([0, 0, begin, capacity, SHARE], np.int64)
    tasks = np.zeros((capacity // lanes + 1, 3), np.int64)
    queue, weight, numbers = np.zeros(capacity, np.int64), np.zeros(capacity), run.numbers(task, lanes)
    bra, ket = task.bra, task.ket
    getattr(host, select_name(batch))(
        state=state,
        n_selected=np.zeros(1, np.int64),
        tasks=tasks,
        numbers=numbers,
        reals=run.reals,
        bra_places=bra.places,
        bra_measures=bra.measures,
        ket_places=ket.places,
        ket_measures=ket.measures,
        dm_max=run.maxima,
        queue=queue,
        weight=weight,
        groups_begin=begin,
        groups_end=task.end,
    )
    return Selection(numbers, tasks[: state[TASKS]], queue[: state[USED]], weight[: state[USED]], int(state[NEXT]))


class ResidentArrays:
    """Arrays of the pairs in the memory of a device, for as long as the builder lives."""

    def __init__(self, device: Device) -> None:
        self.device = device
        # The array is kept too, so that its id stays its own.
        self._uploaded: dict[int, tuple[np.ndarray, DeviceArray]] = {}

    def __call__(self, array: np.ndarray) -> DeviceArray:
        if id(array) not in self._uploaded:
            self._uploaded[id(array)] = array, self.device.upload(array)
        return self._uploaded[id(array)][1]


class DeviceRun:
    """The share of one device in one pass: its matrices, and one set of buffers for each stream.

    Parameters
    ----------
    resident
        The arrays of the pairs on this device.
    kernels
        The tier and the program of each driver on this device.
    run
        The pass.
    note
        Called with what did not go as planned, in words.
    """

    def __init__(
        self,
        resident: ResidentArrays,
        kernels: Mapping[Batch, tuple[Tier, Built]],
        run: Run,
        note: Callable[[str], None],
    ) -> None:
        self.resident, self.kernels, self.run, self.note = resident, kernels, run, note
        self.device = device = resident.device
        self.cost, self._launches = 0.0, 0
        self._buffers: dict[tuple[int, str], DeviceArray] = {}
        self._matrices = {
            "reals": device.upload(run.reals),
            "dm_max": device.upload(run.maxima),
            "dm_pairs": device.upload(run.pairs),
            "dm": device.upload(run.blocks),
            "vj": device.zeros(*run.pairs.shape),
            "vk": device.zeros(*run.blocks.shape),
        }

    def launch(self, task: Task, batch: Batch, selected: Selection) -> None:
        """Digest a selection on the next stream, after the stream's last launch, which uses the same buffers."""
        tier, built = self.kernels[batch]
        # Memory is copied on stream 0, which must not wait for kernels.
        stream = 1 + self._launches % (self.device.streams - 1) if self.device.streams > 1 else 0
        self._launches += 1
        self.device.synchronize(stream)
        workers = min(len(selected.tasks), max(1, self.device.multiprocessors * tier.warps * 32 // tier.lanes))
        arguments, workers = self._arguments(stream, task, selected, workers, built.lanes)
        self.device.launch(built, workers, arguments, stream)

    def results(self) -> tuple[np.ndarray, np.ndarray]:
        """Return J by pairs and K by blocks, once all launches have ended."""
        self.device.synchronize()
        return self.device.download(self._matrices["vj"]), self.device.download(self._matrices["vk"])

    def release(self) -> None:
        """Free the memory of matrices and buffers."""
        self.device.release(*self._matrices.values(), *self._buffers.values())
        self._matrices, self._buffers = {}, {}

    def _arguments(
        self, stream: int, task: Task, selected: Selection, workers: int, lanes: int
    ) -> tuple[dict[str, Any], int]:
        """Return the arguments of a launch, and as many workers as there is memory for. Raises MemoryLimit for none."""
        sizes = self._buffer_sizes(task)
        while True:
            first = not self._buffers
            try:
                arguments = self._arrays(task, lanes)
                for name in ("numbers", "tasks", "queue", "weight"):
                    arguments[name] = self._written(stream, name, getattr(selected, name))
                arguments |= {n: self._buffer(stream, n, size * workers * lanes) for n, size in sizes.items()}
                arguments |= {"n_tasks": len(selected.tasks), "n_workers": workers}
                return arguments | {OWN[n]: size for n, size in sizes.items()}, workers
            except MemoryLimit as error:
                if first and workers == 1:
                    raise MemoryLimit(
                        f"{error}: the buffers of one block of threads do not fit beside {self.run.count} densities of "
                        f"{self.run.layout.order.size} orbitals; use a device with more memory, or backend='cpu'"
                    ) from error
                workers = self._fewer(workers, error)

    def _fewer(self, workers: int, error: MemoryLimit) -> int:
        """Free all buffers, and return half the workers."""
        self.device.release(*self._buffers.values())
        self._buffers = {}
        fewer = (workers + 1) // 2
        self.note(f"{error}; going on with {fewer} blocks of threads at once")
        return fewer

    def _buffer_sizes(self, task: Task) -> dict[str, int]:
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

    def _buffer(self, stream: int, name: str, size: int, dtype: Any = np.float64) -> DeviceArray:
        """Return the stream's buffer of this name, replaced by a larger one if it is too small."""
        buffer = self._buffers.get((stream, name))
        if buffer is None or buffer.shape[0] < size:
            if buffer is not None:
                self.device.release(self._buffers.pop((stream, name)))
            self._buffers[stream, name] = self.device.zeros(size, dtype=dtype)
        return self._buffers[stream, name]

    def _written(self, stream: int, name: str, array: np.ndarray) -> DeviceArray:
        memory = self._buffer(stream, name, array.size, array.dtype)
        self.device.write(memory, array)
        return memory

    def _arrays(self, task: Task, lanes: int) -> dict[str, Any]:
        """Return the arguments that are in the memory of the device already."""
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
            "lane": _lane_numbers(lanes),
        }
        return self._matrices | {name: self.resident(array) for name, array in resident.items()}


@cache
def _lane_numbers(lanes: int) -> np.ndarray:
    """Return 0, 1, ...: always the same array, so that it is uploaded once."""
    return np.arange(lanes)
