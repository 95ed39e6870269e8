"""J and K on GPUs: quartets are selected on the host and digested on the devices.

tables -> each device's memory (once)        density -> each device's memory (every build)
tasks -> selections of quartets (run.py) -> the device with the least to do so far, and its streams -> sums of all

Every device has D, J and K, and keeps buffers for as many workers as its memory holds.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
from pyscf import gto

from trnqc import backends
from trnqc.eri.classes import QuartetClass
from trnqc.eri.cuda.batch import select, select_signature, work_recipe
from trnqc.eri.cuda.run import DeviceRun, ResidentArrays, Selection, selection
from trnqc.eri.cuda.tiers import Tier, absurd, candidates
from trnqc.eri.jk import builder, schwarz
from trnqc.eri.jk.batch import Batch
from trnqc.eri.jk.run import Run
from trnqc.eri.jk.screening import Table
from trnqc.eri.jk.tasks import Task, tasks_of
from trnqc.eri.library import programs
from trnqc.errors import CompilerError, InputError
from trnqc.gen.statements import Function
from trnqc.host.progress import StageBars
from trnqc.jit import Library, Recipe, build_all
from trnqc.jit.device import Built, Device
from trnqc.ranks import ALONE, Ranks


class JKBuilder(builder.JKBuilder):
    """J and K of one molecule on GPUs, with the methods of the CPU's JKBuilder.

    Parameters
    ----------
    mol, omega, cutoff, ranks, schedule
        As in `trnqc.eri.get_jk`.
    threads
        Must be None: an argument of the CPU's builder.
    devices
        By default this rank's share of the machine's GPUs.

    Attributes
    ----------
    notes : list of str
        What did not go as planned, in words.

    Raises
    ------
    BackendUnavailable
        Without a GPU.
    InputError
        If `threads` is not None or `devices` is empty.

    Notes
    -----
    A device adds in any order, so that J and K differ by rounding from build to build and with the number of ranks.
    """

    def __init__(
        self,
        mol: gto.Mole,
        omega: float | None = None,
        cutoff: float = builder.CUTOFF,
        threads: int | None = None,
        ranks: Ranks = ALONE,
        schedule: str = "dynamic",
        devices: Sequence[Device] | None = None,
    ) -> None:
        if threads is not None:
            raise InputError(f"threads is an argument for the CPU: leave it out for GPUs, found {threads}")
        # The host selects quartets on one thread.
        super().__init__(mol, omega=omega, cutoff=cutoff, threads=1, ranks=ranks, schedule=schedule)
        self.devices: tuple[Device, ...] = (
            _share(backends.devices("cuda"), ranks) if devices is None else tuple(devices)
        )
        if not self.devices:
            raise InputError("at least one device is wanted")
        self.notes: list[str] = []
        self._kernels: list[dict[Batch, tuple[Tier, Built]]] = [{} for _ in self.devices]
        self._residents = [ResidentArrays(device) for device in self.devices]

    @property
    def ran_on(self) -> str:
        """What computes J and K, in words."""
        names = [device.name for device in self.devices]
        return "generated CUDA, " + ", ".join(f"{names.count(n)} x {n}" for n in dict.fromkeys(names))

    def build(self, with_j: bool = True, with_k: bool = True) -> dict[QuartetClass, Library]:
        """Compile the selection for the host and the digestion for every device, unless that is done already."""
        if (with_j, with_k) not in self._libraries:
            batches = [Batch(cls, with_j, with_k) for cls in self.classes()]
            recipes = {batch: _host_recipe(batch) for batch in batches}
            libraries = programs.build(list(recipes.values()))
            self._build_devices(batches)
            self._libraries[with_j, with_k] = {b.cls: libraries[recipe.name] for b, recipe in recipes.items()}
        return self._libraries[with_j, with_k]

    def _build_devices(self, batches: Sequence[Batch]) -> None:
        targets = [(n, batch) for n in range(len(self.devices)) for batch in batches]
        jobs = {f"{n} {batch.name}": partial(self._first_sound, self.devices[n], batch) for n, batch in targets}
        with StageBars() as bars:
            kernels = build_all(jobs, progress=bars.of("building kernels of devices"))
        for (n, batch), kernel in zip(targets, kernels.values()):
            if isinstance(kernel, CompilerError):
                raise kernel
            self._kernels[n][batch] = kernel

    def _first_sound(self, device: Device, batch: Batch) -> tuple[Tier, Built]:
        """Return the first tier that compiles without absurd spills, with a warning for each that does not."""
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
        self, run: Run, tables: tuple[Table, ...], libraries: dict[QuartetClass, Library]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return what all quartets add to J by pairs and to K by blocks, on the devices of all ranks."""
        shares = [DeviceRun(*own, run, self._note) for own in zip(self._residents, self._kernels)]
        try:
            for task in self._own_tasks(tables):
                batch = Batch(task.cls, run.with_j, run.with_k)
                for share, selected in self._dealt(task, batch, run, libraries[task.cls], shares):
                    share.launch(task, batch, selected)
            results = [share.results() for share in shares]
        finally:
            for share in shares:
                share.release()
        pairs, blocks = (self.ranks.sum(np.sum(parts, axis=0)) for parts in zip(*results))
        return pairs, blocks

    def _own_tasks(self, tables: tuple[Table, ...]) -> Iterator[Task]:
        if self.ranks.size == 1:
            yield from tasks_of(tables, self.operator.name)
            return
        groups = self._groups(tables)
        for n in self._share([sum(task.cost for task in group) for group in groups]):
            yield from groups[n]

    def _dealt(
        self, task: Task, batch: Batch, run: Run, host: Library, shares: Sequence[DeviceRun]
    ) -> Iterator[tuple[DeviceRun, Selection]]:
        """Yield selections of a task's quartets, each for the device with the least to do so far."""
        begin = task.begin
        while begin < task.end:
            share = min(shares, key=lambda share: share.cost)
            selected = selection(task, batch, run, host, share.kernels[batch][1].lanes, begin)
            begin = selected.next_pair
            share.cost += task.cost * len(selected.queue) / (len(task.bra) * len(task.ket))
            if len(selected.tasks):
                yield share, selected


def _share(devices: Sequence[Device], ranks: Ranks) -> tuple[Device, ...]:
    """Return a rank's devices: one at least, which ranks share if there are more ranks than devices."""
    local = ranks.rank % ranks.neighbours
    return tuple(devices[local :: ranks.neighbours] or devices[local % len(devices) : local % len(devices) + 1])


def _host_recipe(batch: Batch) -> Recipe:
    signatures, makers = [select_signature(batch)], [partial(select, batch)]
    if batch.cls.shells[:2] == batch.cls.shells[2:]:
        signatures.append(schwarz.signature(batch.cls))
        makers.append(partial(schwarz.bounds, batch.cls))

    def make() -> tuple[Function, ...]:
        return tuple(maker() for maker in makers)

    return Recipe(f"host_{batch.name}", tuple(signatures), make, "trnqc.eri.cuda.batch")
