"""Energies and gradients of a job at the geometries of an optimisation, which continues after an interruption.

geometry -> recorded step, else DFMP2 from the density of the last geometry -> energy, gradient -> recorded
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

import numpy as np
from pyscf import gto

from trnqc.mp2.checkpoint import Checkpoint
from trnqc.mp2.execution import Progress
from trnqc.mp2.factors.auxiliary_basis import auxiliary_basis
from trnqc.mp2.job import Job, below_checkpoint, execution_of, molecule_of
from trnqc.mp2.reference.molecule import describe
from trnqc.mp2.run import method_of
from trnqc.mp2.scf.of_job import checkpoint_of
from trnqc.ranks import ALONE, Ranks

# Largest difference of a coordinate, in Bohr, up to which a recorded step is that of a geometry.
SAME = 1e-10


class Surface:
    """The energy and gradient of a job as functions of the geometry.

    Parameters
    ----------
    job
        What is computed, and how. With a checkpoint, finished steps are kept in its subdirectory ``steps``, and the
        parts of the step that is computed in ``step-N``.
    progress, ranks, schedule
        As of `trnqc.mp2.run.method_of`. All ranks compute the same steps.
    """

    def __init__(
        self, job: Job, progress: Progress | None = None, ranks: Ranks = ALONE, schedule: str = "dynamic"
    ) -> None:
        self.job, self._rest = job, (progress, ranks, schedule)
        self.execution = execution_of(job, *self._rest)
        self.mol = molecule_of(job, self.execution)
        self._density: np.ndarray | None = None
        self._kept: Checkpoint | None = None
        self._number = 0

    @contextmanager
    def opened(self) -> Iterator[Surface]:
        """Keep the record of steps open, which rank 0 writes."""
        with self._record() as self._kept:
            yield self

    def __call__(self, mol: gto.Mole) -> tuple[float, np.ndarray]:
        """Return the total energy (Hartree) and the gradient [natm, 3] (Hartree/Bohr) of a geometry."""
        self._number += 1
        found = self.execution.ranks.at_first(lambda: self._recorded(mol.atom_coords()))
        if found is None:
            found = self._computed(mol)
        energy, gradient = found
        return energy, np.array(gradient)

    def _record(self) -> Any:
        job, auxiliary = below_checkpoint(self.job, "steps"), auxiliary_basis(self.mol, self.job.auxbasis)
        return checkpoint_of(job, self.mol, auxiliary, self.execution, task="optimisation")

    def _recorded(self, coordinates: np.ndarray) -> tuple[float, list[list[float]]] | None:
        for step in self._kept.recorded("step") if self._kept else ():
            if np.abs(np.array(step["coordinates"]) - coordinates).max() < SAME:
                return step["energy"], step["gradient"]
        return None

    def _computed(self, mol: gto.Mole) -> tuple[float, list[list[float]]]:
        job = replace(self.job, geometry=replace(describe(mol), name=self.job.geometry.name), compare_with=())
        job = below_checkpoint(job, f"step-{self._number}")
        with method_of(job, *self._rest, guess=self._density) as mp2:
            energy = mp2.compute().e_tot
            assert energy is not None
            gradient = mp2.nuc_grad_method().kernel().tolist()
        self._density = mp2._scf.make_rdm1()
        if self._kept is not None:
            step = {"coordinates": mol.atom_coords().tolist(), "energy": energy, "gradient": gradient}
            self._kept.add("step", step)
            if job.checkpoint is not None:
                shutil.rmtree(job.checkpoint, ignore_errors=True)
        return energy, gradient
