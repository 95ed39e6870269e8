"""A device that is simulated on the CPU.

It runs the CUDA text of a GPU's kernels by `trnqc.jit.emulator`, thread by thread, and finds races and accesses outside
of arrays. With it, all code but the driver of the GPU can be tested: several devices, several streams, and memory that
runs out.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trnqc.errors import BackendUnavailable, InputError
from trnqc.jit import emulator
from trnqc.jit.cuda.prepared import PreparedLaunch, PreparedLaunches
from trnqc.jit.device import Argument, BuiltKernel, DeviceArray, ExternalStream, fitting, no_memory, uploaded
from trnqc.jit.recipe import Recipe
from trnqc.jit.staging import Staging

# Groups of a multiprocessor that run at once, for what depends on their number.
BLOCKS = 2


class SimulatedDevice:
    """A device that is simulated on the CPU.

    Parameters
    ----------
    name : str
        The name of the device.
    memory : int
        The size of its memory in bytes.
    lanes : int
        The largest number of lanes of a group.
    streams : int
        The number of streams.
    arch : str
        The architecture that it reports, for tests of what depends on it.
    order : str
        The order in which blocks and threads run, a key of `emulator.ORDERS`.
    checked : bool
        Whether accesses to memory are checked, which takes several times as long.

    Raises
    ------
    InputError
        For an unknown order.

    Attributes
    ----------
    used, most_used : int
        Bytes that are allocated now, and the most that were allocated at once.
    launches : int
        The number of launches so far.
    staging : Staging
        Copies go through it as on a GPU; it counts them.
    """

    def __init__(
        self,
        name: str = "simulated",
        memory: int = 1 << 34,
        lanes: int = 32,
        streams: int = 2,
        arch: str = "simulated",
        order: str = "ascending",
        checked: bool = True,
    ) -> None:
        if order not in emulator.ORDERS:
            raise InputError(f"order is one of {', '.join(emulator.ORDERS)}; found {order!r}")
        self.name, self.arch, self.streams, self.most_lanes = name, arch, streams, lanes
        self.multiprocessors, self.memory = 2, memory
        self.order, self.checked = order, checked
        self.used = self.most_used = self.launches = 0
        self.staging = Staging(_SimulatedCopies(name))
        # Bytes of all arrays by their addresses.
        self._arrays: dict[int, int] = {}

    def free_memory(self) -> int:
        return self.memory - self.used

    def build(self, recipe: Recipe, lanes: int, *, accumulate: str = "fence", min_blocks: int = 0) -> BuiltKernel:
        kernel = emulator.build(recipe, lanes, accumulate=accumulate, min_blocks=min_blocks, checked=self.checked)
        return BuiltKernel(kernel.signature, lanes, kernel, blocks=BLOCKS)

    def upload(self, array: np.ndarray) -> DeviceArray:
        return self.upload_all([array])[0]

    def upload_all(self, arrays: Sequence[np.ndarray]) -> list[DeviceArray]:
        return uploaded(self, self.staging, arrays, lambda shape, dtype: self.zeros(*shape, dtype=dtype))

    def zeros(self, *shape: int, dtype: Any = np.float64) -> DeviceArray:
        memory = DeviceArray(None, shape, np.dtype(dtype))
        if memory.nbytes > self.free_memory():
            raise no_memory(self.name, memory.nbytes, self.free_memory())
        self.used += memory.nbytes
        self.most_used = max(self.most_used, self.used)
        memory.handle = np.zeros(shape, dtype)
        self._arrays[memory.handle.ctypes.data] = memory.nbytes
        return memory

    def write(self, memory: DeviceArray, array: np.ndarray) -> None:
        self.write_all([(memory, array)])

    def write_all(self, copies: Sequence[tuple[DeviceArray, np.ndarray]]) -> None:
        self.staging.upload(fitting(self.name, copies))

    def clear(self, *memories: DeviceArray) -> None:
        for memory in memories:
            memory.handle.fill(0)

    def download(self, memory: DeviceArray) -> np.ndarray:
        return self.download_all([memory])[0]

    def download_all(self, memories: Sequence[DeviceArray]) -> list[np.ndarray]:
        arrays = [np.empty(memory.shape, memory.dtype) for memory in memories]
        self.staging.download(zip(memories, arrays))
        return arrays

    def release(self, *memories: DeviceArray) -> None:
        self.used -= sum(m.nbytes for m in memories)
        for memory in memories:
            self._arrays.pop(memory.handle.ctypes.data, None)
            memory.handle = None

    def launch(
        self, built: BuiltKernel, groups: int, arguments: Mapping[str, Argument], stream: int | ExternalStream = 0
    ) -> None:
        if isinstance(stream, int) and not 0 <= stream < self.streams:
            raise BackendUnavailable(f"{self.name} has the streams 0 .. {self.streams - 1}; found stream {stream}")
        self.prepare([PreparedLaunch(built, groups, arguments, stream)]).launch()

    def prepare(self, launches: Sequence[PreparedLaunch]) -> PreparedLaunches:
        return _SimulatedLaunches(self, [(each, _operands(each)) for each in launches])

    def run(self, launch: PreparedLaunch, operands: Sequence[Any]) -> None:
        """Run a launch with its converted operands."""
        self.launches += 1
        emulator.run(launch.built.handle, launch.groups, operands, tuple(self._arrays.items()), self.order)

    def synchronize(self, stream: int | None = None) -> None:
        """Nothing to do: `launch` returns when the kernel has finished."""


@dataclass(frozen=True, eq=False)
class _SimulatedLaunches:
    """Launches that run in order; see `trnqc.jit.cuda.prepared.PreparedLaunches`."""

    device: SimulatedDevice
    launches: Sequence[tuple[PreparedLaunch, Sequence[Any]]]

    def launch(self) -> None:
        for each in self.launches:
            self.device.run(*each)


def _operands(launch: PreparedLaunch) -> list[Any]:
    """Return the operands of a launch as the emulator takes them."""
    operands = []
    for p in launch.built.parameters:
        argument = launch.arguments[p.name]
        operands.append(p.convert(argument.handle if isinstance(argument, DeviceArray) else argument))
    return operands


class _SimulatedCopies:
    """Copies that are there at once; see `trnqc.jit.staging.Copier`."""

    def __init__(self, name: str) -> None:
        self.name = name

    def lock(self, nbytes: int) -> np.ndarray:
        return np.empty(nbytes, np.uint8)

    def to_device(self, buffer: int, piece: np.ndarray, memory: DeviceArray, begin: int) -> None:
        _bytes(memory)[begin : begin + piece.size] = piece

    def to_host(self, buffer: int, piece: np.ndarray, memory: DeviceArray, begin: int) -> None:
        piece[...] = _bytes(memory)[begin : begin + piece.size]

    def wait(self, buffer: int) -> None:
        """Nothing to do: the copies have ended."""


def _bytes(memory: DeviceArray) -> Any:
    return memory.handle.reshape(-1).view(np.uint8)
