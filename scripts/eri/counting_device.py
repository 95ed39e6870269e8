"""A device that allocates and computes nothing, and counts what a GPU would be asked for."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trnqc.jit import Recipe
from trnqc.jit.cuda.prepared import PreparedLaunch, PreparedLaunches
from trnqc.jit.device import Argument, BuiltKernel, DeviceArray, ExternalStream, no_memory

# NVIDIA's A100 with 80 GB, from its data sheet: multiprocessors, bytes of memory, and threads of a block.
MULTIPROCESSORS, MEMORY, LANES = 108, 80 * 10**9, 1024

# Blocks of a multiprocessor that run at once: two of 128 threads with 255 registers each fill its registers.
BLOCKS = 2


class CountingDevice:
    """A GPU of which only the sizes are kept. Downloaded arrays are zeros.

    Parameters
    ----------
    multiprocessors, memory, lanes, streams
        As for `trnqc.jit.device.Device`, the memory in bytes.

    Attributes
    ----------
    used, most_used : int
        Bytes that are allocated now, and the most that were allocated at once.
    copied : Counter
        Bytes of copies to the device ("in") and from it ("out").
    launches : Counter
        Launches by the name of the program.
    """

    name, arch = "counting", "sm_80"

    def __init__(
        self, multiprocessors: int = MULTIPROCESSORS, memory: int = MEMORY, lanes: int = LANES, streams: int = 4
    ) -> None:
        self.multiprocessors, self.memory, self.most_lanes, self.streams = multiprocessors, memory, lanes, streams
        self.used = self.most_used = 0
        self.copied: Counter[str] = Counter()
        self.launches: Counter[str] = Counter()

    def free_memory(self) -> int:
        return self.memory - self.used

    def build(self, recipe: Recipe, lanes: int, *, accumulate: str = "fence", min_blocks: int = 0) -> BuiltKernel:
        (signature,) = recipe.signatures
        return BuiltKernel(signature, lanes, None, blocks=BLOCKS)

    def upload(self, array: np.ndarray) -> DeviceArray:
        memory = self.zeros(*array.shape, dtype=array.dtype)
        self.write(memory, array)
        return memory

    def upload_all(self, arrays: Sequence[np.ndarray]) -> list[DeviceArray]:
        return [self.upload(array) for array in arrays]

    def zeros(self, *shape: int, dtype: Any = np.float64) -> DeviceArray:
        memory = DeviceArray(None, shape, np.dtype(dtype))
        if memory.nbytes > self.free_memory():
            raise no_memory(self.name, memory.nbytes, self.free_memory())
        self.used += memory.nbytes
        self.most_used = max(self.most_used, self.used)
        return memory

    def write(self, memory: DeviceArray, array: np.ndarray) -> None:
        self.copied["in"] += array.nbytes

    def write_all(self, copies: Sequence[tuple[DeviceArray, np.ndarray]]) -> None:
        for memory, array in copies:
            self.write(memory, array)

    def clear(self, *memories: DeviceArray) -> None:
        """Return: arrays have no elements."""

    def download(self, memory: DeviceArray) -> np.ndarray:
        self.copied["out"] += memory.nbytes
        return np.zeros(memory.shape, memory.dtype)

    def download_all(self, memories: Sequence[DeviceArray]) -> list[np.ndarray]:
        return [self.download(memory) for memory in memories]

    def release(self, *memories: DeviceArray) -> None:
        self.used -= sum(memory.nbytes for memory in memories)

    def launch(
        self, built: BuiltKernel, groups: int, arguments: Mapping[str, Argument], stream: int | ExternalStream = 0
    ) -> None:
        self.launches[built.signature.name] += 1

    def prepare(self, launches: Sequence[PreparedLaunch]) -> PreparedLaunches:
        return _CountedLaunches(self, launches)

    def synchronize(self, stream: int | None = None) -> None:
        """Return: nothing runs."""


@dataclass(frozen=True, eq=False)
class _CountedLaunches:
    """Launches that are counted; see `trnqc.jit.cuda.prepared.PreparedLaunches`."""

    device: CountingDevice
    launches: Sequence[PreparedLaunch]

    def launch(self) -> None:
        for each in self.launches:
            self.device.launch(each.built, each.groups, each.arguments, each.stream)
