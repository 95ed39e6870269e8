"""A calculator for ASE, the atomic simulation environment: energies, forces and dipole moments by DF-MP2.

Atoms -> Job -> SinglePoint -> results in eV and Angstrom
"""

from __future__ import annotations

import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pyscf.data.nist import BOHR, HARTREE2EV

from trnqc.errors import CheckpointError, InputError, UnsupportedError
from trnqc.host.files import write_aside
from trnqc.interfaces.method import SinglePoint, check_method, complete, job_of_settings, single_point
from trnqc.interfaces.packages import optional
from trnqc.mp2.reference.molecule import Geometry

calculator = optional("ase.calculators.calculator")
# Largest difference from an integer of the sum of initial charges or magnetic moments.
ROUNDING = 1e-6


class TRNQC(calculator.Calculator):  # type: ignore[name-defined]
    """An ASE calculator with DF-MP2 energies, forces and dipole moments.

    Parameters
    ----------
    restart
        Label of an earlier calculator, whose atoms, settings, results and density are read.
    label
        Path without suffix: after each calculation the results are written to LABEL.json and the density to LABEL.npz;
        by default that of `restart`.
    directory
        The directory that contains the label.
    atoms
        Atoms to which the calculator is attached.
    method
        "mp2", "scs-mp2" or "sos-mp2".
    charge, spin
        Charge, and number of unpaired electrons. By default they are ``atoms.info["charge"]`` and
        ``atoms.info["spin"]``, else the sums of the initial charges and magnetic moments of the atoms, and without
        moments the smallest possible spin.
    **settings
        Settings of `trnqc.mp2.job.Job`, such as basis="cc-pvtz" or frozen=0.

    Raises
    ------
    InputError
        If a setting is unknown, or charge or spin is not an integer.
    UnsupportedError
        If the atoms are periodic.
    CheckpointError
        If the files of `restart` are missing or damaged.

    Notes
    -----
    Energies are in eV, lengths in Angstrom and dipole moments in e Angstrom. The SCF of each geometry starts from the
    density of the last one if elements, charge, spin and basis set are the same. The gradient is that of the method, by
    the relaxed density.
    """

    implemented_properties = ["energy", "free_energy", "forces", "dipole"]  # noqa: RUF012 - ASE's
    default_parameters = {"method": "mp2", "charge": None, "spin": None, "basis": "cc-pvdz"}  # noqa: RUF012 - ASE's
    ignored_changes = {"cell"}  # noqa: RUF012 - ASE's

    def __init__(
        self,
        restart: str | None = None,
        *,
        label: str | None = None,
        directory: str | Path = ".",
        atoms: Any = None,
        **settings: Any,
    ) -> None:
        self.point: SinglePoint | None = None
        self._density: np.ndarray | None = None
        self._density_of: tuple[Any, ...] = ()
        label = restart if label is None else label
        super().__init__(restart, label=label, atoms=atoms, directory=str(directory), **settings)

    def set(self, **settings: Any) -> dict[str, Any]:
        """Change settings, forget results that depend on them, and return the changes."""
        self._job_settings(settings)
        changed: dict[str, Any] = super().set(**settings)
        if changed:
            self.reset()
        return changed

    def check_state(self, atoms: Any, tol: float = 1e-15) -> list[str]:
        """The changes of the atoms since the last calculation, which include those of ``atoms.info``."""
        changes: list[str] = super().check_state(atoms, tol=tol)
        if not changes and self.atoms is not None and self._electrons(atoms) != self._electrons(self.atoms):
            changes.append("initial_charges")
        return changes

    def calculate(
        self,
        atoms: Any = None,
        properties: Sequence[str] = ("energy",),
        system_changes: Sequence[str] = calculator.all_changes,
    ) -> None:
        """Compute properties of atoms, and write the files of the label if there is one."""
        super().calculate(atoms, properties, system_changes)
        if self.atoms.pbc.any():
            raise UnsupportedError(
                f"the atoms are periodic (pbc {self.atoms.pbc.tolist()}); only molecules are supported"
            )
        if self.point is None or system_changes:
            self.point = self._single_point()
        self.point = complete(self.point, gradient="forces" in properties, dipole="dipole" in properties)
        energy = self.point.energy * HARTREE2EV
        self.results |= {"energy": energy, "free_energy": energy}
        if self.point.gradient is not None:
            self.results["forces"] = -self.point.gradient * HARTREE2EV / BOHR
        if self.point.dipole is not None:
            self.results["dipole"] = self.point.dipole * BOHR
        if self.prefix is not None:
            self.write(self.label)

    def _single_point(self) -> SinglePoint:
        """Compute the energy of the atoms, from the last density if it has the same orbitals and electrons."""
        charge, spin = self._electrons(self.atoms)
        settings = self._job_settings(self.parameters)
        geometry = _geometry(self.atoms, charge, spin)
        key = (geometry.symbols, charge, geometry.spin, settings["basis"], settings.get("reference"))
        point = single_point(
            job_of_settings(settings, geometry),
            self.parameters["method"],
            guess=self._density if key == self._density_of else None,
        )
        self._density, self._density_of = np.asarray(point.mp2._scf.make_rdm1()), key
        return point

    def reset(self) -> None:
        """Forget atoms and results. The density remains as a guess."""
        super().reset()
        self.point = None

    def write(self, label: str) -> None:
        """Write atoms, settings and results to LABEL.json and the density to LABEL.npz."""
        state = {
            "atoms": self.atoms.todict(),
            "info": {name: self.atoms.info[name] for name in ("charge", "spin") if name in self.atoms.info},
            "parameters": dict(self.parameters),
            "results": self.results,
            "density_of": self._density_of,
        }
        if self._density is not None:
            data = io.BytesIO()
            np.savez(data, density=self._density)
            write_aside(_path(label, "npz"), data.getvalue())
        write_aside(_path(label, "json"), optional("ase.io.jsonio").encode(state) + "\n")

    def read(self, label: str) -> None:
        """Read what `write` has written, as the argument `restart` does."""
        path = _path(label, "json")
        try:
            state = optional("ase.io.jsonio").decode(path.read_text(encoding="utf-8"))
            with np.load(_path(label, "npz")) as arrays:
                density = arrays["density"]
            self.atoms = optional("ase").Atoms.fromdict(state["atoms"])
            self.atoms.info.update(state["info"])
            self.parameters = calculator.Parameters(state["parameters"])
            self.results = dict(state["results"])
            symbols, *others = state["density_of"]
        except (OSError, ValueError, KeyError, TypeError, EOFError) as error:
            raise CheckpointError(f"{path}: cannot be read to restart: {type(error).__name__}: {error}") from error
        self._density, self._density_of = density, (tuple(symbols), *others)

    def _job_settings(self, parameters: dict[str, Any]) -> dict[str, Any]:
        """The settings of a job among the parameters, checked."""
        if "method" in parameters:
            check_method(parameters["method"])
        settings = {name: value for name, value in parameters.items() if name not in ("method", "charge", "spin")}
        job_of_settings(settings)
        return settings

    def _electrons(self, atoms: Any) -> tuple[int, int | None]:
        """Charge and number of unpaired electrons; None for the smallest possible number."""
        charge, spin = self.parameters.get("charge"), self.parameters.get("spin")
        if charge is None:
            charge = atoms.info.get("charge", atoms.get_initial_charges().sum())
        if spin is None:
            moments = atoms.get_initial_magnetic_moments()
            spin = atoms.info.get("spin", abs(moments.sum()) if moments.any() else None)
        return _integer("charge", charge), None if spin is None else _integer("spin", spin)


def _path(label: str, suffix: str) -> Path:
    return Path(f"{label}.{suffix}")


def _geometry(atoms: Any, charge: int, spin: int | None) -> Geometry:
    coordinates = tuple(tuple(row) for row in atoms.positions.tolist())
    geometry = Geometry(str(atoms.symbols), tuple(atoms.get_chemical_symbols()), coordinates, charge)
    return Geometry(
        geometry.name, geometry.symbols, coordinates, charge, geometry.electrons % 2 if spin is None else spin
    )


def _integer(name: str, value: Any) -> int:
    if abs(value - round(float(value))) > ROUNDING:
        raise InputError(f"the {name} must be an integer, the atoms have {value}")
    return round(float(value))
