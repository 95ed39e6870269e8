"""First derivatives of a basis as linear combinations of the functions of another one.

The derivative of a Cartesian Gaussian, d/dx x^a y^b z^c g = a x^(a-1) y^b z^c g - 2 alpha x^(a+1) y^b z^c g, combines a
shell l - 1 with the same contraction and a shell l + 1 with coefficients times -2 alpha. So integrals over derivatives
are combinations of integrals over those shells, and need no kernels of their own.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import pi, sqrt

import numpy as np
from pyscf import gto
from scipy import sparse

from trnqc.eri.kernels.angular import cartesians, raised, spherical


@dataclass(frozen=True)
class DerivativeBasis:
    """The Cartesian shells `mol` whose functions chi' span the derivatives of a molecule's functions chi.

    For every shell of the molecule there are l + 1, then l - 1 if l > 0, on the same atoms. `cartesian` is the molecule
    in Cartesian functions, and `transform` [ncart, nao] its own functions in these. `gradient` [n, nao], for x, y and
    z, gives d chi_i / dx = sum_k chi'_k gradient[x][k, i], by the electron's coordinate.
    """

    mol: gto.Mole
    cartesian: gto.Mole
    transform: sparse.csr_matrix
    gradient: tuple[sparse.csr_matrix, ...]


def derivative_basis(mol: gto.Mole) -> DerivativeBasis:
    """Return the shells of the first derivatives of a molecule's functions, and the derivatives in their functions."""
    rows, coefficients, places = [], [], []
    end, first = len(mol._env), 0
    for shell, row in enumerate(mol._bas):
        l, nctr = int(row[gto.ANG_OF]), int(row[gto.NCTR_OF])
        place = {}
        for to in (l + 1, l - 1)[: 2 if l else 1]:
            scale = -2 * mol.bas_exp(shell)[:, None] if to > l else 1.0
            block = mol._libcint_ctr_coeff(shell) * scale * (_factor(l) / _factor(to))
            new = row.copy()
            new[gto.ANG_OF], new[gto.PTR_COEFF] = to, end
            rows.append(new)
            coefficients.append(block.T.ravel())
            end += block.size
            place[to] = first
            first += nctr * len(cartesians(to))
        places.append(place)
    other = _cartesian(mol)
    basis = _cartesian(mol)
    basis._bas = np.array(rows, dtype=np.int32)
    basis._env = np.concatenate([mol._env, *coefficients])
    transform = _to_cartesian(mol)
    axes = tuple(_combination(mol, places, axis, first) @ transform for axis in range(3))
    return DerivativeBasis(basis, other, transform, axes)


def _factor(l: int) -> float:
    """Return libcint's angular factor of Cartesian s and p functions; the factor of other shells is 1."""
    return sqrt((2 * l + 1) / (4 * pi)) if l < 2 else 1.0


def _cartesian(mol: gto.Mole) -> gto.Mole:
    other = mol.copy(deep=False)
    other.cart = True
    return other


def _to_cartesian(mol: gto.Mole) -> sparse.csr_matrix:
    blocks = []
    for l, nctr in mol._bas[:, [gto.ANG_OF, gto.NCTR_OF]]:
        block = np.eye(len(cartesians(int(l)))) if mol.cart else spherical(int(l))
        blocks += [sparse.coo_array(block)] * int(nctr)
    return sparse.csr_matrix(sparse.block_diag(blocks))


def _combination(mol: gto.Mole, places: list[dict[int, int]], axis: int, rows: int) -> sparse.csr_matrix:
    """Return the derivatives of the molecule's Cartesian functions along one axis, [rows, ncart]."""
    entries: list[tuple[float, int, int]] = []
    column = 0
    for place, (l, nctr) in zip(places, mol._bas[:, [gto.ANG_OF, gto.NCTR_OF]].tolist()):
        for contraction in range(nctr):
            for powers in cartesians(l):
                for to, value in ((l + 1, 1.0), (l - 1, float(powers[axis]))):
                    if value:
                        target = cartesians(to)
                        row = place[to] + contraction * len(target) + target.index(raised(powers, axis, to - l))
                        entries.append((value, row, column))
                column += 1
    values, where, columns = zip(*entries)
    return sparse.csr_matrix((values, (where, columns)), shape=(rows, column))
