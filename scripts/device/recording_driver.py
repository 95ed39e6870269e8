"""A stand-in for the CUDA driver that records every call, and runs kernels on the CPU.

`RecordedDevice` is `CudaDevice` on top of it: all host code of a GPU runs unchanged. The CUDA text of its kernels runs
by `trnqc.jit.emulator`, without checks of memory, because PyTorch's is not known here. Instead of a cubin, its NVRTC
writes the compute capability for which it was asked to compile, and a device loads only what was compiled for its own.
Within `RecordingDriver.capture` only calls are accepted that a CUDA graph can capture, and they can be replayed. Graphs
that the host code builds itself have a stand-in too (recorded_graphs.py).
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import numpy as np

from scripts.device.recorded_graphs import GraphBuilder
from trnqc.errors import BackendUnavailable
from trnqc.jit import emulator
from trnqc.jit.device import BuiltKernel, CudaDevice
from trnqc.jit.gpu import Bindings
from trnqc.jit.recipe import Recipe
from trnqc.jit.simulated_device import BLOCKS

# Calls that a CUDA graph captures, or that do not concern the device. All others wait for the device, allocate or load.
CAPTURED = frozenset({"launch", "Device.set_current", "Stream.from_handle"})


class CaptureError(RuntimeError):
    """A call that is not allowed while a CUDA graph is captured."""


@dataclass(frozen=True)
class Call:
    """A call of the driver.

    Attributes
    ----------
    name : str
        The function, such as ``launch`` or ``Stream.sync``.
    detail : str
        The kernel of a launch, else empty.
    stream : int or None
        The stream of a launch: its number for streams of the device, its address for others.
    nbytes : int
        The number of bytes of a copy or an allocation.
    launches : int
        The launches of a graph.
    """

    name: str
    detail: str = ""
    stream: int | None = None
    nbytes: int = 0
    launches: int = 0


@dataclass
class Graph:
    """What was captured, as a list of actions."""

    actions: list[Callable[[], Any]] = field(default_factory=list)

    def replay(self) -> None:
        """Run the captured launches again, on the same memory."""
        for action in self.actions:
            action()


class RecordingDriver:
    """The driver functions that `CudaDevice` calls, with a record of the calls.

    Parameters
    ----------
    memory : int
        The size of the device's memory in bytes.
    devices : int
        The number of devices.
    capability : int
        Ten times their compute capability.
    nvrtc : tuple of int
        The version of NVRTC.
    compiles_for : tuple of int
        The compute capabilities, times ten, for which NVRTC compiles.
    page_locks : bool
        Whether memory of the host can be page-locked.
    graphs : bool
        Whether graphs can be built.

    Attributes
    ----------
    calls : list of Call
        All calls so far.
    used : int
        Bytes that are allocated.
    """

    def __init__(
        self,
        memory: int = 1 << 34,
        devices: int = 1,
        capability: int = 80,
        nvrtc: tuple[int, int] = (13, 0),
        compiles_for: tuple[int, ...] = (75, 80, 90),
        page_locks: bool = True,
        graphs: bool = True,
    ) -> None:
        self.graphs = graphs
        self.memory, self.devices, self.used = memory, devices, 0
        self.page_locks, self._host = page_locks, dict[int, np.ndarray]()
        self.capability, self.nvrtc, self.compiles_for = capability, nvrtc, compiles_for
        self.calls: list[Call] = []
        self._capture: tuple[int, Graph] | None = None

    @property
    def bindings(self) -> Bindings:
        """Stand-ins for the modules of `gpu.bindings`."""
        core = SimpleNamespace(
            Device=lambda index: _Device(self, index),
            LaunchConfig=lambda grid, block: SimpleNamespace(grid=grid, block=block),
            ObjectCode=SimpleNamespace(from_cubin=lambda cubin: _ObjectCode(self, cubin)),
            Program=lambda text, language, options: _Program(self, options.arch),
            ProgramOptions=SimpleNamespace,
            Stream=SimpleNamespace(from_handle=lambda handle: _Stream(self, handle)),
            launch=self._launch,
        )
        names = (
            "cuMemGetInfo", "cuMemHostAlloc", "cuMemFreeHost", "cuMemcpyHtoDAsync", "cuMemcpyDtoHAsync",
            "cuStreamSynchronize",
        )  # fmt: skip
        functions = {name: getattr(self, f"_{name}") for name in names}
        nvrtc = SimpleNamespace(
            nvrtcVersion=lambda: (0, *self.nvrtc), nvrtcGetSupportedArchs=lambda: (0, self.compiles_for)
        )
        return Bindings(core, SimpleNamespace(**functions), nvrtc)

    def count(self, name: str) -> int:
        """Return the number of calls of a function."""
        return sum(call.name == name for call in self.calls)

    def do(self, call: Call, action: Callable[[], Any]) -> None:
        """Record a call and run it; while a graph is captured, keep it for replays instead.

        Raises
        ------
        CaptureError
            For a call that a graph cannot capture, or a launch on another stream than the captured one.
        """
        self.calls.append(call)
        if self._capture is None:
            action()
            return
        stream, graph = self._capture
        if call.name not in CAPTURED:
            raise CaptureError(f"{call.name} is not allowed while a CUDA graph is captured")
        if call.stream not in (None, stream):
            raise CaptureError(f"expected a launch on the captured stream {stream}, found one on {call.stream}")
        graph.actions.append(action)

    @contextmanager
    def capture(self, stream: int) -> Iterator[Graph]:
        """Capture the launches on the stream with this address."""
        graph = Graph()
        self._capture = stream, graph
        try:
            yield graph
        finally:
            self._capture = None

    @property
    def graph(self) -> Graph | None:
        """The graph that is being captured."""
        return None if self._capture is None else self._capture[1]

    def _launch(self, stream: _Stream | GraphBuilder, config: Any, kernel: _Kernel, *operands: Any) -> None:
        addresses = [op.handle if isinstance(op, _Buffer) else op for op in operands]
        if isinstance(stream, GraphBuilder):
            self.calls.append(Call("captured launch", kernel.name, stream.branch))
            stream.add(kernel.run, addresses, config.grid)
        else:
            self.do(Call("launch", kernel.name, stream.number), lambda: kernel.run(addresses, config.grid))

    def _launch_graph(self, stream: int, actions: list[Callable[[], Any]]) -> None:
        self.do(Call("Graph.launch", stream=stream, launches=len(actions)), lambda: self.replay(actions))

    def memory_of(self, nbytes: int) -> np.ndarray:
        """Return memory for an array of the device, with any content."""
        return np.empty(nbytes, np.uint8)

    def replay(self, actions: list[Callable[[], Any]]) -> None:
        """Run what a graph has captured."""
        for action in actions:
            action()

    def _cuMemGetInfo(self) -> tuple[int, int, int]:
        return 0, self.memory - self.used, self.memory

    def _cuMemHostAlloc(self, nbytes: int, flags: int) -> tuple[Any, ...]:
        if not self.page_locks:
            return _Failed("CUDA_ERROR_OUT_OF_MEMORY"), None
        self.do(Call("cuMemHostAlloc", nbytes=nbytes), lambda: None)
        array = np.empty(nbytes, np.uint8)
        self._host[array.ctypes.data] = array
        return 0, array.ctypes.data

    def _cuMemFreeHost(self, address: int) -> tuple[int]:
        del self._host[address]
        return (0,)

    def _cuMemcpyHtoDAsync(self, to: int, source: int, nbytes: int, stream: int) -> tuple[int]:
        self.do(Call("cuMemcpyHtoDAsync", stream=stream, nbytes=nbytes), lambda: ctypes.memmove(to, source, nbytes))
        return (0,)

    def _cuStreamSynchronize(self, stream: int) -> tuple[int]:
        self.do(Call("cuStreamSynchronize", stream=stream), lambda: None)
        return (0,)

    def _cuMemcpyDtoHAsync(self, to: int, source: int, nbytes: int, stream: int) -> tuple[int]:
        self.do(Call("cuMemcpyDtoHAsync", stream=stream, nbytes=nbytes), lambda: ctypes.memmove(to, source, nbytes))
        return (0,)


class _Failed(str):
    """The status of a call that failed."""

    @property
    def name(self) -> str:
        return str(self)

    def __int__(self) -> int:
        return 2


class RecordedDevice(CudaDevice):
    """A GPU whose driver is a `RecordingDriver` and whose kernels run on the CPU.

    Parameters
    ----------
    driver : RecordingDriver
    lanes : int
        The largest number of lanes of a group.
    index, streams
        As for `CudaDevice`.
    """

    def __init__(self, driver: RecordingDriver, lanes: int = 32, index: int = 0, streams: int = 4) -> None:
        super().__init__(index, streams, driver.bindings)
        self.driver, self.most_lanes = driver, lanes

    def build(self, recipe: Recipe, lanes: int, *, accumulate: str = "fence", min_blocks: int = 0) -> BuiltKernel:
        """Build a kernel as `CudaDevice` does, and compile its text for the CPU, which launches run."""
        built = super().build(recipe, lanes, accumulate=accumulate, min_blocks=min_blocks)
        kernel = emulator.build(recipe, lanes, accumulate=accumulate, min_blocks=min_blocks, checked=False)
        # The blocks that the driver reports are no kernel's, and must not decide about its form.
        return replace(built, handle=_Kernel(kernel), warps=0)


class _Program:
    """A text that NVRTC compiles."""

    def __init__(self, driver: RecordingDriver, arch: str) -> None:
        self.driver, self.arch = driver, arch

    def compile(self, kind: str) -> SimpleNamespace:
        self.driver.do(Call("Program.compile", self.arch), lambda: None)
        return SimpleNamespace(code=f"{kind} {self.arch}".encode())


class _ObjectCode:
    """A cubin, which the driver loads when a kernel is looked up."""

    def __init__(self, driver: RecordingDriver, cubin: bytes) -> None:
        self.driver, self.cubin = driver, cubin

    def get_kernel(self, name: str) -> SimpleNamespace:
        self.driver.do(Call("ObjectCode.from_cubin", name), lambda: None)
        if self.cubin != f"cubin sm_{self.driver.capability}".encode():
            raise RuntimeError("CUDA_ERROR_NO_BINARY_FOR_GPU")
        occupancy = SimpleNamespace(max_active_blocks_per_multiprocessor=lambda *_: BLOCKS)
        return SimpleNamespace(attributes=SimpleNamespace(local_size_bytes=0), occupancy=occupancy)


class _Kernel:
    def __init__(self, kernel: emulator.Emulated) -> None:
        self.name, self._kernel = kernel.signature.name, kernel

    def run(self, operands: Sequence[Any], groups: int) -> None:
        parameters = self._kernel.parameters
        values = [emulator.operand(op, p.dtype, p.array) for op, p in zip(operands, parameters, strict=True)]
        emulator.run(self._kernel, groups, values, ())


class _Stream:
    def __init__(self, driver: RecordingDriver, number: int) -> None:
        self.driver, self.number, self.handle = driver, number, number

    def sync(self) -> None:
        self.driver.do(Call("Stream.sync", stream=self.number), lambda: None)

    def wait(self, other: _Stream) -> None:
        """Let the device wait. All that is on the other stream has run already."""
        self.driver.do(Call("Stream.wait", stream=self.number), lambda: None)


class _Buffer:
    """Memory of the device, which is that of a NumPy array."""

    def __init__(self, driver: RecordingDriver, nbytes: int) -> None:
        self.driver, self._array = driver, driver.memory_of(nbytes)
        driver.used += nbytes
        self.handle = self._array.ctypes.data

    def fill(self, value: int, stream: _Stream) -> None:
        self.driver.do(Call("Buffer.fill", stream=stream.number), lambda: self._array.fill(value))

    def close(self, stream: _Stream) -> None:
        self.driver.do(Call("Buffer.close", stream=stream.number), lambda: None)
        self.driver.used -= self._array.nbytes


class _Device:
    def __init__(self, driver: RecordingDriver, index: int) -> None:
        if not 0 <= index < driver.devices:
            raise BackendUnavailable(f"expected a device below {driver.devices}, found {index}")
        self.driver, self.name, self.arch = driver, f"recorded {index}", str(driver.capability)
        self.properties = SimpleNamespace(multiprocessor_count=2)
        pool = SimpleNamespace(reserved_mem_current=0, used_mem_current=0)
        self.memory_resource = SimpleNamespace(attributes=pool)
        self._streams = 0

    def set_current(self) -> None:
        self.driver.do(Call("Device.set_current"), lambda: None)

    def create_stream(self) -> _Stream:
        self._streams += 1
        return _Stream(self.driver, self._streams - 1)

    def create_graph_builder(self) -> GraphBuilder:
        if not self.driver.graphs:
            raise RuntimeError("CUDA_ERROR_NOT_SUPPORTED")
        return GraphBuilder(self.driver._launch_graph)

    def allocate(self, nbytes: int, stream: _Stream) -> _Buffer:
        if nbytes > self.driver.memory - self.driver.used:
            raise MemoryError(f"{nbytes} bytes")
        self.driver.do(Call("Device.allocate", stream=stream.number, nbytes=nbytes), lambda: None)
        return _Buffer(self.driver, nbytes)
