"""An ASE calculator of a whole MACE model: energies, forces and stress without PyTorch.

Atoms -> Evaluator -> results in eV and Angstrom
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trnqc.errors import BackendUnavailable
from trnqc.mace.convolutions import SPLINE_TOLERANCE
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

# Places of xx, yy, zz, yz, xz and xy in a tensor, the order of ASE.
VOIGT = [0, 4, 8, 5, 2, 1]


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
    radial : {"exact", "spline"}
        Whether the weights of edges are computed by the networks of the model, or by splines of the length, which is
        faster.
    spline_tolerance : float
        Largest error of splines and of their derivatives, relative to the largest weights and derivatives.
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
    a stress for structures that are periodic in three directions. `get_stresses` returns the contributions of the atoms
    to it, as that of mace-torch does; half of the contribution of a pair belongs to each of its atoms.
    """

    implemented_properties = ["energy", "free_energy", "energies", "forces", "stress", "stresses"]  # noqa: RUF012 - ASE's

    def __init__(
        self,
        model: str | Path | Model | Any,
        head: str | None = None,
        *,
        dtype: str = "float32",
        radial: str = "exact",
        spline_tolerance: float = SPLINE_TOLERANCE,
        threads: int | None = None,
        skin: float = SKIN,
        **settings: Any,
    ) -> None:
        super().__init__(**settings)
        self.evaluator = Evaluator(
            description(model, head),
            dtype,
            radial=radial,
            spline_tolerance=spline_tolerance,
            threads=threads,
            skin=skin,
        )

    def calculate(
        self,
        atoms: Any = None,
        properties: Sequence[str] = ("energy",),
        system_changes: Sequence[str] = all_changes,
    ) -> None:
        """Compute all properties of atoms."""
        super().calculate(atoms, properties, system_changes)
        a = self.atoms
        system = a.numbers, a.positions, np.asarray(a.cell), tuple(map(bool, a.pbc))
        result = self.evaluator(*system, virials="stresses" in properties)
        energy = result.energy
        self.results |= {"energy": energy, "free_energy": energy, "energies": result.energies, "forces": result.forces}
        if a.pbc.all():
            volume = abs(np.linalg.det(a.cell))
            self.results["stress"] = (result.virial / volume).flat[VOIGT]
            if result.virials is not None:
                self.results["stresses"] = result.virials.reshape(-1, 9)[:, VOIGT] / volume
