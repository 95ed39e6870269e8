"""One pass over the integrals on GPUs: the arrays of a device, and the launches of its tasks.

The pairs of a molecule stay in the memory of a device, and so do the plan of its launches (launches.py), their buffers
and, for the next pass of the same kind, the arrays of a pass with the launches prepared for them (resident.py). A pass
overwrites the densities there. The host then queues the programs of each block of bra and ket pairs (batch.py), on the
streams of the device in turn, and waits for all of them at the end. Launches of one stream share its buffers. Which
quartets matter for a density is decided on the device, so that the launches do not depend on it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np

from trnqc.eri.cuda.blocks import ROWS, Kind
from trnqc.eri.cuda.launches import Kernels, LaunchPlan
from trnqc.eri.cuda.resident import ResidentMemory, ResidentPass
from trnqc.eri.jk.batch import REALS, Batch
from trnqc.eri.jk.run import JKPass
from trnqc.eri.jk.tasks import QuartetTask
from trnqc.errors import InputError, MemoryLimit
from trnqc.jit.device import DeviceArray


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
        run: JKPass,
        tasks: Sequence[QuartetTask],
        number: int,
        devices: int,
        note: Callable[[str], None],
    ) -> None:
        self.resident, self.kernels, self.run, self.tasks, self.note = resident, kernels, run, tasks, note
        self.number, self.devices, self.device = number, devices, resident.device
        # Stream 0 is for what is before and after the launches.
        self.streams = list(range(1, self.device.streams)) or [0]
        self._pass: ResidentPass | None = None
        self._running = False
        try:
            self._pass = resident.take((tuple(map(id, tasks)), run.count, run.with_j, run.with_k), self._arrays)
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
        """The arrays of the pass: densities, the numbers of tasks, J and K; none after `release`."""
        return self._pass.arrays if self._pass else {}

    def launch(self) -> None:
        """Clear J and K and queue all tasks, without waiting for any. They follow what is on stream 0."""
        if self._pass is None:
            raise InputError("the memory of this pass has been given back: make another DeviceRun")
        self._running = True
        self.device.clear(self.arrays["vj"], self.arrays["vk"])
        self._pass.prepared(self.plan, self.resident.buffers, self.device).launch()

    def results(self) -> tuple[np.ndarray, np.ndarray]:
        """Return J by pairs and K by blocks, once all launches have ended."""
        vj, vk = self.device.download_all([self.arrays["vj"], self.arrays["vk"]])
        self._running = False
        return vj, vk

    def memory(self) -> dict[str, int]:
        """Return the bytes of the pairs ("tables"), of each array of the pass, and of each buffer on all streams."""
        buffers = self.resident.buffers.values()
        sums = {name: sum(own[name].nbytes for own in buffers) for name in self.plan.elements}
        return {"tables": self.resident.nbytes} | {name: m.nbytes for name, m in self.arrays.items()} | sums

    def release(self) -> None:
        """Give the memory of matrices back. It stays for the next pass of this kind, as buffers do for every one."""
        if self._running:
            # After an error the launches may still run, and the next pass overwrites what they read.
            self.device.synchronize()
        if self._pass is not None:
            self.resident.give_back(self._pass)
        self._pass = None

    def _arrays(self) -> dict[str, DeviceArray]:
        """Allocate the arrays of a pass, and copy the numbers of all tasks, which no density changes."""
        run, device = self.run, self.device
        lanes = [self.kernels[Batch(t.cls, run.with_j, run.with_k)].work.lanes for t in self.tasks]
        numbers = np.array([run.numbers(*each) for each in zip(self.tasks, lanes)], np.int64)
        like = self._densities() | {"vj": run.pairs, "vk": run.blocks}
        arrays: dict[str, DeviceArray] = {}
        try:
            for name, array in like.items():
                arrays[name] = device.zeros(*array.shape)
            return arrays | {"numbers": device.upload(numbers)}
        except BaseException:
            device.release(*arrays.values())
            raise

    def _densities(self) -> dict[str, np.ndarray]:
        run = self.run
        return {"reals": run.reals, "dm_max": run.maxima, "dm_pairs": run.pairs, "dm": run.blocks}

    def _copy(self) -> None:
        """Copy densities to the device."""
        self.device.write_all([(self.arrays[name], array) for name, array in self._densities().items()])

    def _allocate(self) -> LaunchPlan:
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
