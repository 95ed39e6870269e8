"""Two-electron terms of an SCF Hessian: second derivatives of the energy, first derivatives of the Fock matrix.

densities -> products with the derivative basis -> passes (atom_pass.py) -> Hessian blocks, matrices of each atom
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from pyscf import gto, lib

from trnqc.eri.gradient.builder import GradientBuilder
from trnqc.eri.gradient.derivative_basis import derivative_basis
from trnqc.eri.hessian import atom_pass
from trnqc.eri.hessian.atom_pass import Block
from trnqc.eri.hessian.blocks import completed
from trnqc.eri.hessian.densities import Densities, largest_of_pairs
from trnqc.eri.hessian.passes import CROSS, CROSS_SWAPPED, FOCK, ONE_SIDE
from trnqc.eri.hessian.sides import Ket, Side, bra_of, ket_of, side_of
from trnqc.eri.jk.builder import CUTOFF
from trnqc.eri.operators import Operator
from trnqc.eri.shells.pairs import pairs_between, pairs_of
from trnqc.errors import InputError

Sums = list[tuple[Block, slice, np.ndarray]]


class HessianBuilder:
    """Two-electron terms of the Hessian of one molecule, for the densities of one or of two spins.

    Parameters
    ----------
    mol
        The molecule.
    omega
        In 1/Bohr: positive for erf(omega r)/r, negative for erfc(|omega| r)/r, 0 for 1/r.
    cutoff
        Products of an integral over the shells of derivatives and of the densities that it meets are left out if they
        are below this.
    threads
        By default `pyscf.lib.num_threads()`. The bits do not depend on it.

    Raises
    ------
    CompilerError, UnsupportedClass, MoleculeError
        If there are no kernels for these shells.
    """

    def __init__(self, mol: gto.Mole, omega: float = 0.0, cutoff: float = CUTOFF, threads: int | None = None) -> None:
        self.mol, self._omega, self._cutoff = mol, omega, cutoff
        self._threads = threads or lib.num_threads()
        self._operator = Operator.of(mol, omega)
        self._basis = derivative_basis(mol)
        self._atoms = self._basis.mol._bas[:, gto.ATOM_OF].astype(np.int64)
        self._mixed = [side_of(pairs, self._atoms) for pairs in pairs_between(self._basis.mol, self._basis.cartesian)]

    @cached_property
    def _plain_kets(self) -> list[Ket]:
        """Pairs of the molecule's shells, each once; the factor 1/2 is for two orders of one shell with itself."""
        sides = [side_of(pairs) for pairs in pairs_of(self._basis.cartesian)]
        return [ket_of(side, np.where(side.pairs.first == side.pairs.second, 0.5, 1.0)) for side in sides]

    def energy(self, dms: np.ndarray, with_j: bool = True, with_k: bool = True) -> tuple[np.ndarray, np.ndarray]:
        """Compute second derivatives of the Coulomb and of the exchange energy at constant densities.

        Parameters
        ----------
        dms : ndarray [1, nao, nao] or [2, nao, nao]
            The spin-summed density, or those of alpha and beta electrons. They are symmetric.
        with_j, with_k : bool
            What is wanted; the other array is zero.

        Returns
        -------
        ej, ek : ndarray [natm, natm, 3, 3]
            In Hartree/Bohr^2. The energy is ej - ek for Hartree-Fock.

        Notes
        -----
        With E_J = 1/2 sum (pq|rs) D_pq D_rs and E_K = 1/2 sum_s (pq|rs) D^s_pr D^s_qs (half of it for a spin-summed
        density), the derivatives by two atoms A and B that differ have terms with both derivatives on one side,
        (d_A p d_B q|rs), and with one on each side, (d_A p q|d_B r s). The terms of one atom follow from translational
        invariance, E_AA = -sum_B E_AB.
        """
        densities = Densities(self._basis, self._checked(dms))
        one, two = self._one_side(densities, with_j, with_k), self._cross(densities, with_j, with_k)
        exchange = 1.0 if len(dms) == 1 else 2.0
        ej, ek = 2 * one[0] + 4 * two[0], exchange * (one[1] + two[1])
        return completed(ej), completed(ek)

    def fock(self, dms: np.ndarray, with_j: bool = True, with_k: bool = True) -> tuple[Any, Any]:
        """Compute first derivatives of J and K by the positions of all atoms, at constant densities.

        Parameters
        ----------
        dms, with_j, with_k
            As for `energy`.

        Returns
        -------
        vj : ndarray [natm, 3, nao, nao] or None
            The derivatives of J of the sum of the densities, in Hartree/Bohr.
        vk : ndarray [n, natm, 3, nao, nao] or None
            Those of K of each density.
        """
        dms = self._checked(dms)
        densities, to = Densities(self._basis, dms), self._basis.transform
        kets, bras = self._plain_kets, [bra_of(side) for side in self._mixed]
        blocks = atom_pass.blocks_of(lambda ket: FOCK, bras, kets, self._operator)
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
            arguments.append(own | {"near_v": np.ones((self._basis.cartesian.nbas, rows))})
        nao = self._basis.cartesian.nao_cart()

        def finish(atom: int, k_pair: np.ndarray, k_atom: np.ndarray, sums: Sums) -> tuple[Any, Any]:
            vj = vk = None
            if with_j:
                matrices = np.zeros((3, nao, nao))
                for block, _, values in _added(sums):
                    c, d = block.ket.side.orbitals
                    by_pair = (
                        block.ket.by_pair(values) * np.where(c[:, 0, 0] == d[:, 0, 0], 0.5, 1.0)[:, None, None, None]
                    )
                    for matrix, elements in zip(matrices, by_pair.swapaxes(0, 1)):
                        matrix[c, d] = elements
                vj = [to.T @ (v + v.T) @ to for v in matrices]
            if with_k:
                vk = [[to.T @ v @ to for v in axes] for axes in k_atom]
            return vj, vk

        results = self._run(blocks, arguments, densities, (nao, nao), with_j, with_k, finish)
        return self._with_rows(dms, [r[0] for r in results], [r[1] for r in results], with_j, with_k)

    def _with_rows(
        self, dms: np.ndarray, js: Sequence[Any], ks: Sequence[Any], with_j: bool, with_k: bool
    ) -> tuple[Any, Any]:
        """Add the derivatives of the matrices' own functions, -(d_x i j|kl) D_lk, and the transposed matrices."""
        rows = GradientBuilder(self.mol, self._omega, self._cutoff, self._threads).get_jk(dms, with_j, with_k)
        slices = self.mol.aoslice_by_atom()[:, 2:]
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

    def _one_side(self, densities: Densities, with_j: bool, with_k: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return sum (d_A p d_B q|rs) D_pq D_rs and sum (d_A p d_B q|rs) D_pr D_qs, with both orders of A and B."""
        sides = [side_of(pairs, self._atoms) for pairs in pairs_between(self._basis.mol, self._basis.mol)]
        bras = [bra_of(side.take(np.flatnonzero(side.atoms < self._atoms[side.shells[1]]))) for side in sides]
        bras, kets = [bra for bra in bras if len(bra.pairs)], self._plain_kets
        blocks = atom_pass.blocks_of(lambda ket: ONE_SIDE, bras, kets, self._operator)
        near = [np.maximum(ket.reach(densities.largest_p, False), ket.reach(densities.largest_p, True)) for ket in kets]
        folded = [densities.folded(ket) for ket in kets]
        products = [np.array([[q[bra.orbitals] for q in axes] for axes in densities.q_total]) for bra in bras]
        arguments = []
        for n, m in np.ndindex(len(bras), len(kets)):
            own = {"folded": folded[m], "bra_size": largest_of_pairs(np.moveaxis(products[n], 2, 0))}
            arguments.append(
                own | {"ket_size": abs(folded[m]).max(axis=(1, 2, 3)), "near_i": near[m], "near_v": near[m]}
            )
        by_bra = {id(bra): product for bra, product in zip(bras, products)}
        shape, p = (self._basis.mol.nao_cart(), self._basis.cartesian.nao_cart()), densities.p

        def finish(atom: int, k_pair: np.ndarray, k_atom: np.ndarray, sums: Sums) -> tuple[np.ndarray, np.ndarray]:
            ej, ek = np.zeros((2, self.mol.natm, 3, 3))
            for block, pairs, values in sums if with_j else []:
                terms = np.einsum("xynpq,npq->nxy", by_bra[id(block.bra)][:, :, pairs], values[pairs].sum(axis=-1))
                np.add.at(ej, self._atoms[block.bra.shells[1][pairs]], terms)
            if with_k:
                np.add.at(ek, self._function_atoms, np.einsum("nxvc,nyvc->vxy", k_atom, p, optimize=True))
            return ej, ek

        return self._blocks(self._run(blocks, arguments, densities, shape, with_j, with_k, finish), bras)

    def _cross(self, densities: Densities, with_j: bool, with_k: bool) -> tuple[np.ndarray, np.ndarray]:
        """Return sum (d_A p q|d_B r s) D_pq D_rs and (..) (D_pr D_qs + D_ps D_qr), with both orders of A and B."""
        kets, bras = [ket_of(side, np.ones(len(side.pairs))) for side in self._mixed], [bra_of(s) for s in self._mixed]
        kinds = {False: CROSS, True: CROSS_SWAPPED}
        blocks = atom_pass.blocks_of(lambda ket: kinds[ket.side.pairs.swapped], bras, kets, self._operator, once=True)
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
        shape = self._basis.cartesian.nao_cart(), self._basis.mol.nao_cart()
        p, q, own_atoms = densities.p, densities.q, self._function_atoms

        def finish(atom: int, k_pair: np.ndarray, k_atom: np.ndarray, sums: Sums) -> tuple[np.ndarray, np.ndarray]:
            ej, ek = np.zeros((2, self.mol.natm, 3, 3))
            for block, _, values in _added(sums) if with_j else []:
                ket = block.ket
                terms = np.einsum("nxqc,nyqc->nxy", ket.by_pair(values), by_ket[id(ket)], optimize=True)
                np.add.at(ej, ket.side.atoms, terms)
            if with_k:
                rows = np.flatnonzero(own_atoms == atom)
                terms = np.einsum("nxvc,nycv->cxy", k_atom, p, optimize=True)
                terms += np.einsum("nic,nxyic->cxy", k_pair[:, rows], q[:, :, :, rows], optimize=True)
                np.add.at(ek, own_atoms, terms)
            return ej, ek

        return self._blocks(self._run(blocks, arguments, densities, shape, with_j, with_k, finish), bras)

    @cached_property
    def _function_atoms(self) -> np.ndarray:
        """The atom of each function of the derivative basis."""
        return np.repeat(self._atoms, np.diff(self._basis.mol.ao_loc_nr()))

    def _run(
        self,
        blocks: Sequence[Block],
        arguments: Sequence[dict[str, Any]],
        densities: Densities,
        shape: tuple[int, int],
        with_j: bool,
        with_k: bool,
        finish: Any,
    ) -> list[Any]:
        """Run a pass; shape: the extents of k_atom. Arrays that the pass does not read get one element."""
        unused = np.zeros((1, 1, 1, 1, 1))
        names = ("weight", "folded", "bra_size", "ket_size", "near_i", "near_v", "far_i", "far_v")
        common = {
            **{name: unused.ravel() for name in names},
            "sets": len(densities.p),
            "n_mixed": self._basis.mol.nao_cart(),
            "n_ao": self._basis.cartesian.nao_cart(),
            "n_v": shape[0],
            "n_column": shape[1],
            "with_j": with_j,
            "with_k": with_k,
            "exchange": densities.p,
            "density": densities.d,
        }
        return atom_pass.run(blocks, arguments, common, self._operator, self._cutoff, self._threads, finish)

    def _blocks(self, results: Sequence[Any], bras: Sequence[Side]) -> tuple[np.ndarray, np.ndarray]:
        """Return [A, B, x, y] with both orders of A and B, from the rows of the atoms that have bra pairs."""
        atoms = sorted({int(atom) for bra in bras for atom in np.unique(bra.atoms)})
        both = np.zeros((2, self.mol.natm, self.mol.natm, 3, 3))
        for atom, rows in zip(atoms, results, strict=True):
            both[:, atom] = rows
        both += both.transpose(0, 2, 1, 4, 3)
        return both[0], both[1]

    def _checked(self, dms: np.ndarray) -> np.ndarray:
        nao = self.mol.nao_nr()
        dms = np.asarray(dms, dtype=np.float64)
        if dms.shape not in ((1, nao, nao), (2, nao, nao)) or not np.isfinite(dms).all():
            raise InputError(f"dms are one or two finite densities [{nao}, {nao}] for this molecule, found {dms.shape}")
        return dms


def _added(sums: Sums) -> Sums:
    """Add up the sums of J of blocks with the same ket pairs."""
    by_ket: dict[int, tuple[Block, slice, np.ndarray]] = {}
    for block, pairs, values in sums:
        if id(block.ket) in by_ket:
            by_ket[id(block.ket)][2][...] += values
        else:
            by_ket[id(block.ket)] = (block, pairs, values)
    return list(by_ket.values())
