"""Devices that run generated kernels: GPUs through CUDA, and a simulated device on the CPU.

A recipe is built for a number of lanes and launched over a range of groups on a stream; its arrays are in the device's
memory. The simulated device runs the same programs as C, one group after the other, so that all code except the GPU
itself can be tested: several devices, streams, and memory that runs out.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from trnqc.errors import BackendUnavailable, MemoryLimit
from trnqc.gen import emit_cuda
from trnqc.jit import gpu
from trnqc.jit.recipe import Recipe, Target, library, stored
from trnqc.jit.signature import GROUPS, NUMPY, Parameter, Signature

# The simulated device is for tests: compiling fast matters more than running fast.
SIMULATED_FLAGS = ("-O1",)


@dataclass(eq=False)
class Memory:
    """An array in a device's memory. Only the device knows what `handle` is."""

    handle: Any = field(repr=False)
    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


@dataclass(frozen=True, eq=False)
class Built:
    """A kernel that is ready to be launched in groups of `lanes`. stack: bytes of local memory per lane."""

    signature: Signature
    lanes: int
    handle: Any = field(repr=False)
    stack: int = 0

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters without the range of groups, which `launch` takes by itself."""
        return self.signature.parameters[: -len(GROUPS)]


Argument = Memory | int | float


class Device(Protocol):
    """A machine with its own memory.

    Attributes
    ----------
    name : str
        In words.
    arch : str
        The architecture, such as ``sm_80``.
    streams : int
        The number of streams. Launches on different ones may overlap.
    most_lanes : int
        The largest number of lanes of a group.
    multiprocessors : int
        The number of multiprocessors.
    """

    name: str
    arch: str
    streams: int
    most_lanes: int
    multiprocessors: int

    def free_memory(self) -> int:
        """Bytes that can still be allocated."""

    def build(self, recipe: Recipe, lanes: int, *, accumulate: str = "fence", min_blocks: int = 0) -> Built:
        """Compile the only function of a recipe, or take it from the cache. For the options see `gen.emit_cuda`.

        Raises CompilerError.
        """

    def upload(self, array: np.ndarray) -> Memory:
        """Copy an array to the device's memory. Raises MemoryLimit."""

    def zeros(self, *shape: int, dtype: Any = np.float64) -> Memory:
        """Allocate an array of zeros. Raises MemoryLimit."""

    def write(self, memory: Memory, array: np.ndarray) -> None:
        """Overwrite the first elements at once: launches that use them must have finished."""

    def download(self, memory: Memory) -> np.ndarray:
        """Copy an array from the device after all launches so far."""

    def release(self, *memories: Memory) -> None:
        """Free memory after all launches so far."""

    def launch(self, built: Built, groups: int, arguments: Mapping[str, Argument], stream: int = 0) -> None:
        """Queue the groups 0 .. groups - 1 on a stream, and return.

        arguments: by the names of the parameters; other names in the mapping are ignored.
        """

    def synchronize(self, stream: int | None = None) -> None:
        """Wait for all launches, or those on one stream."""


class SimulatedDevice:
    """A device simulated on the CPU, with `memory` bytes and at most `lanes` lanes in a group; it counts launches."""

    def __init__(self, name: str = "simulated", memory: int = 1 << 34, lanes: int = 32, streams: int = 2) -> None:
        self.name, self.arch, self.streams, self.most_lanes = name, "simulated", streams, lanes
        self.multiprocessors, self.memory = 2, memory
        self.used = self.most_used = self.launches = 0

    def free_memory(self) -> int:
        return self.memory - self.used

    def build(self, recipe: Recipe, lanes: int, *, accumulate: str = "fence", min_blocks: int = 0) -> Built:
        (signature,) = recipe.signatures
        return Built(signature, lanes, getattr(library(recipe, lanes, SIMULATED_FLAGS), signature.name))

    def upload(self, array: np.ndarray) -> Memory:
        memory = self.zeros(*array.shape, dtype=array.dtype)
        memory.handle[...] = array
        return memory

    def zeros(self, *shape: int, dtype: Any = np.float64) -> Memory:
        memory = Memory(None, shape, np.dtype(dtype))
        if memory.nbytes > self.free_memory():
            raise no_memory(self.name, memory.nbytes, self.free_memory())
        self.used += memory.nbytes
        self.most_used = max(self.most_used, self.used)
        memory.handle = np.zeros(shape, dtype)
        return memory

    def write(self, memory: Memory, array: np.ndarray) -> None:
        memory.handle.reshape(-1)[: array.size] = array.reshape(-1)

    def download(self, memory: Memory) -> np.ndarray:
        return memory.handle.copy()

    def release(self, *memories: Memory) -> None:
        self.used -= sum(m.nbytes for m in memories)
        for memory in memories:
            memory.handle = None

    def launch(self, built: Built, groups: int, arguments: Mapping[str, Argument], stream: int = 0) -> None:
        if not 0 <= stream < self.streams:
            raise BackendUnavailable(f"{self.name} has streams 0 .. {self.streams - 1}, found {stream}")
        self.launches += 1
        operands = (arguments[p.name] for p in built.parameters)
        built.handle(*(a.handle if isinstance(a, Memory) else a for a in operands), 0, groups)

    def synchronize(self, stream: int | None = None) -> None:
        """Nothing to do: `launch` returns when the kernel has finished."""


