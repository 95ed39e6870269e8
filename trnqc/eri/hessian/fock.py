"""First derivatives of J and K by the positions of all atoms, at constant densities.

pass over (i'v|cd) -> matrices of each atom, and the derivatives of their own functions (gradient/) -> their sum
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from trnqc.eri.gradient.builder import GradientBuilder
from trnqc.eri.hessian import atom_pass
from trnqc.eri.hessian.densities import Densities, largest_of_pairs
from trnqc.eri.hessian.molecule_passes import MoleculePasses, Sums, added
from trnqc.eri.hessian.passes import FOCK
from trnqc.eri.hessian.sides import bra_of


def fock(passes: MoleculePasses, dms: np.ndarray, with_j: bool, with_k: bool) -> tuple[Any, Any]:
    """Return the derivatives of J and of K; see `HessianBuilder.fock`."""
    densities, to = Densities(passes.basis, dms), passes.basis.transform
    kets, bras = passes.plain_kets, [bra_of(side) for side in passes.mixed]
    blocks = atom_pass.blocks_of(lambda ket: FOCK, bras, kets, passes.operator)
    near = [np.maximum(ket.reach(densities.largest_p, False), ket.reach(densities.largest_p, True)) for ket in kets]
    weights = [densities.weights(bra) for bra in bras]
    arguments = []
    for n, m in np.ndindex(len(bras), len(kets)):
        rows = len(kets[m].packed)
        own = {
            "weight": weights[n],
            "bra_size": largest_of_pairs(weights[n]),
            "ket_size": np.ones(rows),
            "near_i": near[m],
        }
        arguments.append(own | {"near_v": np.ones((passes.basis.cartesian.nbas, rows))})
    nao = passes.basis.cartesian.nao_cart()

    def finish(atom: int, k_pair: np.ndarray, k_atom: np.ndarray, sums: Sums) -> tuple[Any, Any]:
        vj = vk = None
        if with_j:
            matrices = np.zeros((3, nao, nao))
            for block, _, values in added(sums):
                c, d = block.ket.side.orbitals
                by_pair = block.ket.by_pair(values) * np.where(c[:, 0, 0] == d[:, 0, 0], 0.5, 1.0)[:, None, None, None]
                for matrix, elements in zip(matrices, by_pair.swapaxes(0, 1)):
                    matrix[c, d] = elements
            vj = [to.T @ (v + v.T) @ to for v in matrices]
        if with_k:
            vk = [[to.T @ v @ to for v in axes] for axes in k_atom]
        return vj, vk

    results = passes.run(blocks, arguments, densities, (nao, nao), with_j, with_k, finish)
    return _with_rows(passes, dms, [r[0] for r in results], [r[1] for r in results], with_j, with_k)


def _with_rows(
    passes: MoleculePasses, dms: np.ndarray, js: Sequence[Any], ks: Sequence[Any], with_j: bool, with_k: bool
) -> tuple[Any, Any]:
    """Add the derivatives of the matrices' own functions, -(d_x i j|kl) D_lk, and the transposed matrices."""
    rows = GradientBuilder(passes.mol, passes.omega, passes.cutoff, passes.threads).get_jk(dms, with_j, with_k)
    slices = passes.mol.aoslice_by_atom()[:, 2:]
    # Atoms without functions contribute nothing.
    own = iter(range(len(js or ks)))
    place = {atom: next(own) for atom, (begin, end) in enumerate(slices) if end > begin}
    vj, vk = np.zeros((len(slices), 3, *dms.shape[1:])), np.zeros((len(dms), len(slices), 3, *dms.shape[1:]))
    for atom, n in place.items():
        begin, end = slices[atom]
        if with_j:
            vj[atom] = -np.asarray(js[n])
            vj[atom, :, begin:end] += rows[0].sum(axis=0)[:, begin:end]
        if with_k:
            vk[:, atom] = -np.asarray(ks[n])
            vk[:, atom, :, begin:end] += rows[1][:, :, begin:end]
    return (vj + vj.swapaxes(-1, -2) if with_j else None), (vk + vk.swapaxes(-1, -2) if with_k else None)
