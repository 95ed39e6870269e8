"""Terms of second derivatives of the energy on the points of one block.

densities of a block, their derivatives by atoms, derivatives v and f of the energy density -> sums over points
"""

from __future__ import annotations

import numpy as np

from trnqc.xc.hessian.block_densities import SECOND, THIRD, BlockDensities


def response_terms(by_atoms: np.ndarray, kernel: np.ndarray) -> np.ndarray:
    """Return sum_g w f rho^A rho^B, [atoms, atoms, 3, 3]."""
    n = len(by_atoms)
    changed = np.einsum("svtug,axtug->axsvg", kernel, by_atoms, optimize=True)
    return (by_atoms.reshape(3 * n, -1) @ changed.reshape(3 * n, -1).T).reshape(n, 3, n, 3).swapaxes(1, 2)


def weight_terms(moved: np.ndarray, by_atoms: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Return sum_g w^A v rho^B, [natm, atoms, 3, 3]."""
    changes = np.einsum("svg,axsvg->axg", v, by_atoms, optimize=True)
    products = moved.reshape(-1, moved.shape[-1]) @ changes.reshape(-1, changes.shape[-1]).T
    return products.reshape(len(moved), 3, len(changes), 3).swapaxes(1, 2)


def two_functions(densities: BlockDensities, weighted: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Return sum_g w v rho^AB with the derivatives of two functions of a product, [atoms, atoms, 3, 3]."""
    ao, total = densities.ao, 0.0
    size = ao.shape[1]
    first = ao[1:4].reshape(3 * size, -1)
    for own, dm in zip(weighted, densities.dms):
        raised = 0.5 * own[0] * ao[1:4]
        if len(own) > 1:
            raised += np.einsum("xcig,cg->xig", ao[SECOND], own[1:4])
        matrix = (raised.reshape(3 * size, -1) @ first.T).reshape(3, size, 3, size)
        matrix = matrix + matrix.transpose(2, 3, 0, 1)
        if len(own) > 4:
            for c in range(3):
                second = ao[SECOND[:, c]].reshape(3 * size, -1)
                matrix += ((second * (0.5 * own[4])) @ second.T).reshape(matrix.shape)
        total = total + 2 * matrix * dm[:, None, :]
    by_atoms = np.add.reduceat(np.add.reduceat(total, starts, axis=1), starts, axis=3)
    return by_atoms.transpose(1, 3, 0, 2)


def one_function(densities: BlockDensities, weighted: np.ndarray, starts: np.ndarray) -> np.ndarray:
    """Return sum_g w v rho^AA with both derivatives of one function, [atoms, 3, 3]."""
    ao, total = densities.ao, np.zeros((3, 3, densities.ao.shape[1]))
    for own, x in zip(weighted, densities.products):
        value = own[0] * x[0]
        if len(own) > 1:
            value = np.einsum("cg,cig->ig", own[:4], x)
        by_c = [own[1 + c] * x[0] for c in range(3)] if len(own) > 1 else []
        if len(own) > 4:
            by_c = [one + (0.5 * own[4]) * x[1 + c] for c, one in enumerate(by_c)]
        for i in range(3):
            for j in range(i + 1):
                term = np.einsum("ig,ig->i", ao[SECOND[i, j]], value)
                for c, one in enumerate(by_c):
                    term += np.einsum("ig,ig->i", ao[THIRD[i, j, c]], one)
                total[i, j] += 2 * term
                if i != j:
                    total[j, i] += 2 * term
    return np.add.reduceat(total, starts, axis=2).transpose(2, 0, 1)


def moved_functions(ao: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """Return sum_g of the potential between (d_x i) and j, [3, N, N]."""
    matrices = []
    value = weights[0] * ao[0] if len(weights) == 1 else np.einsum("cg,cig->ig", weights[:4], ao[:4])
    for axis in range(3):
        matrix = ao[1 + axis] @ value.T
        if len(weights) > 1:
            matrix += np.einsum("cg,cig->ig", weights[1:4], ao[SECOND[axis]]) @ ao[0].T
        if len(weights) > 4:
            for c in range(3):
                matrix += (ao[SECOND[axis, c]] * (0.5 * weights[4])) @ ao[1 + c].T
        matrices.append(matrix)
    return np.array(matrices)
