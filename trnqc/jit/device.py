"""Devices that run generated functions: GPUs through CUDA, and a stand-in for one on this machine's CPU.

function -> built for a number of lanes -> launched over groups on a stream; arrays live in the device's memory

The stand-in runs the same programs through the C dialect, one group after the other, so that everything but the GPU
itself is tried without one: several devices, streams, and memory that runs out.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np

from trnqc.errors import BackendUnavailable, MemoryLimit
from trnqc.gen import emit_c, emit_cuda
from trnqc.gen.statements import Function
from trnqc.jit import gpu
from trnqc.jit.cache import key_of, library_cache
from trnqc.jit.compiler import find_compiler
from trnqc.jit.load import NAMES, load, signature_of


@dataclass(eq=False)
class Memory:
    """An array in a device's memory; what `handle` is only the device knows."""

    handle: Any = field(repr=False)
    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


@dataclass(frozen=True, eq=False)
class Built:
    """A function ready to be launched, in groups of `lanes`."""

    function: Function
    lanes: int
    handle: Any = field(repr=False)


Argument = Memory | int | float


class Device(Protocol):
    """A machine with memory of its own. streams: launches on different ones may overlap. most_lanes: of a group.

    name is in words, arch such as ``sm_80``.
    """

    name: str
    arch: str
    streams: int
    most_lanes: int

    def free_memory(self) -> int:
        """Bytes that can still be allocated."""

    def build(self, function: Function, lanes: int, *, accumulate: str = "fence", min_blocks: int = 0) -> Built:
        """Compile, or take from the cache; raises CompilerError. For the options see `gen.emit_cuda`."""

    def upload(self, array: np.ndarray) -> Memory:
        """A copy of the array in the device's memory. Raises MemoryLimit."""

    def zeros(self, *shape: int, dtype: Any = np.float64) -> Memory:
        """Raises MemoryLimit when there is not so much memory left."""

    def download(self, memory: Memory) -> np.ndarray:
        """The array as it is after all launches so far."""

    def release(self, *memories: Memory) -> None:
        """Give memory back, after all launches so far."""

    def launch(self, built: Built, groups: int, arguments: Sequence[Argument], stream: int = 0) -> None:
        """Start the groups 0 .. groups - 1 behind what is on the stream, and return. Arguments: in order of params."""

    def synchronize(self) -> None:
        """Wait for all launches."""


class SimulatedDevice:
    """A device on this CPU with `memory` bytes, which counts what it is asked for. lanes: at most so many a group."""

    def __init__(self, name: str = "simulated", memory: int = 1 << 34, lanes: int = 32, streams: int = 2) -> None:
        self.name, self.arch, self.streams, self.most_lanes = name, "simulated", streams, lanes
        self.memory, self.used, self.launches = memory, 0, 0

    def free_memory(self) -> int:
        return self.memory - self.used

    def build(self, function: Function, lanes: int, *, accumulate: str = "fence", min_blocks: int = 0) -> Built:
        compiler, text = find_compiler(), emit_c(function, lanes=lanes)
        key = key_of(compiler.identity, text)
        path = library_cache().get(f"{function.name}-{key}", lambda out: compiler.build(text, out))
        return Built(function, lanes, getattr(load(path, {function.name: signature_of(function)}), function.name))

    def upload(self, array: np.ndarray) -> Memory:
        memory = self.zeros(*array.shape, dtype=array.dtype)
        memory.handle[...] = array
        return memory

    def zeros(self, *shape: int, dtype: Any = np.float64) -> Memory:
        memory = Memory(None, shape, np.dtype(dtype))
        if memory.nbytes > self.free_memory():
            raise no_memory(self.name, memory.nbytes, self.free_memory())
        self.used += memory.nbytes
        memory.handle = np.zeros(shape, dtype)
        return memory

    def download(self, memory: Memory) -> np.ndarray:
        return memory.handle.copy()

    def release(self, *memories: Memory) -> None:
        self.used -= sum(m.nbytes for m in memories)
        for memory in memories:
            memory.handle = None

    def launch(self, built: Built, groups: int, arguments: Sequence[Argument], stream: int = 0) -> None:
        if not 0 <= stream < self.streams:
            raise BackendUnavailable(f"{self.name} has streams 0 .. {self.streams - 1}, found {stream}")
        self.launches += 1
        extent = (0, groups) if built.function.group is not None else ()
        built.handle(*(a.handle if isinstance(a, Memory) else a for a in arguments), *extent)

    def synchronize(self) -> None:
        """Every launch has run to its end."""


