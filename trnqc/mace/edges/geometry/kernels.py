"""The compiled programs of the geometry of edges as functions of NumPy arrays.

Arrays of edges have `SortedEdges.rows` rows, a few more than edges.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trnqc.host.arrays import empty
from trnqc.host.threads import in_parallel
from trnqc.jit import NUMPY, CompiledFunction, Recipe, find_compiler, library
from trnqc.mace.edges.geometry import programs
from trnqc.mace.edges.geometry.knots import Knots
from trnqc.mace.edges.graph import SortedEdges
from trnqc.mace.model import RadialBasis

Basis = RadialBasis | Knots


@dataclass(frozen=True, eq=False)
class EdgeValues:
    """What the layers read of each edge, [rows, ...].

    Lengths are float64 in Angstrom, harmonics [rows, (degree + 1)^2], radial functions and their slopes by the length
    [rows, size]. The cutoff function and its derivative, [rows, 2], are zero if the function does not multiply weights,
    and for splines; the intervals of splines are int64 [rows], zero for a basis.
    """

    lengths: np.ndarray
    harmonics: np.ndarray
    radial: np.ndarray
    slopes: np.ndarray
    cutoff: np.ndarray
    intervals: np.ndarray


class GeometryKernels:
    """The programs of `geometry` for a basis: `functions`, forward and reverse, with `lanes` edges a group.

    `basis` is the radial functions for exact networks, or the intervals of splines; `degree` the highest degree of the
    harmonics; `radii` the covalent radii of the elements in Angstrom, or one number if there is no transform.
    """

    def __init__(self, basis: Basis, degree: int, dtype: str) -> None:
        self.degree, self.dtype = degree, NUMPY[dtype]
        self.basis = basis
        self.lanes = find_compiler().lanes(8)
        factors = isinstance(basis, RadialBasis) and basis.cutoff_on_weights
        self._unused = {"intervals": isinstance(basis, RadialBasis), "cutoff": not factors}
        functions = programs.forward(basis, degree, dtype, self.lanes), programs.reverse(degree, dtype, self.lanes)
        compiled = library(Recipe.of(*functions, name="mace-geometry"), self.lanes)
        self.functions = compiled.edge_geometry, compiled.vector_gradient
        transform = basis.transform if isinstance(basis, RadialBasis) else None
        self.radii = np.zeros(1) if transform is None else np.ascontiguousarray(transform.radii, np.float64)

    def forward(self, edges: SortedEdges, threads: int = 1) -> EdgeValues:
        """Compute the values of the edges that the layers read."""
        rows, size = edges.rows, self.basis.size
        columns = {"harmonics": programs.harmonics_size(self.degree), "radial": size, "slopes": size, "cutoff": 2}
        arrays = {name: empty((rows, n), self.dtype) for name, n in columns.items()}
        arrays |= {"lengths": empty((rows,), np.float64), "intervals": empty((rows,), np.int64)}
        for name, array in arrays.items():
            array[edges.count :] = 0
            if self._unused.get(name):
                array[:] = 0
        ends = {"senders": edges.senders, "receivers": edges.receivers, "elements": edges.elements}
        call = self.functions[0].bind(edges=edges.count, vectors=edges.vectors, radii=self.radii, **ends, **arrays)
        self._run(call, edges.count, threads)
        return EdgeValues(**arrays)

    def reverse(
        self,
        edges: SortedEdges,
        values: EdgeValues,
        g_harmonics: np.ndarray,
        g_lengths: np.ndarray,
        g_vectors: np.ndarray,
        threads: int = 1,
    ) -> None:
        """Add the part of the gradients of harmonics and lengths to that of the vectors, float64 [E, 3]."""
        arrays = {
            "vectors": edges.vectors,
            "lengths": values.lengths,
            "g_harmonics": g_harmonics,
            "g_lengths": g_lengths,
        }
        self._run(self.functions[1].bind(edges=edges.count, g_vectors=g_vectors, **arrays), edges.count, threads)

    def _run(self, call: CompiledFunction, edges: int, threads: int) -> None:
        groups = -(-edges // self.lanes)
        in_parallel(lambda i: call(groups * i // threads, groups * (i + 1) // threads), threads, threads)
