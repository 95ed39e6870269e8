"""The response of the exchange-correlation potential to changes of occupied orbitals.

changes U of the occupied orbitals C -> changes of the density (U C^T + C U^T) -> kernel -> V' C

A coupled-perturbed SCF needs V' between occupied and all orbitals only. The products therefore have the occupied
orbitals on one side, and no density matrices: their work grows with nao nocc, not nao^2.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from trnqc.eri.compiled import programs
from trnqc.xc.ao import AtomicOrbitals
from trnqc.xc.blocks import Blocks, PointBlock
from trnqc.xc.hessian.block_densities import VARIABLES
from trnqc.xc.hessian.quadrature import HessianQuadrature
from trnqc.xc.programs import point_programs

# Points of a block: a few changes of the orbitals and their products then stay in the cache of a core.
POINTS = 256
# Elements of an array [changes, N, points] that is made at once.
TOGETHER = 1 << 18


class PotentialResponse:
    """The linear response of the potential at fixed nuclei, for many changes of the orbitals at once.

    Parameters
    ----------
    quadrature : HessianQuadrature
        The molecule, grid, functional and densities.
    occupied : sequence of ndarray [nao, nocc]
        The occupied orbitals of each spin.
    """

    def __init__(self, quadrature: HessianQuadrature, occupied: Sequence[np.ndarray]) -> None:
        self.quadrature, self.occupied = quadrature, occupied
        self._order = quadrature.functional.order
        self._blocks = Blocks.of(quadrature.mol, *quadrature.grid, self._order, size=POINTS)
        self._aos = AtomicOrbitals(self._blocks, self._order)
        self._programs = _Programs(quadrature.functional.kind)
        evaluated = quadrature.over(
            self._aos, lambda block, ao: (block, quadrature.evaluated(self._blocks, block, ao)[2])
        )
        self._kernels = {id(block): kernel for block, kernel in evaluated}

    def __call__(self, changes: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return V' C [n, nao, nocc] for each spin, with changes U [n, nao, nocc] of the occupied orbitals C.

        For closed shells U C^T + C U^T is the change of the spin-summed density.
        """
        totals = [np.zeros(u.shape) for u in changes]

        def one(block: PointBlock, ao: np.ndarray) -> tuple[PointBlock, list[np.ndarray]]:
            orbitals = [np.matmul(c[block.functions].T, ao) for c in self.occupied]
            own = [u[:, block.functions] for u in changes]
            step = max(1, TOGETHER // (ao.shape[1] * block.points))
            kernel = self._kernels[id(block)]
            parts = []
            for begin in range(0, len(own[0]), step):
                some = [u[begin : begin + step] for u in own]
                rho = np.stack([self._programs.changes(ao, c, u) for c, u in zip(orbitals, some)], axis=1)
                weights = np.ascontiguousarray(np.einsum("svtug,ntug->snvg", kernel, rho, optimize=True))
                parts.append([self._programs.products(ao, c, w) for c, w in zip(orbitals, weights)])
            return block, [np.concatenate(spin) for spin in zip(*parts)]

        # Blocks are added in order, so that the bits do not depend on the number of threads.
        for block, products in self.quadrature.over(self._aos, one):
            for total, product in zip(totals, products):
                total[:, block.functions] += product
        return totals


class _Programs:
    """Compiled programs over functions and points, applied to the changes of one spin.

    ao [components, N, points] and orbitals [components, nocc, points] are values and derivatives.
    """

    def __init__(self, kind: str) -> None:
        self._kind, self._lanes = kind, programs.lanes()
        # tau is computed apart, since it needs derivatives of m.
        recipes = [point_programs.density("LDA" if kind == "LDA" else "GGA"), point_programs.weighted()]
        libraries = programs.build(recipes)
        self._density, self._weighted = (getattr(libraries[recipe.name], recipe.name) for recipe in recipes)

    def changes(self, ao: np.ndarray, orbitals: np.ndarray, u: np.ndarray) -> np.ndarray:
        """Return the changes of a density's variables for U [n, N, nocc], [n, variables, points].

        With psi = C^T chi and m = U^T chi, rho' = 2 psi m, and its gradient is 2 psi' m + 2 chi' (U psi).
        """
        n, size, nocc = u.shape
        points, variables = ao.shape[2], VARIABLES[self._kind]
        rows = np.ascontiguousarray(u.swapaxes(1, 2)).reshape(n * nocc, size)
        moved = (rows @ ao[0]).reshape(n, nocc, points)
        by_function = (u.reshape(n * size, nocc) @ orbitals[0]).reshape(n, size, points)
        result = np.zeros((n, variables, points))
        vectors = points // self._lanes
        for rho, ket, other in zip(result, moved, by_function):
            self._density(functions=nocc, vectors=vectors, bra=orbitals, ket=ket, rho=rho)
            self._density(functions=size, vectors=vectors, bra=ao, ket=other, rho=rho)
        if variables > 4:
            raised = ((rows @ ao[c]).reshape(n, nocc, points) for c in (1, 2, 3))
            result[:, 4] = sum(np.einsum("nig,ig->ng", r, orbitals[c + 1]) for c, r in enumerate(raised))
        return result

    def products(self, ao: np.ndarray, orbitals: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """Return V' C [n, N, nocc] for potentials with weights [n, variables, points].

        They are chi (w_0 psi + w . psi') + (w . chi') psi, and w_4/2 chi' . psi' for meta-GGA.
        """
        n, variables, points = weights.shape
        size, nocc = ao.shape[1], orbitals.shape[1]
        if variables == 1:
            right = weights * orbitals[0]
            return self._times(ao[0], right)
        right, left = np.empty((n, nocc, points)), np.empty((n, size, points))
        vectors = points // self._lanes
        for own, to_orbitals, to_functions in zip(weights, right, left):
            self._weighted(functions=nocc, vectors=vectors, ao=orbitals, weights=own, out=to_orbitals)
            gradient = np.concatenate([np.zeros((1, points)), own[1:4]])
            self._weighted(functions=size, vectors=vectors, ao=ao, weights=gradient, out=to_functions)
        product = self._times(ao[0], right)
        product += (left.reshape(n * size, points) @ orbitals[0].T).reshape(n, size, nocc)
        if variables > 4:
            for c in (1, 2, 3):
                product += self._times(ao[c], (0.5 * weights[:, 4, None]) * orbitals[c])
        return product

    @staticmethod
    def _times(functions: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Return the products over points of functions [N, points] with right [n, nocc, points], [n, N, nocc]."""
        n, nocc, points = right.shape
        product = functions @ right.reshape(n * nocc, points).T
        return product.reshape(len(functions), n, nocc).swapaxes(0, 1)
