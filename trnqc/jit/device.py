"""Devices that run generated kernels, and GPUs as such devices.

A recipe is compiled for a number of lanes. The kernel is launched for a number of groups on a stream, over arrays in
the memory of the device. `simulated_device.SimulatedDevice` is a device for tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from trnqc.errors import BackendUnavailable, InputError, MemoryLimit
from trnqc.jit import gpu
from trnqc.jit.cubins import cubin_of
from trnqc.jit.cuda.copies import CudaCopies
from trnqc.jit.cuda.graphs import ConvertedLaunch, CudaGraphs, CudaPrepared
from trnqc.jit.cuda.prepared import PreparedLaunch, PreparedLaunches
from trnqc.jit.occupancy import WARP
from trnqc.jit.recipe import Recipe
from trnqc.jit.signature import GROUPS, NUMPY, Parameter, Signature
from trnqc.jit.staging import Staging

# Threads of a block on every GPU (CUDA C++ Programming Guide, "Technical Specifications per Compute Capability").
MOST_LANES = 1024


@dataclass(eq=False)
class DeviceArray:
    """An array in the memory of a device. Only the device interprets `handle`."""

    handle: Any = field(repr=False)
    shape: tuple[int, ...]
    dtype: np.dtype

    @property
    def nbytes(self) -> int:
        return int(np.prod(self.shape, dtype=np.int64)) * self.dtype.itemsize


@dataclass(frozen=True, eq=False)
class BuiltKernel:
    """A kernel that is ready to be launched.

    Attributes
    ----------
    signature : Signature
        The parameters, the range of groups included.
    lanes : int
        The number of lanes of a group.
    handle : object
        The compiled kernel, which only the device interprets.
    stack : int
        Bytes of local memory per lane.
    blocks : int
        Groups that a multiprocessor can run at once.
    warps : int
        Warps that a multiprocessor can hold at once; 0 where the device does not know.
    """

    signature: Signature
    lanes: int
    handle: Any = field(repr=False)
    stack: int = 0
    blocks: int = 1
    warps: int = 0

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """The parameters without the range of groups, which `launch` adds."""
        return self.signature.parameters[: -len(GROUPS)]


Argument = DeviceArray | int | float


@dataclass(frozen=True)
class ExternalStream:
    """A stream that belongs to another library, such as ``torch.cuda.current_stream().cuda_stream``.

    A launch on it is ordered with the work of that library, so that neither side has to wait for the other.

    Attributes
    ----------
    handle : int
        The address of the CUDA stream; 0 is the default stream.
    """

    handle: int


class Device(Protocol):
    """A device with its own memory.

    Attributes
    ----------
    name : str
        The name of the device.
    arch : str
        The architecture, such as ``sm_80``.
    streams : int
        The number of streams. Launches on different streams may overlap.
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

    def build(self, recipe: Recipe, lanes: int, *, accumulate: str = "fence", min_blocks: int = 0) -> BuiltKernel:
        """Compile the only function of a recipe, or take the compiled one from the cache.

        Parameters
        ----------
        recipe : Recipe
            A recipe with one signature.
        lanes : int
            The number of lanes of a group.
        accumulate, min_blocks
            See `trnqc.gen.emit_cuda`.

        Raises
        ------
        CompilerError
            If the text does not compile.
        """

    def upload(self, array: np.ndarray) -> DeviceArray:
        """Copy an array to the memory of the device. Raises MemoryLimit if it does not fit."""

    def upload_all(self, arrays: Sequence[np.ndarray]) -> list[DeviceArray]:
        """Copy arrays as `upload` does, and wait once. Raises MemoryLimit, after which none of them is there."""

    def zeros(self, *shape: int, dtype: Any = np.float64) -> DeviceArray:
        """Allocate an array of zeros. Raises MemoryLimit if it does not fit."""

    def write(self, memory: DeviceArray, array: np.ndarray) -> None:
        """Overwrite the first elements of `memory` immediately. Launches that use them must have finished before."""

    def write_all(self, copies: Sequence[tuple[DeviceArray, np.ndarray]]) -> None:
        """Overwrite arrays as `write` does, and wait once."""

    def clear(self, *memories: DeviceArray) -> None:
        """Queue zeros for all elements of arrays on stream 0, without waiting for them."""

    def download(self, memory: DeviceArray) -> np.ndarray:
        """Wait for all launches so far, and copy an array from the device."""

    def download_all(self, memories: Sequence[DeviceArray]) -> list[np.ndarray]:
        """Copy arrays as `download` does, and wait once."""

    def release(self, *memories: DeviceArray) -> None:
        """Wait for all launches so far, and free the memory of arrays."""

    def launch(
        self, built: BuiltKernel, groups: int, arguments: Mapping[str, Argument], stream: int | ExternalStream = 0
    ) -> None:
        """Queue the groups 0 .. groups - 1 of a kernel on a stream, and return without waiting for them.

        Parameters
        ----------
        built : BuiltKernel
            The kernel.
        groups : int
            The number of groups.
        arguments : mapping
            Arguments by the names of the parameters. Other names are ignored.
        stream : int or ExternalStream
            The number of one of the device's streams, or a stream of another library.
        """

    def prepare(self, launches: Sequence[PreparedLaunch]) -> PreparedLaunches:
        """Convert the arguments of launches on streams of this device, so that queueing them takes less time."""

    def synchronize(self, stream: int | None = None) -> None:
        """Wait for the launches on one stream, or on all of them."""


