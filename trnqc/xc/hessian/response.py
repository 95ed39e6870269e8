"""The response of the exchange-correlation potential to changes of occupied orbitals.

changes U of the occupied orbitals C -> changes of the density (U C^T + C U^T) -> kernel -> V' C

A coupled-perturbed SCF needs V' between occupied and all orbitals only. The products therefore have the occupied
orbitals on one side, and no density matrices: their work grows with nao nocc, not nao^2.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence

import numpy as np

from trnqc.xc.ao import AtomicOrbitals
from trnqc.xc.blocks import Block, Blocks
from trnqc.xc.hessian.quadrature import HessianQuadrature

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
        evaluated = quadrature.over(
            self._aos, lambda block, ao: (block, quadrature.evaluated(self._blocks, block, ao)[2])
        )
        self._kernels = {id(block): kernel for block, kernel in evaluated}

    def __call__(self, changes: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return V' C for each spin.

        Parameters
        ----------
        changes : sequence of ndarray [n, nao, nocc]
            U of each spin. For closed shells U C^T + C U^T is the change of the spin-summed density.

        Returns
        -------
        list of ndarray [n, nao, nocc]
            The products of the potential's change with the occupied orbitals.
        """
        totals, lock = [np.zeros(u.shape) for u in changes], threading.Lock()

        def one(block: Block, ao: np.ndarray) -> None:
            orbitals = [np.matmul(c[block.functions].T, ao) for c in self.occupied]
            own = [u[:, block.functions] for u in changes]
            step = max(1, TOGETHER // (ao.shape[1] * block.points))
            kernel = self._kernels[id(block)]
            for begin in range(0, len(own[0]), step):
                some = [u[begin : begin + step] for u in own]
                rho = np.stack([_density_changes(ao, c, u, kernel.shape[1]) for c, u in zip(orbitals, some)], axis=1)
                weights = np.einsum("svtug,ntug->snvg", kernel, rho, optimize=True)
                products = [_potential_times_orbitals(ao, c, w) for c, w in zip(orbitals, weights)]
                with lock:
                    for total, product in zip(totals, products):
                        total[begin : begin + step, block.functions] += product

        for _ in self.quadrature.over(self._aos, one):
            pass
        return totals


def _density_changes(ao: np.ndarray, orbitals: np.ndarray, changes: np.ndarray, variables: int) -> np.ndarray:
    """Return the changes of a density's variables, [n, variables, points].

    ao [components, N, points] and orbitals [components, nocc, points]: values and derivatives. changes [n, N, nocc].
    """
    n, size, nocc = changes.shape
    rows = np.ascontiguousarray(changes.swapaxes(1, 2)).reshape(n * nocc, size)
    moved = (rows @ ao[0]).reshape(n, nocc, -1)
    result = np.empty((n, variables, ao.shape[2]))
    result[:, 0] = 2 * np.einsum("nig,ig->ng", moved, orbitals[0])
    if variables > 1:
        by_function = (changes.reshape(n * size, nocc) @ orbitals[0]).reshape(n, size, -1)
        for c in (1, 2, 3):
            result[:, c] = np.einsum("nig,ig->ng", moved, orbitals[c])
            result[:, c] += np.einsum("nig,ig->ng", by_function, ao[c])
        result[:, 1:4] *= 2
    if variables > 4:
        raised = ((rows @ ao[c]).reshape(n, nocc, -1) for c in (1, 2, 3))
        result[:, 4] = sum(np.einsum("nig,ig->ng", r, orbitals[c + 1]) for c, r in enumerate(raised))
    return result


def _potential_times_orbitals(ao: np.ndarray, orbitals: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return the products [n, N, nocc] of potentials with weights [n, variables, points] and the occupied orbitals."""
    n, variables, _ = weights.shape
    nocc, size = orbitals.shape[1], ao.shape[1]
    right = weights[:, 0, None] * orbitals[0]
    for c in range(1, min(variables, 4)):
        right += weights[:, c, None] * orbitals[c]
    product = ao[0] @ right.reshape(n * nocc, -1).T
    for c in range(1, min(variables, 4)):
        right = weights[:, c, None] * orbitals[0]
        if variables > 4:
            right += (0.5 * weights[:, 4, None]) * orbitals[c]
        product += ao[c] @ right.reshape(n * nocc, -1).T
    return product.reshape(size, n, nocc).swapaxes(0, 1)
