"""A device that is simulated on the CPU.

It runs the same programs as a GPU, compiled as C, one group after the other. With it, all code but the GPU itself can
be tested: several devices, several streams, and memory that runs out.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from trnqc.errors import BackendUnavailable
from trnqc.jit.device import Argument, Built, DeviceArray, ExternalStream, no_memory
from trnqc.jit.recipe import Recipe, library

# Compiler options of the kernels. The simulated device is for tests, so compiling fast matters more than running fast.
FLAGS = ("-O1",)


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

    Attributes
    ----------
    used, most_used : int
        Bytes that are allocated now, and the most that were allocated at once.
    launches : int
        The number of launches so far.
    """

    def __init__(
        self,
        name: str = "simulated",
        memory: int = 1 << 34,
        lanes: int = 32,
        streams: int = 2,
        arch: str = "simulated",
    ) -> None:
        self.name, self.arch, self.streams, self.most_lanes = name, arch, streams, lanes
        self.multiprocessors, self.memory = 2, memory
        self.used = self.most_used = self.launches = 0

    def free_memory(self) -> int:
        return self.memory - self.used

    def build(self, recipe: Recipe, lanes: int, *, accumulate: str = "fence", min_blocks: int = 0) -> Built:
        (signature,) = recipe.signatures
        return Built(signature, lanes, getattr(library(recipe, lanes, FLAGS), signature.name))

    def upload(self, array: np.ndarray) -> DeviceArray:
        memory = self.zeros(*array.shape, dtype=array.dtype)
        memory.handle[...] = array
        return memory

    def zeros(self, *shape: int, dtype: Any = np.float64) -> DeviceArray:
        memory = DeviceArray(None, shape, np.dtype(dtype))
        if memory.nbytes > self.free_memory():
            raise no_memory(self.name, memory.nbytes, self.free_memory())
        self.used += memory.nbytes
        self.most_used = max(self.most_used, self.used)
        memory.handle = np.zeros(shape, dtype)
        return memory

    def write(self, memory: DeviceArray, array: np.ndarray) -> None:
        memory.handle.reshape(-1)[: array.size] = array.reshape(-1)

    def download(self, memory: DeviceArray) -> np.ndarray:
        return memory.handle.copy()

    def release(self, *memories: DeviceArray) -> None:
        self.used -= sum(m.nbytes for m in memories)
        for memory in memories:
            memory.handle = None

    def launch(
        self, built: Built, groups: int, arguments: Mapping[str, Argument], stream: int | ExternalStream = 0
    ) -> None:
        if isinstance(stream, int) and not 0 <= stream < self.streams:
            raise BackendUnavailable(f"{self.name} has the streams 0 .. {self.streams - 1}; found stream {stream}")
        self.launches += 1
        operands = (arguments[p.name] for p in built.parameters)
        built.handle(*(a.handle if isinstance(a, DeviceArray) else a for a in operands), 0, groups)

    def synchronize(self, stream: int | None = None) -> None:
        """Nothing to do: `launch` returns when the kernel has finished."""
