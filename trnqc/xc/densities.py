"""Density matrices, and the density variables that they have on the points of a block.

D, or orbitals C with D = C C^T -> products with AO values by BLAS -> rho, gradient, tau [variable, point]
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from trnqc.eri.compiled import programs
from trnqc.host.arrays import zeros
from trnqc.xc.blocks import Blocks, PointBlock
from trnqc.xc.programs import point_programs

# The density variables of each kind of functional, and the derivatives of functions that they need.
VARIABLES = {"LDA": 1, "GGA": 4, "MGGA": 5}
ORDER = {"LDA": 0, "GGA": 1, "MGGA": 1}
# The names of precisions in programs.
TYPES = {np.dtype(np.float64): "f64", np.dtype(np.float32): "f32"}
# Orbitals with smaller occupations are left out, as by PySCF's numint.OCCDROP.
EMPTY = 1e-12


@dataclass(frozen=True, eq=False)
class DensityMatrix:
    """A symmetric density matrix D [nao, nao], with orbitals C [nao, nocc] of D = C C^T or None."""

    matrix: np.ndarray
    orbitals: np.ndarray | None = None

    @classmethod
    def of(
        cls, matrix: Any, coefficients: Any = None, occupations: Any = None, symmetric: bool = True
    ) -> DensityMatrix:
        """Return the density of a real matrix [nao, nao], with its orbitals unless one of them has a negative
        occupation.

        Only the symmetric part of the matrix matters; `symmetric` states that the matrix is symmetric. `coefficients`
        [nao, nmo] and `occupations` [nmo] are of orbitals with this density.
        """
        matrix = np.ascontiguousarray(matrix, np.float64)
        if not symmetric:
            matrix = (matrix + matrix.T) / 2
        if coefficients is None or np.iscomplexobj(coefficients) or (occupations < -EMPTY).any():
            return cls(matrix)
        filled = occupations > EMPTY
        return cls(matrix, np.ascontiguousarray(coefficients[:, filled] * np.sqrt(occupations[filled])))

    def by_orbitals(self, functions: int, kind: str) -> bool:
        """Whether products with orbitals take fewer operations than products with the matrix, in a block."""
        if self.orbitals is None:
            return False
        nocc = self.orbitals.shape[1]
        return {"LDA": nocc, "GGA": 2 * nocc, "MGGA": nocc}[kind] < functions


class DensityOnPoints:
    """The density variables on the points of one block at a time, for a kind of functional in VARIABLES, in double or
    single precision. Every thread needs its own.
    """

    def __init__(
        self, blocks: Blocks, kind: str, densities: Sequence[DensityMatrix], precision: type[np.floating] = np.float64
    ) -> None:
        self.kind, self._precision = kind, np.dtype(precision)
        recipe = point_programs.density(kind, TYPES[self._precision])
        self._add = getattr(programs.build([recipe])[recipe.name], recipe.name)
        self._lanes = programs.lanes(self._precision.itemsize)
        widest = max((block.points for block in blocks.blocks), default=0)
        nocc = max((d.orbitals.shape[1] for d in densities if d.orbitals is not None), default=0)
        self._psi = zeros((4 if kind == "MGGA" else 1) * nocc * widest, self._precision)
        self._ket = zeros((4 if kind == "MGGA" else 1) * blocks.largest, self._precision)

    def __call__(self, density: DensityMatrix, block: PointBlock, ao: np.ndarray, rho: np.ndarray) -> None:
        """Overwrite `rho` [variables, points] with the density, its gradient, and tau = 1/2 sum_i |grad psi_i|^2, in
        Bohr^-3, Bohr^-4 and Bohr^-5.

        `ao` [components, N, points] are the significant functions on the points of the block. Both arrays are in the
        precision of the object.
        """
        rho.fill(0.0)
        if not density.by_orbitals(len(block.functions), self.kind):
            matrix = density.matrix[np.ix_(block.functions, block.functions)].astype(self._precision, copy=False)
            kets = ao if self.kind == "MGGA" else ao[:1]
            self._sum(ao, np.matmul(matrix, kets, out=_part(self._ket, kets.shape)), rho)
            return
        assert density.orbitals is not None
        orbitals = density.orbitals[block.functions].astype(self._precision, copy=False)
        bras = ao if self.kind == "MGGA" else ao[:1]
        psi = _part(self._psi, (len(bras), orbitals.shape[1], block.points))
        np.matmul(orbitals.T, bras, out=psi)
        if self.kind == "GGA":
            self._sum(ao, np.matmul(orbitals, psi, out=_part(self._ket, (1, *ao.shape[1:]))), rho)
        else:
            self._sum(psi, psi, rho)

    def _sum(self, bra: np.ndarray, ket: np.ndarray, rho: np.ndarray) -> None:
        _, functions, points = bra.shape
        self._add(functions=functions, vectors=points // self._lanes, bra=bra, ket=ket, rho=rho)


def _part(buffer: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """Return the first elements of a buffer as an array."""
    return buffer[: prod(shape)].reshape(shape)


def densities_of(dms: Any, hermi: int) -> list[DensityMatrix]:
    """Return the densities of one matrix, an array or a list, with the orbitals with which PySCF has tagged them."""
    coefficients: Any = getattr(dms, "mo_coeff", None)
    occupations: Any = getattr(dms, "mo_occ", None)
    if isinstance(dms, np.ndarray) and dms.ndim == 2:
        return [DensityMatrix.of(dms, coefficients, occupations, hermi == 1)]
    if coefficients is None:
        return [DensityMatrix.of(dm, symmetric=hermi == 1) for dm in dms]
    return [DensityMatrix.of(dm, c, occ, hermi == 1) for dm, c, occ in zip(dms, coefficients, occupations)]
