"""Second derivatives of the two-electron energy at constant densities.

passes with both derivatives on one side and with one on each -> blocks of atoms -> translational invariance
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from trnqc.eri.hessian import atom_pass
from trnqc.eri.hessian.densities import Densities, largest_of_pairs
from trnqc.eri.hessian.molecule_passes import MoleculePasses, Sums, added
from trnqc.eri.hessian.passes import CROSS, CROSS_SWAPPED, ONE_SIDE
from trnqc.eri.hessian.sides import OrientedPairs, bra_of, ket_of, side_of
from trnqc.eri.shells.pairs import pairs_between


def energy(passes: MoleculePasses, dms: np.ndarray, with_j: bool, with_k: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return the second derivatives of the Coulomb and of the exchange energy; see `HessianBuilder.energy`."""
    densities = Densities(passes.basis, dms)
    one, two = _one_side(passes, densities, with_j, with_k), _cross(passes, densities, with_j, with_k)
    exchange = 1.0 if len(dms) == 1 else 2.0
    ej, ek = 2 * one[0] + 4 * two[0], exchange * (one[1] + two[1])
    return completed(ej), completed(ek)


def _one_side(
    passes: MoleculePasses, densities: Densities, with_j: bool, with_k: bool
) -> tuple[np.ndarray, np.ndarray]:
    """Return sum (d_A p d_B q|rs) D_pq D_rs and sum (d_A p d_B q|rs) D_pr D_qs, with both orders of A and B."""
    sides = [side_of(pairs, passes.atoms) for pairs in pairs_between(passes.basis.mol, passes.basis.mol)]
    bras = [bra_of(side.take(np.flatnonzero(side.atoms < passes.atoms[side.shells[1]]))) for side in sides]
    bras, kets = [bra for bra in bras if len(bra.pairs)], passes.plain_kets
    blocks = atom_pass.blocks_of(lambda ket: ONE_SIDE, bras, kets, passes.operator)
    near = [np.maximum(ket.reach(densities.largest_p, False), ket.reach(densities.largest_p, True)) for ket in kets]
    folded = [densities.folded(ket) for ket in kets]
    products = [np.array([[q[bra.orbitals] for q in axes] for axes in densities.q_total]) for bra in bras]
    arguments = []
    for n, m in np.ndindex(len(bras), len(kets)):
        own = {"folded": folded[m], "bra_size": largest_of_pairs(np.moveaxis(products[n], 2, 0))}
        arguments.append(own | {"ket_size": abs(folded[m]).max(axis=(1, 2, 3)), "near_i": near[m], "near_v": near[m]})
    by_bra = {id(bra): product for bra, product in zip(bras, products)}
    shape, p = (passes.basis.mol.nao_cart(), passes.basis.cartesian.nao_cart()), densities.p

    def finish(atom: int, k_pair: np.ndarray, k_atom: np.ndarray, sums: Sums) -> tuple[np.ndarray, np.ndarray]:
        ej, ek = np.zeros((2, passes.mol.natm, 3, 3))
        for block, pairs, values in sums if with_j else []:
            terms = np.einsum("xynpq,npq->nxy", by_bra[id(block.bra)][:, :, pairs], values[pairs].sum(axis=-1))
            np.add.at(ej, passes.atoms[block.bra.shells[1][pairs]], terms)
        if with_k:
            np.add.at(ek, passes.function_atoms, np.einsum("nxvc,nyvc->vxy", k_atom, p, optimize=True))
        return ej, ek

    return _blocks(passes, passes.run(blocks, arguments, densities, shape, with_j, with_k, finish), bras)


def _cross(passes: MoleculePasses, densities: Densities, with_j: bool, with_k: bool) -> tuple[np.ndarray, np.ndarray]:
    """Return sum (d_A p q|d_B r s) D_pq D_rs and (..) (D_pr D_qs + D_ps D_qr), with both orders of A and B."""
    kets, bras = [ket_of(side, np.ones(len(side.pairs))) for side in passes.mixed], [bra_of(s) for s in passes.mixed]
    kinds = {False: CROSS, True: CROSS_SWAPPED}
    blocks = atom_pass.blocks_of(lambda ket: kinds[ket.side.pairs.swapped], bras, kets, passes.operator, once=True)
    weights, of_kets = [densities.weights(bra) for bra in bras], [densities.weights(ket.side) for ket in kets]
    sizes = [ket.of(largest_of_pairs(weight)).max(axis=1) for ket, weight in zip(kets, of_kets)]
    near_i = [ket.reach(densities.largest_p, True) for ket in kets]
    near_v = [ket.reach(densities.largest_p.T, False) for ket in kets]
    far_i = [ket.reach(densities.largest_q, False) for ket in kets]
    far_v = [ket.reach(densities.largest_d, True) for ket in kets]
    arguments = []
    for n, m in zip(*np.tril_indices(len(bras))):
        own = {
            "weight": weights[n],
            "bra_size": largest_of_pairs(weights[n]),
            "ket_size": sizes[m],
            "near_i": near_i[m],
        }
        arguments.append(own | {"near_v": near_v[m], "far_i": far_i[m], "far_v": far_v[m]})
    by_ket = {id(ket): weight for ket, weight in zip(kets, of_kets)}
    shape = passes.basis.cartesian.nao_cart(), passes.basis.mol.nao_cart()
    p, q, own_atoms = densities.p, densities.q, passes.function_atoms

    def finish(atom: int, k_pair: np.ndarray, k_atom: np.ndarray, sums: Sums) -> tuple[np.ndarray, np.ndarray]:
        ej, ek = np.zeros((2, passes.mol.natm, 3, 3))
        for block, _, values in added(sums) if with_j else []:
            ket = block.ket
            terms = np.einsum("nxqc,nyqc->nxy", ket.by_pair(values), by_ket[id(ket)], optimize=True)
            np.add.at(ej, ket.side.atoms, terms)
        if with_k:
            rows = np.flatnonzero(own_atoms == atom)
            terms = np.einsum("nxvc,nycv->cxy", k_atom, p, optimize=True)
            terms += np.einsum("nic,nxyic->cxy", k_pair[:, rows], q[:, :, :, rows], optimize=True)
            np.add.at(ek, own_atoms, terms)
        return ej, ek

    return _blocks(passes, passes.run(blocks, arguments, densities, shape, with_j, with_k, finish), bras)


def _blocks(
    passes: MoleculePasses, results: Sequence[Any], bras: Sequence[OrientedPairs]
) -> tuple[np.ndarray, np.ndarray]:
    """Return [A, B, x, y] with both orders of A and B, from the rows of the atoms that have bra pairs."""
    atoms = sorted({int(atom) for bra in bras for atom in np.unique(bra.atoms)})
    both = np.zeros((2, passes.mol.natm, passes.mol.natm, 3, 3))
    for atom, rows in zip(atoms, results, strict=True):
        both[:, atom] = rows
    both += both.transpose(0, 2, 1, 4, 3)
    return both[0], both[1]


def completed(blocks: np.ndarray) -> np.ndarray:
    """Set the blocks of one atom from those of two by translational invariance, E_AA = -sum_B E_AB, in place."""
    atoms = np.arange(len(blocks))
    blocks[atoms, atoms] = 0.0
    diagonal = -blocks.sum(axis=1)
    blocks[atoms, atoms] = (diagonal + diagonal.transpose(0, 2, 1)) / 2
    return blocks
