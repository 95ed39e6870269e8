"""What stays in the memory of a device from one pass over the integrals to the next."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trnqc.eri.cuda.blocks import Kind
from trnqc.eri.cuda.launches import Kernels, LaunchPlan, plan
from trnqc.eri.jk.tasks import QuartetTask
from trnqc.errors import MemoryLimit
from trnqc.jit.cuda.prepared import PreparedLaunch, PreparedLaunches
from trnqc.jit.device import Device, DeviceArray

# The buffers of integers.
INTEGERS = ("queue", "counts")
# Bytes of the arrays of a pass that stay for the next one, at most. An SCF of 4000 functions has 0.4 GB for each spin.
KEPT_BYTES = 1 << 30

Buffers = dict[int, dict[str, DeviceArray]]


@dataclass(eq=False)
class ResidentPass:
    """The arrays of a pass, and the launches that are prepared for them.

    Parameters
    ----------
    key
        What the shapes of the arrays and the numbers of the tasks depend on.
    arrays
        Densities, the numbers of tasks, J and K.
    """

    key: Any
    arrays: dict[str, DeviceArray]
    _prepared: tuple[LaunchPlan, Buffers, PreparedLaunches] | None = field(default=None, init=False)

    def prepared(self, plan: LaunchPlan, buffers: Buffers, device: Device) -> PreparedLaunches:
        """Return the launches of a plan on these arrays and buffers, which are prepared when one of these is new."""
        found = self._prepared
        if found is None or found[0] is not plan or found[1] is not buffers:
            found = self._prepared = plan, buffers, device.prepare(self._launches(plan, buffers))
        return found[2]

    def _launches(self, plan: LaunchPlan, buffers: Buffers) -> list[PreparedLaunch]:
        """Two or three launches for each block, on the streams in turn."""
        own = [(stream, self.arrays | of_stream) for stream, of_stream in buffers.items()]
        launches = []
        for n, block in enumerate(plan.launches):
            stream, arrays = own[n % len(own)]
            arguments = arrays | block.arguments
            launches += [PreparedLaunch(built, groups, arguments, stream) for built, groups in block.steps]
        return launches


class ResidentMemory:
    """What stays in the memory of a device for as long as the builder lives.

    Attributes
    ----------
    device : Device
        The device.
    buffers : dict
        The buffers of each stream by name; another dict whenever they are allocated anew.
    """

    def __init__(self, device: Device) -> None:
        self.device = device
        # The array is kept too, so that its id stays its own; so are the tasks of a plan.
        self._uploaded: dict[int, tuple[np.ndarray, DeviceArray]] = {}
        self._plans: dict[Any, tuple[Sequence[QuartetTask], LaunchPlan]] = {}
        self._kept: ResidentPass | None = None
        self.buffers: Buffers = {}

    def __call__(self, array: np.ndarray) -> DeviceArray:
        """Return an array of the pairs in the memory of the device."""
        if id(array) not in self._uploaded:
            self._uploaded[id(array)] = array, self.device.upload(array)
        return self._uploaded[id(array)][1]

    def plan(self, tasks: Sequence[QuartetTask], kernels: Kernels, kind: Kind) -> LaunchPlan:
        """Return the launches of tasks, which are planned once."""
        key = tuple(map(id, tasks)), kind
        if key not in self._plans:
            self._plans[key] = tuple(tasks), plan(tasks, kernels, kind, self)
        return self._plans[key][1]

    def take(self, key: Any, allocate: Callable[[], dict[str, DeviceArray]]) -> ResidentPass:
        """Return the pass that was kept if it has this key, else one with new arrays, for which its memory is freed."""
        kept, self._kept = self._kept, None
        if kept is not None and kept.key == key:
            return kept
        if kept is not None:
            self.device.release(*kept.arrays.values())
        return ResidentPass(key, allocate())

    def give_back(self, used: ResidentPass) -> None:
        """Keep a pass for the next one with its key, or free its memory if it is large or another one is kept."""
        if self._kept is None and sum(memory.nbytes for memory in used.arrays.values()) <= KEPT_BYTES:
            self._kept = used
        else:
            self.device.release(*used.arrays.values())

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
