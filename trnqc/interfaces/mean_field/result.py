"""What a Hartree-Fock or Kohn-Sham job has computed, as immutable values.

converged object -> Orbitals, dipole, charges -> SCFResult -> dictionary for JSON
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from trnqc.interfaces.optimization import Optimization
from trnqc.mp2.reference.molecule import Geometry
from trnqc.mp2.result_parts import to_plain
from trnqc.version import __version__

SCHEMA = "trnqc.scf/1"
UNITS = {
    "energies": "Hartree",
    "dipole": "Debye",
    "charges": "elementary charges",
    "gradient": "Hartree/Bohr",
    "wavenumbers": "1/cm",
    "intensities": "km/mol",
    "excitation energies": "eV",
    "coordinates": "Angstrom",
    "timings": "s",
}


@dataclass(frozen=True)
class Cycle:
    """One cycle of the SCF: the energy (Hartree) and the norm of the orbital gradient."""

    energy: float
    orbital_gradient: float


@dataclass(frozen=True, eq=False)
class Orbitals:
    """Orbitals of one spin, or of both.

    Attributes
    ----------
    spin
        "" for both spins, else "alpha" or "beta".
    energies, occupations
        Energies [nmo] in Hartree and occupation numbers [nmo].
    """

    spin: str
    energies: np.ndarray
    occupations: np.ndarray

    @property
    def homo(self) -> int | None:
        """Index of the highest occupied orbital; None if no orbital is occupied."""
        occupied = np.flatnonzero(self.occupations > 0)
        return int(occupied[np.argmax(self.energies[occupied])]) if len(occupied) else None

    @property
    def lumo(self) -> int | None:
        """Index of the lowest virtual orbital; None if there is none."""
        virtual = np.flatnonzero(self.occupations == 0)
        return int(virtual[np.argmin(self.energies[virtual])]) if len(virtual) else None

    @property
    def gap(self) -> float | None:
        """Energy of the lowest virtual above that of the highest occupied orbital, Hartree."""
        if self.homo is None or self.lumo is None:
            return None
        return float(self.energies[self.lumo] - self.energies[self.homo])


@dataclass(frozen=True)
class CorrelationSummary:
    """What a double hybrid or RPA adds to the SCF.

    Attributes
    ----------
    method
        The method in words.
    e_scf, e_corr
        Energy of the SCF and correlation energy, Hartree. The total energy is their sum only if its functional is that
        of the SCF, and without dispersion.
    frozen, correlated
        Numbers of occupied orbitals, of a closed shell or of each spin.
    """

    method: str
    e_scf: float
    e_corr: float
    frozen: tuple[int, ...]
    correlated: tuple[int, ...]


@dataclass(frozen=True, eq=False)
class Vibrations:
    """Harmonic vibrations by PySCF's analysis of the Hessian.

    Attributes
    ----------
    wavenumbers
        By mode, in 1/cm; those of imaginary frequencies are negative.
    modes
        Displacements [mode, natm, 3] of unit length, in Cartesian coordinates.
    reduced_masses
        By mode, in atomic mass units.
    intensities
        Of infrared absorption by mode, in km/mol.
    thermochemistry
        Quantities by name with their units, at the temperature and the pressure that are among them.
    """

    wavenumbers: tuple[float, ...]
    modes: np.ndarray
    reduced_masses: tuple[float, ...]
    intensities: tuple[float, ...]
    thermochemistry: Mapping[str, tuple[float, str]]

    @property
    def imaginary(self) -> int:
        """Number of imaginary frequencies."""
        return sum(value < 0 for value in self.wavenumbers)


@dataclass(frozen=True)
class Excitation:
    """An excited state: its energy in eV, oscillator strength (length gauge), and whether its equations converged."""

    energy: float
    oscillator_strength: float | None
    converged: bool


@dataclass(frozen=True, eq=False)
class SCFResult:
    """The results of one geometry.

    Attributes
    ----------
    geometry, method
        The molecule, and the method in words.
    e_tot
        Total energy in Hartree, with correlation, solvent and dispersion.
    parts
        Parts of the energy by name, Hartree.
    converged, cycles
        Whether the SCF has converged, and its cycles.
    orbitals
        Those of both spins, or of each.
    dipole
        Dipole moment [3] of the SCF in Debye; relative to the centre of charge of the nuclei for ions.
    charges
        Partial charges of the atoms by the name of the population analysis, in elementary charges.
    spin_square
        <S^2>; None for a closed shell.
    ran_on
        What computed J and K.
    ranks, shared
        The number of processes of the job, and what they computed together, in words.
    timings
        Wall seconds by part, which add up to those of the job. A part does not contain the parts within it, and the
        SCFs and gradients of an optimisation are among those of the result.
    scf_seconds, pyscf_estimate
        Wall seconds of the last SCF, and an estimate of PySCF's by part if it was asked for; see
        `trnqc.pyscf.scf_time`.
    gradient
        Derivatives [natm, 3] of the energy, Hartree/Bohr, if they were computed.
    optimization
        The steps of an optimisation, if the geometry was optimised.
    correlation
        Of a double hybrid or of RPA.
    relaxed_dipole
        Dipole moment [3] of a double hybrid in Debye, the derivative of its energy, if the gradient was computed.
    vibrations, excitations, excitation_method
        If they were computed.
    excitation_ran_on
        In which precision products with trial vectors of the excited states were computed.
    warnings
        Messages about doubts.
    """

    geometry: Geometry
    method: str
    e_tot: float
    parts: Mapping[str, float]
    converged: bool
    cycles: tuple[Cycle, ...]
    orbitals: tuple[Orbitals, ...]
    dipole: np.ndarray
    charges: Mapping[str, np.ndarray]
    spin_square: float | None
    ran_on: str
    ranks: int = 1
    shared: tuple[str, ...] = ()
    timings: Mapping[str, float] = field(default_factory=dict)
    scf_seconds: float = 0.0
    pyscf_estimate: Mapping[str, float] = field(default_factory=dict)
    gradient: np.ndarray | None = None
    optimization: Optimization | None = None
    correlation: CorrelationSummary | None = None
    relaxed_dipole: np.ndarray | None = None
    vibrations: Vibrations | None = None
    excitations: tuple[Excitation, ...] = ()
    excitation_method: str = ""
    excitation_ran_on: str = ""
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """The result with all digits, for JSON."""
        plain: dict[str, Any] = {"schema": SCHEMA, "version": __version__, "units": UNITS}
        plain |= {"geometry": to_plain(self.geometry), "method": self.method, "e_tot": self.e_tot}
        plain |= {"parts": dict(self.parts), "converged": self.converged}
        plain["cycles"] = [[cycle.energy, cycle.orbital_gradient] for cycle in self.cycles]
        plain["orbitals"] = [
            {"spin": o.spin, "energies": o.energies.tolist(), "occupations": o.occupations.tolist(), "gap": o.gap}
            for o in self.orbitals
        ]
        plain |= {"dipole": self.dipole.tolist(), "spin_square": self.spin_square, "ran_on": self.ran_on}
        plain |= {"ranks": self.ranks, "shared": list(self.shared)}
        plain["charges"] = {name: values.tolist() for name, values in self.charges.items()}
        plain |= {"timings": dict(self.timings), "warnings": list(self.warnings)}
        plain["scf_seconds"] = self.scf_seconds
        if self.pyscf_estimate:
            plain["pyscf_estimate"] = dict(self.pyscf_estimate)
        if self.correlation:
            plain["correlation"] = to_plain(self.correlation)
        if self.relaxed_dipole is not None:
            plain["relaxed_dipole"] = self.relaxed_dipole.tolist()
        if self.gradient is not None:
            plain["gradient"] = self.gradient.tolist()
        if self.optimization:
            plain |= self.optimization.to_dict()
        if self.vibrations:
            plain["vibrations"] = _plain_vibrations(self.vibrations)
        if self.excitations:
            how = {"method": self.excitation_method, "ran_on": self.excitation_ran_on}
            plain["excitations"] = how | {"states": to_plain(self.excitations)}
        return plain


def _plain_vibrations(vibrations: Vibrations) -> dict[str, Any]:
    return {
        "wavenumbers": list(vibrations.wavenumbers),
        "reduced_masses": list(vibrations.reduced_masses),
        "intensities": list(vibrations.intensities),
        "modes": vibrations.modes.tolist(),
        "thermochemistry": {name: list(value) for name, value in vibrations.thermochemistry.items()},
    }