class CudaDevice:
    """One GPU; text is compiled by NVRTC for its architecture. Raises BackendUnavailable, saying why there is none."""

    def __init__(self, index: int = 0, streams: int = 4) -> None:
        core = gpu.bindings()
        try:
            self._device = core.Device(index)
            self._device.set_current()
            self.name, self.arch = str(self._device.name), f"sm_{self._device.arch}"
            self._streams = [self._device.create_stream() for _ in range(streams)]
        except Exception as error:  # the bindings raise a class of their own for each library
            raise BackendUnavailable(f"CUDA device {index} cannot be used: {error}") from error
        self._core, self.streams, self.most_lanes = core, streams, 1024

    def free_memory(self) -> int:
        return int(self._driver("cuMemGetInfo")[0])

    def build(self, function: Function, lanes: int, *, accumulate: str = "fence", min_blocks: int = 0) -> Built:
        text = emit_cuda(function, lanes=lanes, accumulate=accumulate, min_blocks=min_blocks)
        cubin = gpu.compile_nvrtc(text, name=function.name, arch=self.arch)
        self._device.set_current()
        return Built(function, lanes, self._core.ObjectCode.from_cubin(cubin).get_kernel(function.name))

    def upload(self, array: np.ndarray) -> Memory:
        array = np.ascontiguousarray(array)
        memory = self._allocate(array.shape, array.dtype)
        if memory.nbytes:
            self._driver("cuMemcpyHtoD", int(memory.handle.handle), array.ctypes.data, memory.nbytes)
        return memory

    def zeros(self, *shape: int, dtype: Any = np.float64) -> Memory:
        memory = self._allocate(shape, np.dtype(dtype))
        memory.handle.fill(0, stream=self._streams[0])
        self._streams[0].sync()
        return memory

    def download(self, memory: Memory) -> np.ndarray:
        self.synchronize()
        array = np.empty(memory.shape, memory.dtype)
        if memory.nbytes:
            self._driver("cuMemcpyDtoH", array.ctypes.data, int(memory.handle.handle), memory.nbytes)
        return array

    def release(self, *memories: Memory) -> None:
        self.synchronize()
        for memory in memories:
            memory.handle.close(self._streams[0])
            memory.handle = None

    def launch(self, built: Built, groups: int, arguments: Sequence[Argument], stream: int = 0) -> None:
        self._device.set_current()
        given = [
            a.handle if isinstance(a, Memory) else np.dtype(NAMES[p.dtype]).type(a)
            for p, a in zip(built.function.params, arguments, strict=True)
        ]
        config = self._core.LaunchConfig(grid=groups, block=built.lanes)
        self._core.launch(self._streams[stream], config, built.handle, *given)

    def synchronize(self) -> None:
        self._device.set_current()
        for stream in self._streams:
            stream.sync()

    def _allocate(self, shape: tuple[int, ...], dtype: np.dtype) -> Memory:
        memory = Memory(None, shape, dtype)
        self._device.set_current()
        try:
            memory.handle = self._device.allocate(max(memory.nbytes, 8), stream=self._streams[0])
        except Exception as error:
            raise no_memory(self.name, memory.nbytes, self.free_memory()) from error
        self._streams[0].sync()
        return memory

    def _driver(self, function: str, *arguments: Any) -> tuple[Any, ...]:
        """A call of the driver, for the context of this device; raises BackendUnavailable with the driver's word."""
        from cuda.bindings import driver

        self._device.set_current()
        status, *results = getattr(driver, function)(*arguments)
        if int(status) != 0:
            raise BackendUnavailable(f"{self.name}: {function} answers {status.name}")
        return tuple(results)


def no_memory(name: str, wanted: int, free: int) -> MemoryLimit:
    return MemoryLimit(f"{name} has {free / 2**20:.0f} MiB of memory left, and {wanted / 2**20:.0f} MiB are wanted")


def cuda_devices() -> tuple[CudaDevice, ...]:
    """Every GPU of this machine; raises BackendUnavailable when there is none, or no bindings."""
    core = gpu.bindings()
    try:
        count = len(core.Device.get_all_devices())
    except Exception as error:
        raise BackendUnavailable(
            f"no GPU can be used ({error}): an NVIDIA GPU and its driver are wanted; the backend 'cpu' needs neither"
        ) from error
    if not count:
        raise BackendUnavailable("no GPU is there: an NVIDIA GPU is wanted; the backend 'cpu' needs none")
    return tuple(CudaDevice(index) for index in range(count))
