"""An ASE calculator of a whole MACE model, or of a committee: energies, forces and stress without PyTorch.

Atoms -> an Evaluator for each model -> results in eV and Angstrom
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trnqc.errors import BackendUnavailable, InputError
from trnqc.mace.convolutions import SPLINE_TOLERANCE
from trnqc.mace.derived import descriptors, hessian
from trnqc.mace.driver.driver import start_driver
from trnqc.mace.evaluate import SKIN, Evaluator, Result
from trnqc.mace.model import Model
from trnqc.mace.source import descriptions

try:
    from ase.calculators.calculator import Calculator as Base
    from ase.calculators.calculator import all_changes
except ImportError as error:
    raise BackendUnavailable(
        f"the calculator needs ASE, which cannot be imported ({error}): pip install 'trnqc[ase]'"
    ) from error

# Places of xx, yy, zz, yz, xz and xy in a tensor, the order of ASE.
VOIGT = [0, 4, 8, 5, 2, 1]
# Properties of which a committee has the results of its members and their variances, beside the means.
COMMITTEE = ("energy", "forces", "stress", "dipole")


class Calculator(Base):
    """An ASE calculator with the energies, forces and stress of a MACE model, or of a committee of models.

    Parameters
    ----------
    model : str, Path, Model or torch.nn.Module, or a list of these
        A model of mace-torch or its file, or a description or its file (`trnqc.mace.save`). A list is a committee, and
        so are the files that match a pattern such as ``"run_*.model"``. Files of mace-torch are unpickled, which can
        run any code: open files only that you trust.
    head : str, optional
        The head of a model with several; that of all members of a committee.
    dtype : {"float32", "float64"}
        Type of the features. Geometry, and sums over atoms, are float64.
    radial : {"exact", "spline"}
        Whether the weights of edges are computed by the networks of the model, or by splines of the length, which is
        faster.
    spline_tolerance : float
        Largest error of splines and of their derivatives, relative to the largest weights and derivatives.
        `spline_error` is the error that they have.
    threads : int, optional
        Number of threads, by default OMP_NUM_THREADS or all cores.
    skin : float
        How far beyond the cutoff neighbour lists reach, in Angstrom; see `trnqc.mace.Evaluator`.

    Raises
    ------
    InputError
        If the file or the head does not exist, no file matches the pattern, the file does not contain a model, only
        some members of a committee have dipole moments, or splines cannot meet the tolerance. The last is found out at
        the first structure if weights depend on the elements of an edge.
    UnsupportedError
        If the model has a block that is not supported; the message names it.
    BackendUnavailable
        If ASE or vesin is not installed.

    Notes
    -----
    Energies are in eV, forces in eV/Angstrom, and stress in eV/Angstrom^3 in the order xx, yy, zz, yz, xz, xy. There is
    a stress for structures that are periodic in three directions. `get_stresses` returns the contributions of the atoms
    to it, as that of mace-torch does; half of the contribution of a pair belongs to each of its atoms.

    As in mace-torch, ``results["node_energy"]`` [N] are the interaction energies of the atoms: ``results["energies"]``
    without the energies of isolated atoms. They contain the model's shift, and a pair repulsion.

    A model with dipole moments, EnergyDipolesMACE of mace-torch, also has a ``dipole`` [3], the sum of those of the
    atoms. It is in Debye as in mace-torch, where other calculators of ASE have e Angstrom. The dipole of fixed charges,
    which mace-torch adds if it is given charges, is left out.

    The results of a committee are the means over its members. As in mace-torch, ``results`` has those of the members
    too (``energy_comm`` [members], ``forces_comm`` [members, N, 3], ``stress_comm`` [members, 3, 3], ``dipole_comm``
    [members, 3]), and their variances, divided by the number of members (``energy_var``, ``forces_var``, ``stress_var``
    [3, 3], ``dipole_var``). From the means of ``energies``, ``node_energy`` leaves out the isolated atoms of the first
    member.
    """

    implemented_properties = [  # noqa: RUF012 - ASE's
        "energy",
        "free_energy",
        "energies",
        "node_energy",
        "forces",
        "stress",
        "stresses",
    ]

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
        if isinstance(model, (str, Path)) and Path(model).is_file():
            start_driver()
        options: dict[str, Any] = {"radial": radial, "spline_tolerance": spline_tolerance}
        options |= {"threads": threads, "skin": skin}
        self.evaluators = tuple(Evaluator(member, dtype, **options) for member in descriptions(model, head))
        self.implemented_properties = _implemented([bool(each.model.dipoles) for each in self.evaluators])

    @property
    def evaluator(self) -> Evaluator:
        """The evaluator of the model, or of the first member of a committee."""
        return self.evaluators[0]

    @property
    def spline_error(self) -> float | None:
        """The largest error of the splines of all members, relative to the largest weights or derivatives.

        It is measured between the points of the fit, from 0.7 Angstrom to the cutoff distance, and does not contain the
        rounding to `dtype`. None without splines, and before the first structure if weights depend on the elements of
        an edge.
        """
        errors = [one.spline_error for one in self.evaluators if one.spline_error is not None]
        return max(errors) if len(errors) == len(self.evaluators) else None

    def calculate(
        self,
        atoms: Any = None,
        properties: Sequence[str] = ("energy",),
        system_changes: Sequence[str] = all_changes,
    ) -> None:
        """Compute all properties of atoms."""
        super().calculate(atoms, properties, system_changes)
        system = _system(self.atoms)
        members = [evaluator(*system, virials="stresses" in properties) for evaluator in self.evaluators]
        volume = abs(np.linalg.det(self.atoms.cell)) if self.atoms.pbc.all() else None
        self.results |= _results([_properties(member, volume) for member in members])
        self.results["node_energy"] = self.results["energies"] - members[0].isolated_energies

    def get_descriptors(
        self, atoms: Any = None, invariants_only: bool = True, num_layers: int = -1
    ) -> np.ndarray | list[np.ndarray]:
        """Return the features of the atoms after the layers, one beside the other, as mace-torch's calculator does.

        Parameters
        ----------
        atoms : ase.Atoms, optional
            By default the atoms of the last calculation.
        invariants_only : bool
            Whether to return scalars only. Otherwise the features of the last layer are its scalars, and those of the
            other layers are in e3nn's order, [channel][component] for each irrep.
        num_layers : int
            How many layers from the first one on; -1 for all.

        Returns
        -------
        numpy.ndarray or list of numpy.ndarray
            [N, features], in the precision of `dtype`; a list with one array for each member of a committee.

        Raises
        ------
        InputError
            If the model does not have that many layers, or there are no atoms.
        """
        system = _system(self._atoms(atoms))
        return _for_members([descriptors(each, system, invariants_only, num_layers) for each in self.evaluators])

    def get_hessian(self, atoms: Any = None) -> np.ndarray | list[np.ndarray]:
        """Return the second derivatives of the energy with respect to the positions.

        Parameters
        ----------
        atoms : ase.Atoms, optional
            By default the atoms of the last calculation.

        Returns
        -------
        numpy.ndarray or list of numpy.ndarray
            [3N, N, 3] in eV/Angstrom^2; a list with one array for each member of a committee.

        Raises
        ------
        InputError
            If there are no atoms.

        Notes
        -----
        They are central differences of forces with steps of 1e-5 Angstrom, which are 6 N evaluations, in float64 for a
        calculator of any type. Their error, and by how much they are not symmetric, is about 1e-9 of the largest one.
        """
        system = _system(self._atoms(atoms))
        return _for_members([hessian(each, system) for each in self.evaluators])

    def _atoms(self, atoms: Any) -> Any:
        """The atoms, or those of the last calculation."""
        if atoms is None and self.atoms is None:
            raise InputError("atoms: expected some, because the calculator has not calculated any yet; found None")
        return self.atoms if atoms is None else atoms


def _implemented(dipoles: list[bool]) -> list[str]:
    """The properties of models that have dipole moments or not."""
    if len(set(dipoles)) > 1:
        raise InputError(
            f"model: expected dipole moments of all members or of none, found them in {sum(dipoles)} of {len(dipoles)}"
        )
    single = [*Calculator.implemented_properties, *["dipole"] * dipoles[0]]
    committee = [f"{name}_{kind}" for name in COMMITTEE if name in single for kind in ("comm", "var")]
    return [*single, *committee] if len(dipoles) > 1 else single


def _for_members(values: list[np.ndarray]) -> np.ndarray | list[np.ndarray]:
    """The value of a model, or the list of those of a committee."""
    return values if len(values) > 1 else values[0]


def _system(atoms: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray, tuple[bool, ...]]:
    """The arguments of an evaluator."""
    return atoms.numbers, atoms.positions, np.asarray(atoms.cell), tuple(map(bool, atoms.pbc))


def _properties(result: Result, volume: float | None) -> dict[str, np.ndarray]:
    """The properties of one model, with the stress as [3, 3]; no stress without a volume."""
    named = {"energy": np.array(result.energy), "energies": result.energies, "forces": result.forces}
    if result.dipoles is not None:
        named["dipole"] = result.dipoles.sum(axis=0)
    if volume is None:
        return named
    named["stress"] = result.virial / volume
    if result.virials is not None:
        named["stresses"] = result.virials.reshape(-1, 9)[:, VOIGT] / volume
    return named


def _results(members: list[dict[str, np.ndarray]]) -> dict[str, Any]:
    """The results of ASE: means over members, and their own results and variances if there are several."""
    results: dict[str, Any] = {}
    for name in members[0]:
        values = np.stack([member[name] for member in members])
        results[name] = values.mean(axis=0)
        if len(members) > 1 and name in COMMITTEE:
            results |= {f"{name}_comm": values, f"{name}_var": values.var(axis=0)}
    if "stress" in results:
        results["stress"] = results["stress"].flat[VOIGT]
    scalars = {name: float(value) for name, value in results.items() if np.ndim(value) == 0}
    return results | scalars | {"free_energy": scalars["energy"]}
