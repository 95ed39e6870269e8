"""An ASE calculator of a whole MACE model: energies, forces and stress without PyTorch.

Atoms -> Evaluator -> results in eV and Angstrom
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trnqc.errors import BackendUnavailable
from trnqc.mace.evaluate import SKIN, Evaluator
from trnqc.mace.model import Model
from trnqc.mace.source import description

try:
    from ase.calculators.calculator import Calculator as Base
    from ase.calculators.calculator import all_changes
except ImportError as error:
    raise BackendUnavailable(
        f"the calculator needs ASE, which cannot be imported ({error}): pip install 'trnqc[ase]'"
    ) from error


class Calculator(Base):
    """An ASE calculator with the energies, forces and stress of a MACE model.

    Parameters
    ----------
    model : str, Path, Model or torch.nn.Module
        A model of mace-torch or its file, or a description or its file (`trnqc.mace.save`). Files of mace-torch are
        unpickled, which can run any code: open files only that you trust.
    head : str, optional
        The head of a model with several.
    dtype : {"float32", "float64"}
        Type of the features. Geometry, and sums over atoms, are float64.
    threads : int, optional
        Number of threads, by default OMP_NUM_THREADS or all cores.
    skin : float
        How far beyond the cutoff neighbour lists reach, in Angstrom; see `trnqc.mace.Evaluator`.

    Raises
    ------
    InputError
        If the file or the head does not exist, or the file does not contain a model.
    UnsupportedError
        If the model has a block that is not supported; the message names it.
    BackendUnavailable
        If ASE or vesin is not installed.

    Notes
    -----
    Energies are in eV, forces in eV/Angstrom, and stress in eV/Angstrom^3 in the order xx, yy, zz, yz, xz, xy. There is
    a stress for structures that are periodic in three directions.
    """

    implemented_properties = ["energy", "free_energy", "energies", "forces", "stress"]  # noqa: RUF012 - ASE's

    def __init__(
        self,
        model: str | Path | Model | Any,
        head: str | None = None,
        *,
        dtype: str = "float32",
        threads: int | None = None,
        skin: float = SKIN,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        self.evaluator = Evaluator(description(model, head), dtype, threads, skin)

    def calculate(
        self,
        atoms: Any = None,
        properties: Sequence[str] = ("energy",),
        system_changes: Sequence[str] = all_changes,
    ) -> None:
        """Compute all properties of atoms."""
        super().calculate(atoms, properties, system_changes)
        a = self.atoms
        result = self.evaluator(a.numbers, a.positions, np.asarray(a.cell), tuple(map(bool, a.pbc)))
        energy = result.energy
        self.results |= {"energy": energy, "free_energy": energy, "energies": result.energies, "forces": result.forces}
        if a.pbc.all():
            stress = result.virial / abs(np.linalg.det(a.cell))
            self.results["stress"] = stress.flat[[0, 4, 8, 5, 2, 1]]
