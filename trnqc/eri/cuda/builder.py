"""J and K on GPUs, which screen the quartets of a molecule and add those that matter.

tables -> each device's memory (once)        density, numbers of tasks -> each device's memory (every build)
blocks of pairs -> two or three launches each on every device (run.py), on its streams in turn -> sums of all

Every device has D, J and K, and buffers for as many workers as its memory holds. The host neither selects quartets nor
waits between launches.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from pyscf import gto

from trnqc import backends
from trnqc.eri.classes import QuartetClass
from trnqc.eri.compiled import programs
from trnqc.eri.cuda.forms import first_sound
from trnqc.eri.cuda.launches import DriverPrograms
from trnqc.eri.cuda.resident import ResidentMemory
from trnqc.eri.cuda.run import DeviceRun
from trnqc.eri.cuda.tiers import NAMES
from trnqc.eri.jk import builder, schwarz
from trnqc.eri.jk.batch import Batch
from trnqc.eri.jk.run import JKPass
from trnqc.eri.jk.screening import Table
from trnqc.eri.jk.tasks import QuartetTask, tasks_of
from trnqc.errors import CompilerError, InputError
from trnqc.host.progress import StageBars
from trnqc.jit import Library, Recipe, build_all
from trnqc.jit.device import Device
from trnqc.ranks import ALONE, Ranks


class CudaJKBuilder(builder.JKBuilder):
    """J and K of one molecule on GPUs, with the methods of the CPU's JKBuilder.

    Parameters
    ----------
    mol, omega, cutoff, ranks, schedule
        As in `trnqc.eri.get_jk`.
    threads
        Must be None: an argument of the CPU's builder.
    devices
        By default this rank's share of the machine's GPUs.
    tiers
        Names of `trnqc.eri.cuda.tiers.NAMES`: the forms of kernels that are tried, for classes that have one of them.
        By default all are, and the choice is that of `trnqc.eri.cuda.forms`.

    Attributes
    ----------
    notes : list of str
        What did not go as planned, in words.

    Raises
    ------
    BackendUnavailable
        Without a GPU.
    InputError
        If `threads` is not None, `devices` is empty, or a tier has no such name.

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
        tiers: Sequence[str] = (),
    ) -> None:
        if threads is not None:
            raise InputError(f"threads is an argument for the CPU: leave it out for GPUs, found {threads}")
        if unknown := sorted(set(tiers) - set(NAMES)):
            raise InputError(f"tiers are names of {', '.join(NAMES)}; found {', '.join(map(repr, unknown))}")
        self.tiers = tuple(tiers)
        # The host computes Schwarz bounds of pairs on one thread.
        super().__init__(mol, omega=omega, cutoff=cutoff, threads=1, ranks=ranks, schedule=schedule)
        self.devices: tuple[Device, ...] = (
            _share(backends.devices("cuda"), ranks) if devices is None else tuple(devices)
        )
        if not self.devices:
            raise InputError("at least one device is wanted")
        self.notes: list[str] = []
        # The tasks of the last pass with the tables that they are of.
        self._tasks: tuple[tuple[Table, ...], list[QuartetTask]] | None = None
        self._kernels: list[dict[Batch, DriverPrograms]] = [{} for _ in self.devices]
        self._residents = [ResidentMemory(device) for device in self.devices]

    @property
    def ran_on(self) -> str:
        """What computes J and K, in words."""
        names = [device.name for device in self.devices]
        return "generated CUDA, " + ", ".join(f"{names.count(n)} x {n}" for n in dict.fromkeys(names))

    def build(self, with_j: bool = True, with_k: bool = True) -> dict[QuartetClass, Library]:
        """Compile Schwarz bounds for the host and the programs of every device, unless that is done already.

        Returns the libraries of the host, for classes whose bra and ket have the same shells.
        """
        if (with_j, with_k) not in self._libraries:
            classes = self.classes()
            recipes = {cls: _host_recipe(cls) for cls in classes if cls.shells[:2] == cls.shells[2:]}
            libraries = programs.build(list(recipes.values()))
            self._build_devices([Batch(cls, with_j, with_k) for cls in classes])
            self._libraries[with_j, with_k] = {cls: libraries[recipe.name] for cls, recipe in recipes.items()}
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

    def _first_sound(self, device: Device, batch: Batch) -> DriverPrograms:
        """Return the first form that the compiler can cope with, with a warning for each other one."""
        programs, failures = first_sound(device, batch, self.tiers)
        for failure in failures:
            self._note(f"({batch.cls.digits}) on {device.name}: {failure}; the next form is used")
        return programs

    def _note(self, text: str) -> None:
        self.notes.append(text)
        warnings.warn(text, RuntimeWarning, stacklevel=2)

    def resident_run(self, count: int) -> tuple[DeviceRun, tuple[Table, ...]]:
        """Return a pass for J and K of `count` densities that are written into the memory of the only device.

        Also returns the tables of the pairs. Raises MemoryLimit if the device has too little memory.
        """
        libraries = self.build()
        tables, n = self._table(libraries), self.mol.nao_nr()
        pairs = np.zeros((count, sum(table.elements for table in tables)))
        options: dict[str, Any] = {"with_j": True, "with_k": True, "cutoff": self.cutoff, "omega": self.operator.omega}
        run = JKPass.of(self.mol, self.layout, np.zeros((count, n, n)), pairs, **options)
        tasks = self._own_tasks(tables)
        return DeviceRun(self._residents[0], self._kernels[0], run, tasks, 0, 1, self._note), tables

    def _summed(
        self, run: JKPass, tables: tuple[Table, ...], libraries: dict[QuartetClass, Library]
    ) -> tuple[np.ndarray, np.ndarray]:
        """Return what all quartets add to J by pairs and to K by blocks, on the devices of all ranks."""
        tasks = self._own_tasks(tables)
        shares: list[DeviceRun] = []
        try:
            for n, own in enumerate(zip(self._residents, self._kernels)):
                shares.append(DeviceRun(*own, run, tasks, n, len(self.devices), self._note))
            for share in shares:
                share.launch()
            results = [share.results() for share in shares]
        finally:
            for share in shares:
                share.release()
        pairs, blocks = (self.ranks.sum(np.sum(parts, axis=0)) for parts in zip(*results))
        return pairs, blocks

    def _own_tasks(self, tables: tuple[Table, ...]) -> list[QuartetTask]:
        """Return the tasks of this rank, the most expensive first."""
        if self.ranks.size == 1:
            if self._tasks is None or self._tasks[0] is not tables:
                self._tasks = tables, tasks_of(tables, self.operator.name)
            return self._tasks[1]
        groups = self._groups(tables)
        return [task for n in self._share([sum(t.cost for t in group) for group in groups]) for task in groups[n]]


def _share(devices: Sequence[Device], ranks: Ranks) -> tuple[Device, ...]:
    """Return a rank's devices: one at least, which ranks share if there are more ranks than devices."""
    local = ranks.rank % ranks.neighbours
    return tuple(devices[local :: ranks.neighbours] or devices[local % len(devices) : local % len(devices) + 1])


def _host_recipe(cls: QuartetClass) -> Recipe:
    """Return the recipe of the Schwarz bounds of a class."""
    signature = schwarz.signature(cls)
    return Recipe(f"host_{signature.name}", (signature,), lambda: (schwarz.bounds(cls),), "trnqc.eri.jk.schwarz")
