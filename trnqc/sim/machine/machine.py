"""State of a running kernel: core, generation, issued instructions and live memory.

Every instruction goes through ``Run.issue``. Its id is its position in the compiled program, so an instruction in the
body of a device loop has the same id in every pass.
"""

from __future__ import annotations

import threading
from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from trnqc.sim.machine.arithmetic import Arithmetic
from trnqc.sim.machine.faults import NkiValidationError
from trnqc.sim.machine.targets import Target

if TYPE_CHECKING:
    from trnqc.sim.memory.tensor import NkiTensor

_active = threading.local()


@dataclass(frozen=True)
class Region:
    """The part of a tile that an operand touches: partitions and bytes within a partition, both half-open."""

    buffer: str
    tile: int
    partitions: tuple[int, int]
    bytes: tuple[int, int]
    elements: int
    dtype: str


@dataclass(frozen=True)
class Instruction:
    """One executed instruction. ``loops`` holds (loop id, iteration) from the outermost device loop inwards."""

    id: int
    op: str
    engine: str
    outputs: tuple[Region, ...]
    inputs: tuple[Region, ...]
    loops: tuple[tuple[int, int], ...]
    name: str | None


@dataclass
class TileRecord:
    """Lifetime of one on-chip tile; ``first`` and ``last`` are the instruction ids of its first and last use.

    ``address`` is None unless the kernel chose it. ``scope`` is the loop path in which the tile was allocated.
    """

    id: int
    name: str
    space: str
    shape: tuple[int, ...]
    dtype: str
    nbytes: int
    address: tuple[int, int] | None = None
    first: int = -1
    last: int = -1
    scope: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True)
class Trace:
    """The instructions and memory use of a run.

    Attributes
    ----------
    target
        Name of the generation.
    static
        Number of instructions in the compiled program, by name. The body of a device loop counts once.
    executed
        Number of instructions that the machine executes, by name.
    sbuf_high_water, psum_high_water
        Largest number of bytes per partition in use.
    tiles
        The on-chip tiles that were used.
    records
        The executed instructions in order, if they were requested.
    """

    target: str
    static: Counter[str]
    executed: Counter[str]
    sbuf_high_water: int
    psum_high_water: int
    tiles: tuple[TileRecord, ...]
    records: tuple[Instruction, ...] = ()


@dataclass
class Run:
    """State of one core while its program runs."""

    target: Target
    arithmetic: Arithmetic = field(default_factory=Arithmetic)
    dry: bool = False
    recording: bool = False
    core: int = 0
    cores: int = 1
    links: Any = None  # resources shared by the cores of one launch, see `trnqc.sim.launch.launch.Links`
    tick: int = 0
    tile_count: int = 0
    loop_count: int = 0
    shared_count: int = 0
    counting: bool = True  # whether the current position in the program is visited for the first time
    weight: int = 1  # number of executions that one visit represents
    absent: bool = False  # whether the run is inside a device loop without any pass
    loop_path: tuple[tuple[int, int], ...] = ()
    trips: list[tuple[Any, int]] = field(default_factory=list[tuple[Any, int]])  # (place, passes) of each device loop
    no_reorder: int = 0
    place: tuple[str, int, str] | None = None  # file, line and function of the call that is interpreted
    static: Counter[str] = field(default_factory=Counter[str])
    executed: Counter[str] = field(default_factory=Counter[str])
    tiles: list[TileRecord] = field(default_factory=list)
    records: list[Instruction] = field(default_factory=list)
    lanes: dict[str, Any] = field(default_factory=dict[str, Any])  # reduction registers by engine
    assign: Any = None  # copies a tensor into another where the rules let a kernel assign to elements
    observer: Any = None  # receives every instruction and device loop, see `trnqc.sim.timeline.record`

    def issue(
        self,
        op: str,
        engine: str,
        outputs: tuple[NkiTensor, ...],
        inputs: tuple[NkiTensor, ...],
        name: str | None = None,
    ) -> bool:
        """Count one instruction and check its operands.

        Parameters
        ----------
        op, engine : str
            Names of the instruction and of the engine that executes it.
        outputs, inputs : tuple of NkiTensor
            Tensors that it writes and reads.
        name : str, optional
            Label of the kernel for this instruction.

        Returns
        -------
        bool
            Whether the caller must compute the results.
        """
        tick = self.tick
        self.tick = tick + 1
        if self.weight:
            self.executed[op] += self.weight
        if self.counting:
            self.static[op] += 1
        for tensor in outputs + inputs:
            self._touch(tensor, tick)
        if not self.absent:
            _mark_psum(outputs if engine != "tensor" else (), inputs)
        if self.recording and self.weight:
            outs, ins = tuple(t.region() for t in outputs), tuple(t.region() for t in inputs)
            self.records.append(Instruction(tick, op, engine, outs, ins, self.loop_path, name))
        if self.observer is not None:
            self.observer.instruction(self, tick, op, engine, outputs, inputs, name)
        return not self.dry or (not self.absent and self._computable(outputs, inputs))

    def _touch(self, tensor: NkiTensor, tick: int) -> None:
        record = tensor.storage.record
        if record is not None:
            if record.scope and self.loop_path[: len(record.scope)] != record.scope:
                raise NkiValidationError(
                    f"tile {record.name}{record.shape} was made in one pass of a device loop and is used "
                    "outside of it; allocate it before the loop"
                )
            if record.first < 0:
                record.first = tick
            if record.last < tick:
                record.last = tick
        source: Any = None if tensor.dynamic is None else tensor.dynamic.source
        if hasattr(source, "storage"):
            self._touch(source, tick)

    def _computable(self, outputs: tuple[NkiTensor, ...], inputs: tuple[NkiTensor, ...]) -> bool:
        """Return whether all operands are integer data with known values; for dry runs.

        Runtime offsets are checked in any case.
        """
        known = True
        for tensor in outputs + inputs:
            if tensor.dynamic is not None and not tensor.dynamic.check_dry(tensor):
                known = False
            known = known and tensor.storage.raw is not None
        known = known and all(t.storage.known for t in inputs)
        for tensor in outputs:
            if not known:
                tensor.storage.known = False
            elif tensor.size == tensor.storage.size:
                tensor.storage.known = True
        return known

    def enter(self) -> Run | None:
        """Make this the run of the calling thread and return the previous one."""
        before = getattr(_active, "run", None)
        _active.run = self
        return before


def _mark_psum(written: tuple[NkiTensor, ...], read: tuple[NkiTensor, ...]) -> None:
    """Update the accumulation state of PSUM: a read closes a group, a write by another engine than TensorE fills it.

    TensorE tracks its own writes.
    """
    for tensor in read:
        if tensor.storage.psum is not None:
            tensor.storage.psum.mark_read(tensor.psum_key())
    for tensor in written:
        if tensor.storage.psum is not None:
            tensor.storage.psum.mark_filled(tensor.psum_key())


def leave(before: Run | None) -> None:
    """Restore the run that `Run.enter` returned."""
    _active.run = before


def running() -> Run | None:
    """Return the run of the calling thread, or None outside a kernel."""
    return getattr(_active, "run", None)


def current() -> Run:
    """Return the run of the calling thread; raises NkiValidationError outside a kernel."""
    run = getattr(_active, "run", None)
    if run is None:
        raise NkiValidationError(
            "NKI operations work only inside a running kernel; start it with nki.simulate(kernel)(*arrays)"
        )
    return run
