"""J and K on GPUs: quartets are selected on the host and digested on the devices.

tables -> each device's memory (once)        density -> each device's memory (every build)
tables -> stretches of selected quartets (device_batch.py) -> dealt out to devices and their streams -> sums of all

Every device holds D, J and K; a stretch goes to the device with the least to do so far. A device without room for the
buffers of all its workers gets fewer of them.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from pyscf import gto

from trnqc import backends
from trnqc.eri.classes import QuartetClass
from trnqc.eri.cuda.batch import NEXT, OWN, TASKS, USED, select, select_name, select_signature, work_recipe
from trnqc.eri.cuda.tiers import Tier, absurd, candidates
from trnqc.eri.jk import builder, schwarz
from trnqc.eri.jk.batch import Batch
from trnqc.eri.jk.run import Run
from trnqc.eri.jk.screening import Table
from trnqc.eri.jk.tasks import Task, tasks_of
from trnqc.eri.kernels import boys
from trnqc.eri.kernels.parameters import work_size
from trnqc.eri.library import programs
from trnqc.errors import CompilerError, InputError, MemoryLimit
from trnqc.gen.statements import Function
from trnqc.host.progress import StageBars
from trnqc.jit import Library, Recipe, build_all
from trnqc.jit.device import Built, Device, Memory
from trnqc.ranks import ALONE, Ranks

# Places of a queue, and vectors of it that a worker takes at a time.
QUEUE, SHARE = 1 << 20, 8


class JKBuilder(builder.JKBuilder):
    """As the CPU's builder of this name, on `devices`, by default this rank's share of the machine's GPUs.

    notes: what did not go as planned, in words. Sums on a device are made in any order: from build to build, and with
    other ranks, J and K differ by rounding. Raises BackendUnavailable without a GPU.
    """

    def __init__(
        self, mol: gto.Mole, omega: float | None = None, cutoff: float = builder.CUTOFF, threads: int | None = None,
        ranks: Ranks = ALONE, schedule: str = "dynamic", devices: Sequence[Device] | None = None,
    ) -> None:  # fmt: skip
        # Selecting is one thread's work.
        super().__init__(mol, omega=omega, cutoff=cutoff, threads=1, ranks=ranks, schedule=schedule)
        self.devices: tuple[Device, ...] = (
            _share(backends.devices("cuda"), ranks) if devices is None else tuple(devices)
        )
        if not self.devices:
            raise InputError("at least one device is wanted")
        self.notes: list[str] = []
        self._built: dict[tuple[int, Batch], tuple[Tier, Built]] = {}
        self._residents: dict[int, _Resident] = {}

    @property
    def ran_on(self) -> str:
        names = [device.name for device in self.devices]
        return "generated CUDA, " + ", ".join(f"{names.count(n)} x {n}" for n in dict.fromkeys(names))

    def build(self, with_j: bool = True, with_k: bool = True) -> dict[QuartetClass, Library]:
        """Compile what selects quartets, and for every device what digests them."""
        if (with_j, with_k) not in self._libraries:
            batches = [Batch(cls, with_j, with_k) for cls in self.classes()]
            made = programs.build([_host_program(batch) for batch in batches])
            self._libraries[with_j, with_k] = {b.cls: made[_host_program(b).name] for b in batches}
            jobs = {
                f"{n} {batch.name}": partial(self._first_sound, device, batch)
                for n, device in enumerate(self.devices)
                for batch in batches
            }
            with StageBars() as bars:
                built = build_all(jobs, progress=bars.of("building kernels of devices"))
            for (n, batch), found in zip(((n, b) for n in range(len(self.devices)) for b in batches), built.values()):
                if isinstance(found, CompilerError):
                    raise found
                self._built[n, batch] = found
        return self._libraries[with_j, with_k]

    def _first_sound(self, device: Device, batch: Batch) -> tuple[Tier, Built]:
        """The first form that compiles without spilling absurdly; of those left behind a warning tells."""
        failures = []
        for tier in candidates(batch.cls):
            lanes = min(tier.lanes, device.most_lanes)
            try:
                options: dict[str, Any] = {"accumulate": tier.accumulate, "min_blocks": tier.min_blocks}
                built = device.build(work_recipe(batch, tier), lanes, **options)
            except CompilerError as error:
                failures.append(f"targets in {tier.name}: {str(error).splitlines()[0]}")
                continue
            if not absurd(built.stack):
                for failure in failures:
                    self._note(f"({batch.cls.digits}) on {device.name}: {failure}; the next form is used")
                return tier, built
            failures.append(f"targets in {tier.name}: {built.stack} bytes a thread beside the registers")
        raise CompilerError(f"no form of {batch.name} can be built for {device.name}: {'; '.join(failures)}")

    def _note(self, text: str) -> None:
        self.notes.append(text)
        warnings.warn(text, RuntimeWarning, stacklevel=2)

    def _summed(
        self, run: Run, found: tuple[Table, ...], libraries: dict[QuartetClass, Library]
    ) -> tuple[np.ndarray, np.ndarray]:
        loads = [_Load(self, n, run) for n in range(len(self.devices))]
        try:
            for task in self._own_tasks(found):
                batch = Batch(task.cls, run.with_j, run.with_k)
                for n, stretch in self._dealt(task, batch, run, libraries[task.cls], loads):
                    loads[n].launch(task, batch, stretch)
            results = [load.results() for load in loads]
        finally:
            for load in loads:
                load.release()
        pairs, blocks = (self.ranks.sum(np.sum(parts, axis=0)) for parts in zip(*results))
        return pairs, blocks

    def _own_tasks(self, found: tuple[Table, ...]) -> Iterator[Task]:
        if self.ranks.size == 1:
            yield from tasks_of(found, self._class)
            return
        groups = self._groups(found)
        for n in self._share([sum(task.cost for task in group) for group in groups]):
            yield from groups[n]

    def _dealt(
        self, task: Task, batch: Batch, run: Run, host: Library, loads: Sequence[_Load]
    ) -> Iterator[tuple[int, _Stretch]]:
        """Stretches of a task's quartets, each with the device that has least to do. Lanes are those of the device."""
        begin = task.begin
        while begin < task.end:
            n = min(range(len(loads)), key=lambda n: loads[n].cost)
            stretch = _selected(task, batch, run, host, self._built[n, batch][1].lanes, begin)
            begin = int(stretch.state[NEXT])
            loads[n].cost += task.cost * stretch.state[USED] / (len(task.bra) * len(task.ket))
            if stretch.state[TASKS]:
                yield n, stretch


