"""The program that a run issues, as a tree of instructions and device loops with the bytes that each operand touches.

``Recorder`` observes a run. It keeps the first pass of each device loop and the number of passes. This is complete,
because the kernel language has no loop whose body changes from pass to pass.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from trnqc.sim.memory import views

if TYPE_CHECKING:
    from trnqc.sim.machine.machine import Run
    from trnqc.sim.memory.tensor import NkiTensor


class Operand(NamedTuple):
    """The part of one storage that an instruction reads or writes, in memory `space`: "sbuf", "psum" or "hbm".

    [p0, p1) and [b0, b1) are ranges of partitions and bytes; on-chip byte addresses are relative to the partition.
    `width` counts elements per partition on chip, all elements in HBM. `run` is the length in bytes of the contiguous
    runs, `far` the innermost stride in bytes, `rows` the extent of the first dimension. A `dynamic` address depends on
    a runtime value; the ranges then cover the whole storage.
    """

    storage: int
    space: str
    p0: int
    p1: int
    b0: int
    b1: int
    width: int
    itemsize: int
    dtype: str
    run: int
    far: int
    rows: int
    dynamic: bool
    shape: tuple[int, ...]


class Step(NamedTuple):
    """One instruction.

    ``registers`` holds the ids of the instructions that wrote the registers it reads. The last ``indices`` of the
    inputs are tiles with runtime addresses, which are read before any data move.
    """

    id: int
    op: str
    engine: str
    outputs: tuple[Operand, ...]
    inputs: tuple[Operand, ...]
    registers: tuple[int, ...]
    name: str
    indices: int = 0

    @property
    def data(self) -> tuple[Operand, ...]:
        """The inputs without those that hold addresses."""
        return self.inputs[: len(self.inputs) - self.indices]


@dataclass
class Loop:
    """A device loop: its body is issued ``trips`` times."""

    id: int
    registers: tuple[int, ...]
    trips: int = 0
    body: list[Step | Loop] = field(default_factory=list)


class Tile(NamedTuple):
    """An allocation. ``size`` is in bytes, per partition on chip; ``address`` is None unless the kernel chose it."""

    space: str
    name: str
    size: int
    address: int | None
    record: Any


class Recorder:
    """Observer of a run that collects its ``program`` and its ``tiles``, the latter by storage number."""

    def __init__(self) -> None:
        self.program: list[Step | Loop] = []
        self.tiles: list[Tile] = []
        self._open: list[Loop] = []
        self._numbers: dict[int, int] = {}
        self._alive: list[Any] = []  # references that keep the storages alive, so that their ids stay unique
        self._operands: dict[tuple[Any, ...], Operand] = {}

    def open_loop(self, run: Run, loop: int, bounds: tuple[Any, ...]) -> None:
        if _first_pass(run):
            writers = tuple(b.writer for b in bounds if getattr(b, "writer", -1) >= 0)
            self._open.append(Loop(loop, writers))

    def close_loop(self, run: Run, loop: int, trips: int) -> None:
        if _first_pass(run):
            done = self._open.pop()
            done.trips = trips
            if done.body and trips:
                self._place().append(done)

    def instruction(
        self,
        run: Run,
        tick: int,
        op: str,
        engine: str,
        outputs: tuple[NkiTensor, ...],
        inputs: tuple[NkiTensor, ...],
        name: str | None,
    ) -> None:
        if run.loop_path and not _first_pass(run):
            return
        engine = "sync" if engine == "unknown" else engine
        outs = tuple([self._operand(t) for t in outputs])
        ins = tuple([self._operand(t) for t in inputs])
        registers: tuple[int, ...] = ()
        for t in outputs + inputs:
            if t.dynamic is not None:
                source: Any = t.dynamic.source
                if hasattr(source, "storage"):
                    ins = (*ins, self._operand(source))
                elif source is not None and source.writer >= 0:
                    registers = (*registers, source.writer)
        self.append(Step(tick, op, engine, outs, ins, registers, name or "", len(ins) - len(inputs)), run.loop_path)

    def append(self, step: Step, scope: tuple[tuple[int, int], ...]) -> None:
        """Add an instruction to the program; ``scope`` is the loop path at which it is issued."""
        self._place().append(step)

    def _place(self) -> list[Step | Loop]:
        return self._open[-1].body if self._open else self.program

    def _operand(self, t: NkiTensor) -> Operand:
        key = (id(t.storage), t.offset, t.shape, t.strides, t.dtype.itemsize, t.dynamic is None)
        operand = self._operands.get(key)
        if operand is None:
            operand = self._operands[key] = self._measure(t)
        return operand

    def _measure(self, t: NkiTensor) -> Operand:
        storage, item, on_chip = t.storage, t.dtype.itemsize, t.on_chip
        first = 1 if on_chip else 0
        shape, strides = t.shape[first:], t.strides[first:]
        low, high = views.span(shape, strides)
        run, far = _inner(shape, strides)
        space = storage.buffer.value if on_chip else "hbm"
        if on_chip:
            p0 = t.start_partition
            p1 = p0 + t.shape[0]
            start, whole = t.offset % t.partition_stride, t.partition_stride
            width = t.size // t.shape[0]
        else:
            p0, p1, start, whole, width = 0, 1, t.offset, storage.nbytes // item, t.size
        b0, b1 = (start + low) * item, (start + high + 1) * item
        if t.dynamic is not None:  # The runtime address may be anywhere in the storage.
            b0, b1 = 0, whole * item
        number = self._number(storage)
        return Operand(
            number,
            space,
            p0,
            p1,
            b0,
            b1,
            width,
            item,
            t.dtype.name,
            run * item,
            far * item,
            t.shape[0],
            t.dynamic is not None,
            t.shape,
        )

    def _number(self, storage: Any) -> int:
        number = self._numbers.get(id(storage))
        if number is None:
            number = self._numbers[id(storage)] = len(self.tiles)
            self._alive.append(storage)
            record = storage.record
            address = record.address[1] if record is not None and record.address is not None else None
            space = storage.buffer.value if storage.on_chip else "hbm"
            size = storage.free * storage.dtype.itemsize if storage.on_chip else storage.nbytes
            self.tiles.append(Tile(space, storage.name or "", size, address, record))
        return number


def _first_pass(run: Run) -> bool:
    return not any(index for _, index in run.loop_path)


def _inner(shape: tuple[int, ...], strides: tuple[int, ...]) -> tuple[int, int]:
    """Return the length of a contiguous run and the stride of the innermost non-trivial dimension, in elements."""
    run, far, dense = 1, 0, True
    for n, stride in zip(reversed(shape), reversed(strides), strict=True):
        if n == 1:
            continue
        far = far or abs(stride) or 1
        if dense and stride == run:
            run *= n
        else:
            dense = False
    return run, far or 1