class CudaDevice:
    """A GPU. Kernels are compiled by NVRTC for its architecture.

    Parameters
    ----------
    index : int
        The number of the GPU on this machine.
    streams : int
        The number of streams to create.
    bindings : Bindings, optional
        The modules through which the driver is called, by default those of cuda-core.

    Raises
    ------
    BackendUnavailable
        If the GPU cannot be used; the message says why.
    """

    def __init__(self, index: int = 0, streams: int = 4, bindings: gpu.Bindings | None = None) -> None:
        self._modules = gpu.bindings() if bindings is None else bindings
        core, self._driver_functions = self._modules.core, self._modules.driver
        try:
            self._device = core.Device(index)
            self._device.set_current()
            self.name, self.arch = str(self._device.name), f"sm_{self._device.arch}"
            self.multiprocessors = int(self._device.properties.multiprocessor_count)
            self._streams = [self._device.create_stream() for _ in range(streams)]
        except Exception as error:  # The bindings raise a different class for each library.
            raise BackendUnavailable(f"CUDA device {index} cannot be used: {error}") from error
        self._core, self.streams, self.most_lanes = core, streams, MOST_LANES
        free, new_stream = self._driver_functions.cuMemFreeHost, self._device.create_stream
        self.staging = Staging(CudaCopies(self.name, self._driver, free, new_stream))
        self.graphs = CudaGraphs(self.name, core, self._device, self._streams)

    def free_memory(self) -> int:
        # The pool from which arrays are allocated keeps the memory of those that have been released.
        pool = self._device.memory_resource.attributes
        return int(self._driver("cuMemGetInfo")[0]) + int(pool.reserved_mem_current) - int(pool.used_mem_current)

    def build(self, recipe: Recipe, lanes: int, *, accumulate: str = "fence", min_blocks: int = 0) -> BuiltKernel:
        (signature,) = recipe.signatures
        gpu.require_arch(self.name, self.arch, self._modules)
        path, _ = cubin_of(recipe, self.arch, lanes, accumulate, min_blocks, self._modules)
        handle, stack, blocks = self._load(path, signature.name, lanes)
        return BuiltKernel(signature, lanes, handle, stack, blocks, blocks * -(-lanes // WARP))

    def _load(self, path: Path, name: str, lanes: int) -> tuple[Any, int, int]:
        """Return a kernel of a cubin, its bytes of local memory per lane, and its resident blocks of so many lanes.

        Raises BackendUnavailable if the driver rejects the cubin.
        """
        self._device.set_current()
        try:
            kernel = self._core.ObjectCode.from_cubin(path.read_bytes()).get_kernel(name)
            # The driver may load the code only now. Some versions of cuda-core have a method here, others a property.
            stack = kernel.attributes.local_size_bytes
            blocks = int(kernel.occupancy.max_active_blocks_per_multiprocessor(lanes, 0))
            return kernel, int(stack() if callable(stack) else stack), blocks
        except Exception as error:  # The bindings raise a different class for each library.
            raise BackendUnavailable(
                f"{self.name} ({self.arch}) cannot load the kernel {name} ({error}). NVRTC "
                f"{gpu.nvrtc_version(self._modules)} compiled it, which may be newer than the driver: update the "
                f"driver, or install an older nvidia-cuda-nvrtc. If neither helps, remove {path}, which is then "
                "compiled again"
            ) from error

    def upload(self, array: np.ndarray) -> DeviceArray:
        return self.upload_all([array])[0]

    def upload_all(self, arrays: Sequence[np.ndarray]) -> list[DeviceArray]:
        return uploaded(self, self.staging, arrays, self._allocate)

    def write(self, memory: DeviceArray, array: np.ndarray) -> None:
        self.write_all([(memory, array)])

    def write_all(self, copies: Sequence[tuple[DeviceArray, np.ndarray]]) -> None:
        self.staging.upload(fitting(self.name, copies))

    def clear(self, *memories: DeviceArray) -> None:
        self._device.set_current()
        for memory in memories:
            memory.handle.fill(0, stream=self._streams[0])

    def zeros(self, *shape: int, dtype: Any = np.float64) -> DeviceArray:
        memory = self._allocate(shape, np.dtype(dtype))
        memory.handle.fill(0, stream=self._streams[0])
        self._streams[0].sync()
        return memory

    def download(self, memory: DeviceArray) -> np.ndarray:
        return self.download_all([memory])[0]

    def download_all(self, memories: Sequence[DeviceArray]) -> list[np.ndarray]:
        self.synchronize()
        arrays = [np.empty(memory.shape, memory.dtype) for memory in memories]
        self.staging.download(zip(memories, arrays))
        return arrays

    def release(self, *memories: DeviceArray) -> None:
        self.synchronize()
        for memory in memories:
            memory.handle.close(self._streams[0])
            memory.handle = None
        self._streams[0].sync()

    def launch(
        self, built: BuiltKernel, groups: int, arguments: Mapping[str, Argument], stream: int | ExternalStream = 0
    ) -> None:
        self._device.set_current()
        config = self._core.LaunchConfig(grid=groups, block=built.lanes)
        queue = self._streams[stream] if isinstance(stream, int) else self._core.Stream.from_handle(stream.handle)
        self._core.launch(queue, config, built.handle, *_operands(built, arguments))

    def prepare(self, launches: Sequence[PreparedLaunch]) -> PreparedLaunches:
        return CudaPrepared(self.graphs, [self._converted(each) for each in launches])

    def _converted(self, launch: PreparedLaunch) -> ConvertedLaunch:
        if not isinstance(launch.stream, int):
            raise InputError(f"prepared launches are on streams of {self.name}; found {launch.stream}")
        config = self._core.LaunchConfig(grid=launch.groups, block=launch.built.lanes)
        return ConvertedLaunch(launch.stream, config, launch.built.handle, _operands(launch.built, launch.arguments))

    def synchronize(self, stream: int | None = None) -> None:
        self._device.set_current()
        for each in self._streams if stream is None else [self._streams[stream]]:
            each.sync()

    def make_current(self) -> None:
        """Make this device the current one of the calling thread, as libraries of CUDA expect."""
        self._device.set_current()

    def address(self, memory: DeviceArray) -> int:
        """The address of an array in the memory of this device, for libraries of CUDA."""
        return int(memory.handle.handle)

    def stream_address(self, stream: int) -> int:
        """The address of a stream of this device, which becomes the current one, for libraries of CUDA."""
        self.make_current()
        return int(self._streams[stream].handle)

    def _allocate(self, shape: tuple[int, ...], dtype: np.dtype) -> DeviceArray:
        memory = DeviceArray(None, shape, dtype)
        self._device.set_current()
        try:
            memory.handle = self._device.allocate(max(memory.nbytes, 8), stream=self._streams[0])
        except Exception as error:
            raise no_memory(self.name, memory.nbytes, self.free_memory()) from error
        self._streams[0].sync()
        return memory

    def _driver(self, function: str, *arguments: Any) -> tuple[Any, ...]:
        """Call the CUDA driver in the context of this device. Raises BackendUnavailable if it returns an error."""
        self._device.set_current()
        status, *results = getattr(self._driver_functions, function)(*arguments)
        if int(status) != 0:
            raise BackendUnavailable(f"{self.name}: the driver function {function} returned {status.name}")
        return tuple(results)


def uploaded(
    device: Device,
    staging: Staging,
    arrays: Sequence[np.ndarray],
    allocate: Callable[[tuple[int, ...], np.dtype], DeviceArray],
) -> list[DeviceArray]:
    """Copy arrays to new ones of a device, and release these if memory for one of them is missing."""
    memories: list[DeviceArray] = []
    try:
        for array in arrays:
            memories.append(allocate(array.shape, array.dtype))
        staging.upload((m, np.ascontiguousarray(array)) for m, array in zip(memories, arrays))
    except BaseException:
        device.release(*memories)
        raise
    return memories


def fitting(name: str, copies: Sequence[tuple[DeviceArray, np.ndarray]]) -> Iterator[tuple[DeviceArray, np.ndarray]]:
    """Yield copies to arrays of a device, contiguous and in their types. Raises MemoryLimit if one does not fit."""
    for memory, array in copies:
        contiguous = np.ascontiguousarray(array, memory.dtype)
        if contiguous.nbytes > memory.nbytes:
            raise no_memory(f"an array of {name}", contiguous.nbytes, memory.nbytes)
        yield memory, contiguous


def _operands(built: BuiltKernel, arguments: Mapping[str, Argument]) -> list[Any]:
    """Return the operands of a launch as cuda-core takes them."""
    operands = []
    for p in built.parameters:
        a = arguments[p.name]
        operands.append(a.handle if isinstance(a, DeviceArray) else np.dtype(NUMPY[p.dtype]).type(a))
    return operands


def no_memory(name: str, needed: int, free: int) -> MemoryLimit:
    """The error for an allocation of `needed` bytes where only `free` bytes are left."""
    return MemoryLimit(f"{name} has {free / 2**20:.0f} MiB of memory left, but {needed / 2**20:.0f} MiB are needed")


def cuda_devices() -> tuple[CudaDevice, ...]:
    """All GPUs of this machine. Raises BackendUnavailable if there is none or cuda-core is not installed."""
    # The driver counts them: cuda-core 1.0 asks the runtime, which with bindings of CUDA 13.0 wants a newer driver.
    driver = gpu.bindings().driver
    try:
        for function, *arguments in (("cuInit", 0), ("cuDeviceGetCount",)):
            status, *results = getattr(driver, function)(*arguments)
            if int(status) != 0:
                raise RuntimeError(f"{function} returned {status.name}")
        (count,) = results
    except (
        Exception
    ) as error:  # The bindings raise RuntimeError where there is no driver, other versions other classes.
        raise BackendUnavailable(
            f"no GPU can be used ({error}): CUDA needs an NVIDIA GPU and its driver; the backend 'cpu' needs neither"
        ) from error
    if not count:
        raise BackendUnavailable("this machine has no NVIDIA GPU; use the backend 'cpu'")
    return tuple(CudaDevice(index) for index in range(count))
