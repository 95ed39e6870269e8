"""Energies, forces and virials of structures by the compiled programs of a model.

numbers, positions, cell -> neighbours -> driver (driver/) -> energies, forces, virial
"""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np

from trnqc.errors import InputError
from trnqc.host.threads import thread_count
from trnqc.jit import TYPES, find_compiler
from trnqc.mace.convolutions import SPLINE_TOLERANCE, Convolutions, Radial, convolutions, fitted_by_pairs
from trnqc.mace.dipoles import dipoles_of
from trnqc.mace.driver.driver import Driver, Exchange, driver_library
from trnqc.mace.driver.order import driver_program
from trnqc.mace.driver.steps import DriverProgram
from trnqc.mace.edges.neighbours import Neighbours, neighbours
from trnqc.mace.edges.splines.tables import check_tolerance
from trnqc.mace.gemm import RegisterTile
from trnqc.mace.model import Model
from trnqc.mace.nodes.kernels import NodeKernels
from trnqc.mace.nodes.layout import FeatureLayout
from trnqc.mace.nodes.plan import plan

DTYPES = ("float32", "float64")
# By default a neighbour list contains pairs that are farther apart than the cutoff by up to this, in Angstrom. In
# molecular dynamics it then serves some ten steps.
SKIN = 0.5


@dataclass(frozen=True, eq=False)
class Result:
    """What an evaluation returns, float64.

    Parameters
    ----------
    energies : numpy.ndarray
        Energies of the atoms [N] in eV.
    forces : numpy.ndarray
        [N, 3] in eV/Angstrom.
    virial : numpy.ndarray
        Derivative of the energy with respect to a symmetric strain, [3, 3] in eV. The stress is virial / volume.
    virials : numpy.ndarray or None
        Contributions of the atoms to the virial [N, 3, 3], if they were asked for. Half of the contribution of a pair
        belongs to each of its atoms, as in mace-torch and LAMMPS.
    isolated_energies : numpy.ndarray
        The parts of `energies` that isolated atoms have, [N] in eV. The rest are interaction energies.
    dipoles : numpy.ndarray or None
        Dipole moments of the atoms [N, 3] in Debye, if the model has them.
    """

    energies: np.ndarray
    forces: np.ndarray
    virial: np.ndarray
    virials: np.ndarray | None
    isolated_energies: np.ndarray
    dipoles: np.ndarray | None = None

    @property
    def energy(self) -> float:
        return float(self.energies.sum())


