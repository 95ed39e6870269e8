"""One pass over the integrals on GPUs: the arrays of a device, and the launches of its tasks.

The pairs of a molecule stay in the memory of a device, and so do the plan of its launches (launches.py) and their
buffers. A pass copies densities and the numbers of all tasks there. The host then launches two programs for each block
of bra and ket pairs (batch.py), on the streams of the device in turn, and waits for all of them at the end. Launches of
one stream share its buffers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from trnqc.eri.cuda.launches import ROWS, Kernels, Kind, Plan, plan
from trnqc.eri.jk.batch import REALS, Batch
from trnqc.eri.jk.run import Run
from trnqc.eri.jk.tasks import Task
from trnqc.errors import MemoryLimit
from trnqc.jit.device import Device, DeviceArray

# The buffers of integers.
INTEGERS = ("queue", "counts")


class ResidentMemory:
    """What stays in the memory of a device for as long as the builder lives.

    Attributes
    ----------
    device : Device
        The device.
    buffers : dict
        The buffers of each stream by name.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        # The array is kept too, so that its id stays its own.
        self._uploaded: dict[int, tuple[np.ndarray, DeviceArray]] = {}
        self._plans: dict[Any, Plan] = {}
        self.buffers: dict[int, dict[str, DeviceArray]] = {}

    def __call__(self, array: np.ndarray) -> DeviceArray:
        """Return an array of the pairs in the memory of the device."""
        if id(array) not in self._uploaded:
            self._uploaded[id(array)] = array, self.device.upload(array)
        return self._uploaded[id(array)][1]

    def plan(self, tasks: Sequence[Task], kernels: Kernels, kind: Kind) -> Plan:
        """Return the launches of tasks, which are planned once."""
        key = tuple(tasks), kind
        if key not in self._plans:
            self._plans[key] = plan(tasks, kernels, kind, self)
        return self._plans[key]

    def allocate(self, streams: Sequence[int], elements: dict[str, int]) -> None:
        """Let every stream have buffers of so many elements. Raises MemoryLimit, after which there are none."""
        if set(streams) <= self.buffers.keys() and all(
            own[name].shape[0] >= size for own in self.buffers.values() for name, size in elements.items()
        ):
            return
        self.release()
        try:
            for stream in streams:
                own = self.buffers.setdefault(stream, {})
                for name, size in elements.items():
                    own[name] = self.device.zeros(size, dtype=np.int64 if name in INTEGERS else np.float64)
        except MemoryLimit:
            self.release()
            raise

    def release(self) -> None:
        """Free the buffers."""
        self.device.release(*(buffer for own in self.buffers.values() for buffer in own.values()))
        self.buffers = {}

    @property
    def nbytes(self) -> int:
        """Bytes of the arrays of pairs."""
        return sum(memory.nbytes for _, memory in self._uploaded.values())


class DeviceRun:
    """The share of one device in one pass.

    Parameters
    ----------
    resident
        What stays in the memory of this device.
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
        resident: ResidentMemory,
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
        try:
            self._copy()
            self.plan = self._allocate()
        except MemoryLimit as error:
            self.release()
            raise MemoryLimit(
                f"{error}: the buffers of one block of threads do not fit beside {run.count} densities of "
                f"{run.layout.order.size} orbitals; use a device with more memory, or backend='cpu'"
            ) from error
        except BaseException:
            self.release()
            raise

    @property
    def arrays(self) -> dict[str, DeviceArray]:
        """The arrays of the pass: densities, the numbers of tasks, J and K."""
        return self._pass

    def launch(self) -> None:
        """Queue all tasks, without waiting for any."""
        own = [self._pass | self.resident.buffers[stream] for stream in self.streams]
        for n, launch in enumerate(self.plan.launches):
            turn = n % len(self.streams)
            arguments, stream = own[turn] | launch.arguments, self.streams[turn]
            self.device.launch(launch.programs.screen, launch.rows, arguments, stream)
            self.device.launch(launch.programs.work, launch.workers, arguments, stream)

    def results(self) -> tuple[np.ndarray, np.ndarray]:
        """Return J by pairs and K by blocks, once all launches have ended."""
        self.device.synchronize()
        vj, vk = self.device.download_all([self._pass["vj"], self._pass["vk"]])
        return vj, vk

    def memory(self) -> dict[str, int]:
        """Return the bytes of the pairs ("tables"), of each array of the pass, and of each buffer on all streams."""
        buffers = self.resident.buffers.values()
        sums = {name: sum(own[name].nbytes for own in buffers) for name in self.plan.elements}
        return {"tables": self.resident.nbytes} | {name: m.nbytes for name, m in self._pass.items()} | sums

    def release(self) -> None:
        """Free the memory of matrices; buffers stay for the next pass."""
        self.device.release(*self._pass.values())
        self._pass = {}

    def _copy(self) -> None:
        """Copy densities and the numbers of all tasks to the device, and clear J and K there."""
        run = self.run
        lanes = [self.kernels[Batch(t.cls, run.with_j, run.with_k)].work.lanes for t in self.tasks]
        numbers = np.array([run.numbers(*each) for each in zip(self.tasks, lanes)], np.int64)
        arrays = {"reals": run.reals, "dm_max": run.maxima, "dm_pairs": run.pairs, "dm": run.blocks, "numbers": numbers}
        self._pass = dict(zip(arrays, self.device.upload_all(list(arrays.values()))))
        for name, like in (("vj", run.pairs), ("vk", run.blocks)):
            self._pass[name] = self.device.zeros(*like.shape)

    def _allocate(self) -> Plan:
        """Return the launches, with as many workers as there is memory for their buffers."""
        run, divisor = self.run, 1
        cutoff = float(run.reals[REALS.index("cutoff")])
        shared = self.number, self.devices, self.device.multiprocessors
        while True:
            kind = Kind(*shared, divisor, run.count, run.with_j, run.with_k, cutoff)
            plan = self.resident.plan(self.tasks, self.kernels, kind)
            try:
                self.resident.allocate(self.streams, plan.elements)
                return plan
            except MemoryLimit as error:
                if divisor > ROWS:
                    raise
                reason = str(error)
            divisor *= 2
            fewer = max(1, plan.workers // 2)
            self.note(f"{reason}; going on with at most {fewer} blocks of threads at once")
