"""The contribution of a block of points to potential matrices.

weighted derivatives of the functional by density variables, AO values -> symmetric rank-k updates -> added to V
"""

from __future__ import annotations

import numpy as np

from trnqc.eri.compiled import programs
from trnqc.host.arrays import zeros
from trnqc.host.rank_updates import add_product, add_products
from trnqc.xc.blocks import Blocks, PointBlock
from trnqc.xc.densities import TYPES
from trnqc.xc.programs import point_programs


class PotentialOfBlock:
    """Adds the contribution of one block at a time to a matrix, for "LDA", "GGA" or "MGGA", in double or single
    precision. Every thread needs its own.

    With the weighted derivatives w_0 by the density, w by its gradient and w_4 by tau,

        V_ij = sum_p w_0 chi_i chi_j + w . grad(chi_i chi_j) + w_4/2 grad chi_i . grad chi_j

    The first two terms are chi_i W_j + W_i chi_j with W = w_0/2 chi + w . grad chi.
    """

    def __init__(self, blocks: Blocks, kind: str, precision: type[np.floating] = np.float64) -> None:
        self.kind, dtype = kind, np.dtype(precision)
        name = TYPES[dtype]
        recipes = [point_programs.weighted(name), point_programs.scaled(name), point_programs.scattered(name)]
        libraries = programs.build(recipes)
        self._weigh, self._scale, self._scatter = (getattr(libraries[r.name], r.name) for r in recipes)
        self._lanes = programs.lanes(dtype.itemsize)
        self._rows = zeros((3 if kind == "MGGA" else 1) * blocks.largest, dtype)
        self._square = zeros(max((len(block.functions) ** 2 for block in blocks.blocks), default=0), dtype)

    def __call__(self, block: PointBlock, ao: np.ndarray, weighted: np.ndarray, matrix: np.ndarray) -> None:
        """Add the contribution of a block to the lower triangle of a matrix [nao, nao], which is in double precision.

        `ao` [components, N, points] are the significant functions on the points of the block, and `weighted`
        [variables, points] the derivatives of the functional, times the weights of the points, both in the precision of
        the object.
        """
        _, functions, points = ao.shape
        square = self._square[: functions**2].reshape(functions, functions)
        square.fill(0.0)
        if self.kind == "LDA":
            self._add_squares(square, ao, weighted[0])
        else:
            half = weighted[:4] * np.array([[0.5], [1.0], [1.0], [1.0]], weighted.dtype)
            rows = self._rows[: functions * points].reshape(functions, points)
            self._weigh(functions=functions, vectors=points // self._lanes, ao=ao, weights=half, out=rows)
            add_products(square, ao[0], rows)
            if self.kind == "MGGA":
                self._add_squares(square, ao[1:], weighted[4] / 2)
        self._scatter(functions=functions, stride=len(matrix), places=block.functions, block=square, matrix=matrix)

    def _add_squares(self, square: np.ndarray, ao: np.ndarray, weights: np.ndarray) -> None:
        """Add sum_cp w_p chi_cip chi_cjp.

        Points with positive and negative weights go separately, by the square roots of their weights. If most points
        have weights of one sign, the points of the other sign are picked.
        """
        components, functions, points = ao.shape
        for sign in (1.0, -1.0):
            roots = np.sqrt(np.maximum(sign * weights, 0.0))
            some = np.flatnonzero(roots)
            if 2 * len(some) < points:
                picked = (ao[:, :, some] * roots[some]).transpose(1, 0, 2)
                rows = np.ascontiguousarray(picked).reshape(functions, components * len(some))
            else:
                rows = self._rows[: ao.size].reshape(functions, components * points)
                counts = {"components": components, "functions": functions, "vectors": points // self._lanes}
                self._scale(**counts, ao=ao, weights=roots, out=rows)
            add_product(square, rows, sign)