class Evaluator:
    """The compiled programs of a model.

    Parameters
    ----------
    model : Model
    dtype : {"float32", "float64"}
        Type of the features. Geometry, and sums over atoms, are float64.
    radial : {"exact", "spline"}
        Whether the weights of edges are computed by the networks of the model, or by splines of the length.
    spline_tolerance : float
        Largest error of splines and of their derivatives, relative to the largest weights and derivatives. Splines have
        as many intervals as it asks for, and `spline_error` is the error that they have.
    threads : int, optional
        Number of threads, by default OMP_NUM_THREADS or all cores.
    skin : float
        Neighbour lists contain pairs up to the cutoff plus this, in Angstrom, and are used again as long as no atom has
        moved by more than half of it.

    Raises
    ------
    InputError
        For another dtype, another kind of radial functions, a tolerance of splines that is below the rounding error of
        the dtype or cannot be met, or a skin that is negative or not finite.
    UnsupportedError
        For a model with parts that the programs do not cover.
    CompilerError
        If there is no compiler of C or C++, or one fails.
    """

    def __init__(
        self,
        model: Model,
        dtype: str = "float32",
        *,
        radial: str = "exact",
        spline_tolerance: float = SPLINE_TOLERANCE,
        threads: int | None = None,
        skin: float = SKIN,
    ) -> None:
        if dtype not in DTYPES:
            raise InputError(f"dtype: expected one of {', '.join(DTYPES)}; found {dtype}")
        if not 0 <= skin < np.inf:
            raise InputError(f"skin: expected a distance in Angstrom from 0 on; found {skin}")
        self.model, self.dtype, self.threads, self.skin = model, dtype, thread_count(threads), skin
        self.radial, self._threads_asked_for = Radial(radial, spline_tolerance), threads
        kind = TYPES[dtype]
        if radial == "spline":
            check_tolerance(spline_tolerance, kind)
        # Splines of pairs of elements are fitted when the elements of a structure are known.
        later, none = radial == "spline" and fitted_by_pairs(model), np.zeros(0, np.int64)
        of_atoms = plan(model, RegisterTile.of(find_compiler(), kind), kind)
        # The compilers of C++ and C run at the same time.
        with ThreadPoolExecutor(max_workers=2) as pool:
            driver = pool.submit(driver_library)
            edges = None if later else pool.submit(convolutions, model, self.radial, none, kind)
            self.kernels = NodeKernels(of_atoms)
            self._convolutions = edges.result() if edges else None
            driver.result()
        self._list: Neighbours | None = None
        self._driver: Driver | None = None
        # The convolutions of the driver.
        self._driven: Convolutions | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        """Copies and pickles have the model and the settings; the programs are loaded where they are restored."""
        return _restored, (self.model, self.dtype, self._settings())

    @property
    def spline_error(self) -> float | None:
        """The largest error of the splines, relative to the largest weights or derivatives.

        It is measured between the points of the fit, from 0.7 Angstrom to the cutoff distance, and does not contain the
        rounding to `dtype`. None without splines, and before the first structure if weights depend on the elements of
        an edge.
        """
        parts = self._convolutions
        return None if parts is None or parts.splines is None else parts.splines.error

    def in_float64(self) -> Evaluator:
        """An evaluator of the same model and settings with features in float64: this one, or another one."""
        return self if self.dtype == "float64" else Evaluator(self.model, "float64", **self._settings())

    def _settings(self) -> dict[str, Any]:
        return {
            "radial": self.radial.kind,
            "spline_tolerance": self.radial.tolerance,
            "threads": self._threads_asked_for,
            "skin": self.skin,
        }

    def __call__(
        self,
        numbers: np.ndarray,
        positions: np.ndarray,
        cell: np.ndarray,
        periodic: tuple[bool, ...],
        *,
        virials: bool = False,
    ) -> Result:
        """Evaluate a structure.

        Parameters
        ----------
        numbers : numpy.ndarray
            Atomic numbers [N].
        positions : numpy.ndarray
            [N, 3] in Angstrom.
        cell : numpy.ndarray
            Cell vectors as rows, [3, 3] in Angstrom. Those of directions without periodicity may be zero.
        periodic : tuple of bool
            Whether the structure is periodic along each cell vector.
        virials : bool
            Whether to return the contributions of the atoms to the virial too.

        Raises
        ------
        InputError
            If the model does not have an element, an array has another shape, positions or cell are not finite, the
            cell is degenerate, or two atoms are at the same position; or if weights depend on the elements of an edge,
            and splines for those of the structure cannot meet the tolerance.
        """
        listed = self._listed(numbers, positions, cell, periodic)
        elements = self._elements_of(listed[0])
        driver = self.driver(elements)
        of_atoms = np.empty((len(numbers), 3, 3)) if virials else None
        rows: list[np.ndarray] = []
        parts = driver(*listed, exchange=_collector(rows) if self.model.dipoles else None, virials=of_atoms)
        slots = [layout.slots(each) for layout, each in self._features(rows)]
        dipoles = dipoles_of(self.model.dipoles, slots) if self.model.dipoles else None
        return Result(*parts, of_atoms, self.model.atomic_energies[elements], dipoles)

    def features(
        self, numbers: np.ndarray, positions: np.ndarray, cell: np.ndarray, periodic: tuple[bool, ...]
    ) -> list[np.ndarray]:
        """Return the features of the atoms after each layer, in e3nn's order, float64 [N, dimension of the features].

        They have the precision of `dtype`. Parameters and errors are those of an evaluation.
        """
        listed = self._listed(numbers, positions, cell, periodic)
        parts = self.convolutions(self._elements_of(listed[0]))
        driver = Driver(driver_program(self.model, self.kernels, parts, features=True), self.threads)
        rows: list[np.ndarray] = []
        driver(*listed, exchange=_collector(rows))
        return [layout.flat(each) for layout, each in self._features(rows)]

    def _features(self, rows: list[np.ndarray]) -> Iterator[tuple[FeatureLayout, np.ndarray]]:
        """The layout of the features after each layer, and the rows that the driver has handed out, as vectors."""
        for layer, each in zip(self.kernels.plan.layers, rows):
            yield layer.features, each.reshape(len(each), layer.features.width, layer.features.lanes)

    def program(self, elements: np.ndarray) -> DriverProgram:
        """The program of evaluations for structures of some elements, int64 numbers in the model.

        Raises
        ------
        InputError
            If splines cannot meet the tolerance.
        """
        return driver_program(self.model, self.kernels, self.convolutions(elements))

    def driver(self, elements: np.ndarray) -> Driver:
        """The driver for structures of some elements; made again if splines have to be fitted for others."""
        parts = self.convolutions(elements)
        if self._driver is None or self._driven is not parts:
            # Dipole moments are computed from the features.
            program = driver_program(self.model, self.kernels, parts, features=bool(self.model.dipoles))
            self._driver, self._driven = Driver(program, self.threads), parts
        return self._driver

    def convolutions(self, elements: np.ndarray) -> Convolutions:
        """The convolutions for some elements, int64; splines are fitted again if there are other elements."""
        if self._convolutions is None or not self._convolutions.covers(elements):
            kind = TYPES[self.dtype]
            self._convolutions = convolutions(self.model, self.radial, elements, kind, self._convolutions)
        return self._convolutions

    def _listed(
        self, numbers: np.ndarray, positions: np.ndarray, cell: np.ndarray, periodic: tuple[bool, ...]
    ) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
        """Numbers, receivers, senders and vectors of a structure, which is checked."""
        numbers, positions = np.asarray(numbers), np.array(positions, np.float64)
        cell = np.asarray(cell, np.float64)
        for name, array, shape in (("positions", positions, (numbers.size, 3)), ("cell", cell, (3, 3))):
            if array.shape != shape:
                raise InputError(f"{name}: expected shape {list(shape)}, found {list(array.shape)}")
        self._elements_of(numbers)
        pairs = self._neighbours(positions, cell, periodic)
        return numbers, pairs.receivers, pairs.senders, pairs.vectors(positions)

    def _elements_of(self, numbers: np.ndarray) -> np.ndarray:
        """The number of each atom's element in the model."""
        known = {z: n for n, z in enumerate(self.model.numbers)}
        if missing := sorted({int(z) for z in numbers} - set(known)):
            raise InputError(
                f"numbers: the model has the elements {', '.join(map(str, self.model.numbers))}; found {missing}"
            )
        return np.array([known[int(z)] for z in numbers], np.int64)

    def _neighbours(self, positions: np.ndarray, cell: np.ndarray, periodic: tuple[bool, ...]) -> Neighbours:
        """The neighbour list of a structure, which is the last one if it holds."""
        if self._list is None or not self._list.holds(positions, cell, periodic):
            self._list = neighbours(positions, cell, periodic, self.model.basis.r_max, self.skin)
        return self._list


def _collector(kept: list[np.ndarray]) -> Exchange:
    """An exchange that appends the rows of the atoms in their order."""
    return lambda _, rows, row_of: kept.append(rows[row_of])


def _restored(model: Model, dtype: str, settings: dict[str, Any]) -> Evaluator:
    return Evaluator(model, dtype, **settings)