def _share(devices: Sequence[Device], ranks: Ranks) -> tuple[Device, ...]:
    """One GPU at least, with others if there are more ranks than GPUs."""
    local = ranks.rank % ranks.neighbours
    return tuple(devices[local :: ranks.neighbours] or devices[local % len(devices) : local % len(devices) + 1])


def _host_program(batch: Batch) -> Recipe:
    signatures, makers = [select_signature(batch)], [partial(select, batch)]
    if batch.cls.shells[:2] == batch.cls.shells[2:]:
        signatures.append(schwarz.signature(batch.cls))
        makers.append(partial(schwarz.bounds, batch.cls))

    def make() -> tuple[Function, ...]:
        return tuple(maker() for maker in makers)

    return Recipe(f"host_{batch.name}", tuple(signatures), make, "trnqc.eri.cuda.batch")


@dataclass(frozen=True)
class _Stretch:
    """What `device_batch.select` made."""

    numbers: np.ndarray
    state: np.ndarray
    tasks: np.ndarray
    queue: np.ndarray
    weight: np.ndarray


def _selected(task: Task, batch: Batch, run: Run, host: Library, lanes: int, begin: int) -> _Stretch:
    """Quartets from bra pair `begin` on, as many as a queue takes; at least those of one bra pair."""
    capacity = max(QUEUE, len(task.ket) + lanes)
    state = np.array([0, 0, begin, capacity, SHARE], np.int64)
    found, tasks = np.zeros(1, np.int64), np.zeros((capacity // lanes + 1, 3), np.int64)
    queue, weight, numbers = np.zeros(capacity, np.int64), np.zeros(capacity), run.numbers(task, lanes)
    bra, ket = task.bra, task.ket
    getattr(host, select_name(batch))(
        state=state,
        found=found,
        tasks=tasks,
        numbers=numbers,
        reals=run.reals,
        bra_places=bra.places,
        bra_measures=bra.measures,
        ket_places=ket.places,
        ket_measures=ket.measures,
        dm_max=run.maxima,
        queue=queue,
        weight=weight,
        groups_begin=begin,
        groups_end=task.end,
    )
    return _Stretch(numbers, state, tasks[: state[TASKS]], queue[: state[USED]], weight[: state[USED]])


class _Resident:
    """Arrays of the pairs in a device's memory, for as long as the builder lives."""

    def __init__(self, device: Device) -> None:
        self.device = device
        self._kept: dict[int, tuple[np.ndarray, Memory]] = {}

    def __call__(self, array: np.ndarray) -> Memory:
        if id(array) not in self._kept:
            self._kept[id(array)] = array, self.device.upload(array)
        return self._kept[id(array)][1]


class _Load:
    """One device's share of one build: its matrices, and a set of buffers for each stream."""

    def __init__(self, owner: JKBuilder, number: int, run: Run) -> None:
        self.owner, self.number, self.run = owner, number, run
        self.device = owner.devices[number]
        self.resident = owner._residents.setdefault(number, _Resident(self.device))
        self.cost, self._turn = 0.0, 0
        self._buffers: dict[tuple[int, str], Memory] = {}
        device = self.device
        self.given = {
            "reals": device.upload(run.reals), "dm_max": device.upload(run.maxima),
            "dm_pairs": device.upload(run.pairs), "dm": device.upload(run.blocks),
            "vj": device.zeros(*run.pairs.shape), "vk": device.zeros(*run.blocks.shape),
        }  # fmt: skip

    def launch(self, task: Task, batch: Batch, stretch: _Stretch) -> None:
        """Start the stretch on the next stream; its last one must have come to its end, for the buffers."""
        tier, built = self.owner._built[self.number, batch]
        # Memory is copied on stream 0, which is not to wait for kernels.
        stream = 1 + self._turn % (self.device.streams - 1) if self.device.streams > 1 else 0
        self._turn += 1
        self.device.synchronize(stream)
        workers = min(len(stretch.tasks), max(1, self.device.multiprocessors * tier.warps * 32 // tier.lanes))
        given, workers = self._given(stream, task, batch, stretch, workers, built.lanes)
        self.device.launch(built, workers, given, stream)

    def _given(
        self, stream: int, task: Task, batch: Batch, stretch: _Stretch, workers: int, lanes: int
    ) -> tuple[dict[str, Any], int]:
        """Arguments by name, with buffers of as many workers as there is memory for. Raises MemoryLimit for not one."""
        steps = self._steps(task, batch)
        while True:
            fresh = not self._buffers
            try:
                given = self._arrays(task, batch, lanes)
                for name in ("numbers", "tasks", "queue", "weight"):
                    given[name] = self._written(stream, name, getattr(stretch, name))
                given |= {n: self._grown(stream, n, size * workers * lanes) for n, size in steps.items()}
                given |= {"n_tasks": len(stretch.tasks), "n_workers": workers}
                return given | {OWN[n]: size for n, size in steps.items()}, workers
            except MemoryLimit as error:
                if fresh and workers == 1:
                    raise MemoryLimit(
                        f"{error}: the buffers of one block of threads do not fit beside {self.run.count} densities of "
                        f"{self.owner.mol.nao_nr()} orbitals; use a device with more memory, or backend='cpu'"
                    ) from error
                workers = self._fewer(workers, error)

    def _fewer(self, workers: int, error: MemoryLimit) -> int:
        """Give all buffers back; half the workers."""
        self.device.release(*self._buffers.values())
        self._buffers = {}
        fewer = (workers + 1) // 2
        self.owner._note(f"{error}; going on with {fewer} blocks of threads at once")
        return fewer

    def results(self) -> tuple[np.ndarray, np.ndarray]:
        self.device.synchronize()
        return self.device.download(self.given["vj"]), self.device.download(self.given["vk"])

    def release(self) -> None:
        self.device.release(*self.given.values(), *self._buffers.values())
        self.given, self._buffers = {}, {}

    def _steps(self, task: Task, batch: Batch) -> dict[str, int]:
        """Elements that a lane of a worker needs, by buffer."""
        bra, ket, cls = task.bra, task.ket, task.cls
        n_ab, n_cd = bra.pairs.contractions, ket.pairs.contractions
        a, b, c, d = cls.extents
        _, rows, wide = ket.records_for(cls).shape
        return {
            "lanes_ket": rows * wide, "lanes_centre": 6, "work": work_size(cls, n_ab, n_cd),
            "out": n_ab * n_cd * a * b * c * d, "j_ab": self.run.count * n_ab * a * b,
        }  # fmt: skip

    def _grown(self, stream: int, name: str, size: int, dtype: Any = np.float64) -> Memory:
        """The stream's buffer of this name, made larger if it must be."""
        kept = self._buffers.get((stream, name))
        if kept is None or kept.shape[0] < size:
            if kept is not None:
                self.device.release(self._buffers.pop((stream, name)))
            self._buffers[stream, name] = self.device.zeros(size, dtype=dtype)
        return self._buffers[stream, name]

    def _written(self, stream: int, name: str, array: np.ndarray) -> Memory:
        memory = self._grown(stream, name, array.size, array.dtype)
        self.device.write(memory, array)
        return memory

    def _arrays(self, task: Task, batch: Batch, lanes: int) -> dict[str, Any]:
        """What stays in the device's memory."""
        bra, ket = task.bra, task.ket
        there = {
            "bra": bra.records_for(task.cls),
            "bra_places": bra.places,
            "bra_measures": bra.measures,
            "ket": ket.records_for(task.cls),
            "ket_places": ket.places,
            "ket_measures": ket.measures,
            "ket_bounds": ket.bounds,
            "boys": boys.table(task.cls.order),
            "lane": _lane_numbers(lanes),
        }
        return self.given | {name: self.resident(array) for name, array in there.items()}


_NUMBERS: dict[int, np.ndarray] = {}


def _lane_numbers(lanes: int) -> np.ndarray:
    """0, 1, ... as one and the same array, so that it is uploaded once."""
    return _NUMBERS.setdefault(lanes, np.arange(lanes))
