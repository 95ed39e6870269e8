"""Geometry optimisation by geomeTRIC through PySCF's interface to it.

object with gradients -> geometric_solver -> a GeometryStep after each gradient -> Optimization
"""

from __future__ import annotations

import logging
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pyscf import gto
from pyscf.data.nist import BOHR

from trnqc.errors import InputError
from trnqc.host.clock import measured
from trnqc.interfaces.packages import optional
from trnqc.mp2.reference.molecule import Geometry, describe

# Largest number of gradients of an optimisation, unless the caller sets another.
MAX_STEPS = 100
# A configuration of Python's logging without output: the steps are reported by the callback.
_NO_LOG = """\
[loggers]
keys=root
[handlers]
keys=none
[formatters]
keys=
[logger_root]
level=CRITICAL
handlers=none
[handler_none]
class=NullHandler
args=()
"""


@dataclass(frozen=True, eq=False)
class GeometryStep:
    """One geometry of an optimisation.

    Attributes
    ----------
    geometry
        The atoms, in Angstrom.
    energy
        Total energy, Hartree.
    gradient
        Derivatives [natm, 3] of the energy, Hartree/Bohr.
    seconds
        Wall time of energy and gradient.
    """

    geometry: Geometry
    energy: float
    gradient: np.ndarray
    seconds: float

    def to_dict(self) -> dict[str, Any]:
        """The step for JSON: coordinates in Angstrom, energy, gradient and seconds."""
        return {
            "coordinates": self.geometry.coordinates,
            "energy": self.energy,
            "gradient": self.gradient.tolist(),
            "seconds": self.seconds,
        }

    @property
    def largest_force(self) -> float:
        """Largest length of the force on an atom, Hartree/Bohr."""
        return float(np.linalg.norm(self.gradient, axis=1).max())

    @property
    def rms_force(self) -> float:
        """Root of the mean square of the forces on the atoms, Hartree/Bohr."""
        return float(np.sqrt(np.square(self.gradient).sum(axis=1).mean()))


@dataclass(frozen=True, eq=False)
class Optimization:
    """A geometry optimisation.

    Attributes
    ----------
    steps
        All geometries, in the order of their computation.
    converged
        Whether geomeTRIC's criteria are met by the last geometry.
    """

    steps: tuple[GeometryStep, ...]
    converged: bool

    @property
    def best(self) -> int:
        """The step, from 1, whose geometry is the result: the last if converged, else that of the lowest energy."""
        if self.converged:
            return len(self.steps)
        return 1 + min(range(len(self.steps)), key=lambda n: self.steps[n].energy)

    @property
    def geometry(self) -> Geometry:
        """The geometry of step `best`."""
        return self.steps[self.best - 1].geometry

    def to_dict(self) -> dict[str, Any]:
        """The steps for JSON, whether they have converged, and which one is the result."""
        steps = [step.to_dict() for step in self.steps]
        return {"steps": steps, "geometry_converged": self.converged, "best_step": self.best}

    @property
    def warnings(self) -> tuple[str, ...]:
        """What a user has to know about a result that has not converged."""
        if self.converged:
            return ()
        return (
            f"the geometry has not converged after {len(self.steps)} steps; the results are those of step {self.best}, "
            f"which has the lowest energy (largest force {self.steps[self.best - 1].largest_force:.1e} Hartree/Bohr): "
            "allow more by --max-steps, or begin with its geometry (--xyz)",
        )


@measured("geometry steps")
def optimize(
    method: Any,
    max_steps: int = MAX_STEPS,
    callback: Callable[[int, GeometryStep], None] | None = None,
    **options: Any,
) -> Optimization:
    """Optimise a geometry with geomeTRIC.

    Parameters
    ----------
    method
        A PySCF object with gradients, `trnqc.DFMP2`, or a gradients object of one of them. Its molecule is the first
        geometry.
    max_steps
        Largest number of gradients.
    callback
        Called as callback(number, step) after each gradient; numbers begin with 1.
    **options
        Other options of ``pyscf.geomopt.geometric_solver.kernel``, such as convergence_gmax (Hartree/Bohr) or
        constraints.

    Raises
    ------
    BackendUnavailable
        If geomeTRIC is absent.
    InputError
        If the molecule has fewer than two atoms, or `max_steps` is not positive.

    Notes
    -----
    The result is returned whether or not the optimisation has converged. The method is L.-P. Wang, C. Song, J. Chem.
    Phys. 144, 214108 (2016).
    """
    optional("geometric")
    if method.mol.natm < 2:
        raise InputError(f"a molecule with at least two atoms was expected, got {method.mol.natm}")
    if max_steps < 1:
        raise InputError(f"the largest number of steps must be positive, got {max_steps}")
    from pyscf.geomopt import geometric_solver

    steps: list[GeometryStep] = []
    start = time.perf_counter()

    def record(state: dict[str, Any]) -> None:
        nonlocal start
        now = time.perf_counter()
        geometry = _geometry(method.mol, state["coords"])
        steps.append(GeometryStep(geometry, float(state["energy"]), np.array(state["gradients"]), now - start))
        start = now
        if callback:
            callback(len(steps), steps[-1])

    with _quiet() as log:
        # geomeTRIC counts the steps after the first geometry.
        converged, _ = geometric_solver.kernel(
            method, callback=record, maxsteps=max_steps - 1, logIni=str(log), **options
        )
    return Optimization(tuple(steps), bool(converged))


def _geometry(mol: gto.Mole, coordinates: np.ndarray) -> Geometry:
    start = describe(mol)
    positions = tuple(tuple(row) for row in (np.reshape(coordinates, (-1, 3)) * BOHR).tolist())
    return Geometry(start.name, start.symbols, positions, start.charge, start.spin)


@contextmanager
def _quiet() -> Iterator[Path]:
    """The file with the logging configuration; the root logger is restored at the end, because geomeTRIC changes it."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.ini"
        path.write_text(_NO_LOG, encoding="utf-8")
        try:
            yield path
        finally:
            root.handlers[:] = handlers
            root.setLevel(level)
