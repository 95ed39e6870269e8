"""Energies, forces and virials of structures by the compiled programs of a model.

numbers, positions, cell -> neighbours -> edges -> geometry -> for each layer: convolution, atoms -> energies
gradient of the last layer's features -> for each layer, backwards: atoms, convolution -> geometry -> forces, virial
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trnqc.errors import InputError
from trnqc.host.threads import thread_count
from trnqc.jit import TYPES, find_compiler
from trnqc.mace.convolutions import SPLINE_TOLERANCE, Convolutions, Radial, convolutions
from trnqc.mace.edges.density import EdgeDensity
from trnqc.mace.edges.geometry.kernels import EdgeValues
from trnqc.mace.edges.graph import Edges
from trnqc.mace.edges.neighbours import Neighbours, neighbours
from trnqc.mace.gemm import Tile
from trnqc.mace.model import Model
from trnqc.mace.nodes.kernels import NodeKernels, NodeRun
from trnqc.mace.nodes.plan import plan
from trnqc.mace.repulsion import add_repulsion

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
    """

    energies: np.ndarray
    forces: np.ndarray
    virial: np.ndarray

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
        Largest error of splines and of their derivatives, relative to the largest weights and derivatives.
    threads : int, optional
        Number of threads, by default OMP_NUM_THREADS or all cores.
    skin : float
        Neighbour lists contain pairs up to the cutoff plus this, in Angstrom, and are used again as long as no atom has
        moved by more than half of it.

    Raises
    ------
    InputError
        For another dtype or another kind of radial functions.
    UnsupportedError
        For a model with parts that the programs do not cover.
    CompilerError
        If there is no C compiler, or it fails.
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
        self.model, self.dtype, self.threads, self.skin = model, dtype, thread_count(threads), skin
        self.radial = Radial(radial, spline_tolerance)
        kind = TYPES[dtype]
        self.kernels = NodeKernels(plan(model, Tile.of(find_compiler(), kind), kind))
        # Splines are fitted when the elements of a structure are known.
        none = np.zeros(0, np.int64)
        self._convolutions = convolutions(model, self.radial, none, kind) if radial == "exact" else None
        self._list: Neighbours | None = None
        self._run: NodeRun | None = None
        self._elements = none

    def __call__(
        self, numbers: np.ndarray, positions: np.ndarray, cell: np.ndarray, periodic: tuple[bool, ...]
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

        Raises
        ------
        InputError
            If the model does not have an element, positions or cell are not finite, the cell is degenerate, or two
            atoms are at the same position.
        """
        elements = self._elements_of(np.asarray(numbers))
        order = np.argsort(elements, kind="stable")
        positions = np.ascontiguousarray(np.asarray(positions, np.float64).reshape(-1, 3)[order])
        edges = self._edges(elements[order], positions, np.asarray(cell, np.float64), periodic)
        energies, g_vectors = self.evaluate(edges)
        gradient = _sums(edges.receivers, g_vectors, len(order)) - _sums(edges.senders, g_vectors, len(order))
        virial = edges.vectors.T @ g_vectors
        result = Result(np.empty(len(order)), np.empty((len(order), 3)), (virial + virial.T) / 2)
        result.energies[order], result.forces[order] = energies, -gradient
        return result

    def evaluate(self, edges: Edges) -> tuple[np.ndarray, np.ndarray]:
        """Return the energies of the atoms, and the gradient of their sum with respect to the vectors of the edges.

        Parameters
        ----------
        edges : Edges
            The edges of atoms that are sorted by element.
        """
        run, parts = self._run_of(edges.elements), self.convolutions(edges.elements)
        run.begin()
        values = parts.geometry.forward(edges, self.threads)
        slopes = [self._forward(t, run, edges, values) for t in range(len(parts.layers))]
        g_harmonics, g_lengths = np.zeros_like(values.harmonics), np.zeros(edges.rows, self.dtype)
        for t in reversed(range(len(parts.layers))):
            self._reverse(t, run, edges, values, slopes[t], g_harmonics, g_lengths)
        g_vectors, energies = np.zeros((edges.count, 3)), run.arrays["energies"].copy()
        parts.geometry.reverse(edges, values, g_harmonics, g_lengths, g_vectors, self.threads)
        if self.model.repulsion is not None:
            ends = edges.receivers, edges.elements[np.stack([edges.senders, edges.receivers])]
            numbers = np.array(self.model.numbers)
            add_repulsion(self.model.repulsion, numbers, ends, edges.vectors, energies, g_vectors)
        return energies, g_vectors

    def convolutions(self, elements: np.ndarray) -> Convolutions:
        """The convolutions for some elements, int64; splines are fitted again if there are other elements."""
        if self._convolutions is None or not self._convolutions.covers(elements):
            self._convolutions = convolutions(self.model, self.radial, elements, TYPES[self.dtype])
        return self._convolutions

    def _forward(self, t: int, run: NodeRun, edges: Edges, values: EdgeValues) -> np.ndarray | None:
        """Compute layer t, and return the slopes of the edges' parts in its density."""
        parts = self.convolutions(edges.elements)
        layer, density, slope = parts.layers[t], parts.densities[t], None
        x, a = (run.features(f"{name}{t}", layer.channels) for name in "xa")
        layer.forward(edges, values, x, a, self.threads)
        if density is not None:
            run.arrays[f"rho{t}"][...], slope = density.forward(edges, values, self.threads)
        run.forward(t)
        return slope

    def _reverse(
        self,
        t: int,
        run: NodeRun,
        edges: Edges,
        values: EdgeValues,
        slope: np.ndarray | None,
        g_harmonics: np.ndarray,
        g_lengths: np.ndarray,
    ) -> None:
        layer = self.convolutions(edges.elements).layers[t]
        run.reverse(t)
        x, g_a = run.features(f"x{t}", layer.channels), run.features(f"a{t}", layer.channels)
        g_x = layer.reverse(edges, values, x, g_a, g_harmonics, g_lengths, self.threads)
        if t and g_x is not None:
            run.features(f"gx{t}", layer.channels)[...] = g_x
        if slope is not None:
            EdgeDensity.reverse(edges, slope, run.arrays[f"grho{t}"], g_lengths)

    def _elements_of(self, numbers: np.ndarray) -> np.ndarray:
        """The number of each atom's element in the model."""
        known = {z: n for n, z in enumerate(self.model.numbers)}
        if missing := sorted({int(z) for z in numbers} - set(known)):
            raise InputError(
                f"numbers: the model has the elements {', '.join(map(str, self.model.numbers))}; found {missing}"
            )
        return np.array([known[int(z)] for z in numbers], np.int64)

    def _edges(
        self, elements: np.ndarray, positions: np.ndarray, cell: np.ndarray, periodic: tuple[bool, ...]
    ) -> Edges:
        """The edges of a structure, from the last neighbour list if it holds."""
        if self._list is None or not self._list.holds(positions, cell, periodic):
            self._list = neighbours(positions, cell, periodic, self.model.basis.r_max, self.skin)
        return self._list.edges(positions, elements)

    def _run_of(self, elements: np.ndarray) -> NodeRun:
        if self._run is None or not np.array_equal(elements, self._elements):
            self._run, self._elements = NodeRun(self.kernels, elements, self.threads), elements
        return self._run


def _sums(ends: np.ndarray, rows: np.ndarray, count: int) -> np.ndarray:
    """The sum of the rows [edges, 3] of each atom."""
    return np.stack([np.bincount(ends, rows[:, k], count) for k in range(3)], axis=1)
