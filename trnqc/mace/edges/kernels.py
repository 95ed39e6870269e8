"""Compiled programs of edges as functions of NumPy arrays: the geometry, and the convolution of a layer.

Arrays of edges have `Edges.rows` rows, a few more than edges. Nodes are divided into one share for each thread. The
edges of a node are added in their order, so z has the same bits for any number of threads; g_x is a sum over shares.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trnqc.host.arrays import empty
from trnqc.host.threads import in_parallel
from trnqc.jit import NUMPY, CompiledFunction, Recipe, find_compiler, library
from trnqc.mace.edges import geometry, layer
from trnqc.mace.edges.graph import BLOCK, Edges
from trnqc.mace.edges.network import Shape, parameters, shape_of
from trnqc.mace.edges.paths import Layout, last_layer, layout_of
from trnqc.mace.edges.scratch import Scratch
from trnqc.mace.gemm import Tile
from trnqc.mace.model import Convolution, RadialBasis


@dataclass(frozen=True, eq=False)
class EdgeValues:
    """What the layers read of each edge, [rows, ...].

    Parameters
    ----------
    lengths, units : numpy.ndarray
        float64 [rows] in Angstrom, and unit vectors [rows, 3].
    harmonics : numpy.ndarray
        [rows, (degree + 1)^2].
    radial, slopes : numpy.ndarray
        Radial functions and their derivatives by the length, [rows, size].
    cutoff : numpy.ndarray
        Cutoff function and its derivative, [rows, 2].
    """

    lengths: np.ndarray
    units: np.ndarray
    harmonics: np.ndarray
    radial: np.ndarray
    slopes: np.ndarray
    cutoff: np.ndarray


class Geometry:
    """The programs of `geometry` for a basis.

    Parameters
    ----------
    basis : RadialBasis
    degree : int
        Highest degree of the harmonics.
    dtype : {"f32", "f64"}
    """

    def __init__(self, basis: RadialBasis, degree: int, dtype: str) -> None:
        self.basis, self.degree, self.dtype = basis, degree, NUMPY[dtype]
        self.lanes = find_compiler().lanes(8)
        programs = geometry.forward(basis, degree, dtype, self.lanes), geometry.reverse(degree, dtype, self.lanes)
        compiled = library(Recipe.of(*programs, name="mace-geometry"), self.lanes)
        self._forward, self._reverse = compiled.edge_geometry, compiled.vector_gradient
        transform = basis.transform
        self._radii = np.zeros(1) if transform is None else np.ascontiguousarray(transform.radii, np.float64)

    def forward(self, edges: Edges, threads: int = 1) -> EdgeValues:
        """Compute what the layers read of the edges."""
        rows, size = edges.rows, self.basis.size
        columns = {"harmonics": geometry.harmonics_size(self.degree), "radial": size, "slopes": size, "cutoff": 2}
        arrays = {name: empty((rows, n), self.dtype) for name, n in columns.items()}
        arrays |= {"lengths": empty((rows,), np.float64), "units": empty((rows, 3), np.float64)}
        for array in arrays.values():
            array[edges.count :] = 0
        ends = {"senders": edges.senders, "receivers": edges.receivers, "elements": edges.elements}
        call = self._forward.bind(edges=edges.count, vectors=edges.vectors, radii=self._radii, **ends, **arrays)
        self._run(call, edges.count, threads)
        return EdgeValues(**arrays)

    def reverse(
        self,
        edges: Edges,
        values: EdgeValues,
        g_harmonics: np.ndarray,
        g_lengths: np.ndarray,
        g_vectors: np.ndarray,
        threads: int = 1,
    ) -> None:
        """Add to the gradient of the vectors, float64 [E, 3], what follows from those of harmonics and lengths."""
        arrays = {"lengths": values.lengths, "units": values.units, "g_harmonics": g_harmonics, "g_lengths": g_lengths}
        self._run(self._reverse.bind(edges=edges.count, g_vectors=g_vectors, **arrays), edges.count, threads)

    def _run(self, call: CompiledFunction, edges: int, threads: int) -> None:
        groups = -(-edges // self.lanes)
        in_parallel(lambda i: call(groups * i // threads, groups * (i + 1) // threads), threads, threads)


class LayerConvolution:
    """The programs of `layer` for a convolution with an exact radial network.

    Features are arrays [N, components, `channels`]: the components of all slots, and channels padded with zeros to
    whole vectors.

    Parameters
    ----------
    convolution : Convolution
    basis : RadialBasis
    dtype : {"f32", "f64"}

    Raises
    ------
    UnsupportedError
        For paths or networks that the programs do not cover.
    """

    def __init__(self, convolution: Convolution, basis: RadialBasis, dtype: str) -> None:
        compiler = find_compiler()
        tile = Tile.of(compiler, dtype)
        problem, network = convolution.problem, convolution.weights
        self.dtype = NUMPY[dtype]
        self.layout: Layout = layout_of(problem, tile.lanes)
        self.shape: Shape = shape_of(network, self.layout.columns, basis.cutoff_on_weights, tile, dtype, BLOCK)
        weights = parameters(self.shape, network, *last_layer(problem, network, self.layout))
        self.parameters = empty(weights.shape, self.dtype)
        self.parameters[:] = weights
        most = 16 if compiler.vector_bytes == 64 else 8
        programs = layer.forward(self.layout, self.shape, most), layer.reverse(self.layout, self.shape)
        compiled = library(Recipe.of(*programs, name="mace-layer"), tile.lanes)
        self._forward, self._reverse = compiled.layer, compiled.layer_gradient

    @property
    def channels(self) -> int:
        """Number of channels in memory."""
        return self.layout.padded

    def forward(self, edges: Edges, values: EdgeValues, x: np.ndarray, z: np.ndarray, threads: int = 1) -> None:
        """Write z[receiver] = sum over its edges, [R, d3, channels], from features x [N, d1, channels]."""
        self._run(self._forward, edges, values, threads, 1, x=x, z=z)

    def reverse(
        self,
        edges: Edges,
        values: EdgeValues,
        x: np.ndarray,
        g_z: np.ndarray,
        g_harmonics: np.ndarray,
        g_lengths: np.ndarray,
        threads: int = 1,
    ) -> np.ndarray:
        """Return the gradient of x, and add to those of the harmonics and lengths, [rows, ...]."""
        g_x = empty((threads, *x.shape), self.dtype)
        arrays = {"g_z": g_z, "g_x": g_x, "g_harmonics": g_harmonics, "g_lengths": g_lengths, "slopes": values.slopes}
        self._run(self._reverse, edges, values, threads, 2, nodes=edges.nodes, x=x, **arrays)
        return g_x[0] if threads == 1 else g_x.sum(axis=0)

    def _run(
        self,
        function: CompiledFunction,
        edges: Edges,
        values: EdgeValues,
        threads: int,
        copies: int,
        **arrays: np.ndarray | int,
    ) -> None:
        scratch = Scratch(self.layout, self.shape, copies)
        call = function.bind(
            edges=edges.count,
            shares=edges.shares(threads),
            starts=edges.starts,
            senders=edges.senders,
            receivers=edges.receivers,
            elements=edges.elements,
            harmonics=values.harmonics,
            radial=values.radial,
            cutoff=values.cutoff,
            parameters=self.parameters,
            scratch_vectors=empty((threads * sum(scratch.vectors.values()), self.layout.lanes), self.dtype),
            scratch_numbers=empty((threads * sum(scratch.numbers.values()),), self.dtype),
            **arrays,
        )
        in_parallel(lambda i: call(i, i + 1), threads, threads)