class CudaDevice:
    """A GPU. Kernels are compiled by NVRTC for its architecture.

    Raises BackendUnavailable, saying why, if it cannot be used.
    """

    def __init__(self, index: int = 0, streams: int = 4) -> None:
        core = gpu.bindings()
        try:
            self._device = core.Device(index)
            self._device.set_current()
            self.name, self.arch = str(self._device.name), f"sm_{self._device.arch}"
            self.multiprocessors = int(self._device.properties.multiprocessor_count)
            self._streams = [self._device.create_stream() for _ in range(streams)]
        except Exception as error:  # the bindings raise a class of their own for each library
            raise BackendUnavailable(f"CUDA device {index} cannot be used: {error}") from error
        self._core, self.streams, self.most_lanes = core, streams, 1024

    def free_memory(self) -> int:
        return int(self._driver("cuMemGetInfo")[0])

    def build(self, recipe: Recipe, lanes: int, *, accumulate: str = "fence", min_blocks: int = 0) -> Built:
        (signature,) = recipe.signatures
        target = Target(
            (gpu.nvrtc_version(), self.arch, str(lanes), accumulate, str(min_blocks)),
            ".cubin",
            lambda functions, _: emit_cuda(*functions, lanes=lanes, accumulate=accumulate, min_blocks=min_blocks),
            lambda text, out, _: _write(out, gpu.compile_nvrtc(text, name=recipe.name, arch=self.arch)),
        )
        path = stored(recipe, target)
        self._device.set_current()
        kernel = self._core.ObjectCode.from_cubin(path.read_bytes()).get_kernel(signature.name)
        return Built(signature, lanes, kernel, int(kernel.attributes.local_size_bytes))

    def upload(self, array: np.ndarray) -> Memory:
        memory = self._allocate(array.shape, array.dtype)
        self.write(memory, array)
        return memory

    def write(self, memory: Memory, array: np.ndarray) -> None:
        array = np.ascontiguousarray(array, memory.dtype)
        if array.nbytes > memory.nbytes:
            raise no_memory(f"an array of {self.name}", array.nbytes, memory.nbytes)
        if array.nbytes:
            self._driver("cuMemcpyHtoD", int(memory.handle.handle), array.ctypes.data, array.nbytes)

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

    def launch(self, built: Built, groups: int, arguments: Mapping[str, Argument], stream: int = 0) -> None:
        self._device.set_current()
        operands = []
        for p in built.parameters:
            a = arguments[p.name]
            operands.append(a.handle if isinstance(a, Memory) else np.dtype(NUMPY[p.dtype]).type(a))
        config = self._core.LaunchConfig(grid=groups, block=built.lanes)
        self._core.launch(self._streams[stream], config, built.handle, *operands)

    def synchronize(self, stream: int | None = None) -> None:
        self._device.set_current()
        for each in self._streams if stream is None else [self._streams[stream]]:
            each.sync()

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
        """Call the CUDA driver in the context of this device. Raises BackendUnavailable with the driver's status."""
        from cuda.bindings import driver

        self._device.set_current()
        status, *results = getattr(driver, function)(*arguments)
        if int(status) != 0:
            raise BackendUnavailable(f"{self.name}: {function} answers {status.name}")
        return tuple(results)


def _write(out: Path, data: bytes) -> None:
    out.write_bytes(data)


def no_memory(name: str, wanted: int, free: int) -> MemoryLimit:
    return MemoryLimit(f"{name} has {free / 2**20:.0f} MiB of memory left, and {wanted / 2**20:.0f} MiB are wanted")


def cuda_devices() -> tuple[CudaDevice, ...]:
    """All GPUs of this machine. Raises BackendUnavailable if there is none, or if cuda-core is missing."""
    core = gpu.bindings()
    try:
        count = len(core.Device.get_all_devices())
    except Exception as error:
        raise BackendUnavailable(
            f"no GPU can be used ({error}): this needs an NVIDIA GPU and its driver; the backend 'cpu' needs neither"
        ) from error
    if not count:
        raise BackendUnavailable("there is no GPU: this needs an NVIDIA GPU; the backend 'cpu' needs none")
    return tuple(CudaDevice(index) for index in range(count))
