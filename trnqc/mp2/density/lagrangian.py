"""The derivative of the MP2 energy with respect to the orbitals, at fixed orbital energies.

    blocks of P: (mu nu|P), Γ[i, a, P] -> W_occ[mu, i], W_vir[mu, a] -> rotated to orbitals

If orbital p changes by Σ_q C_q U_qp, the energy changes by 2 Σ_qi U_qi W_qi + 2 Σ_qa U_qa W_qa for each spin, where

    W_qi = Σ_aP Γ[i, a, P] (q a|P)         W_qa = Σ_iP Γ[i, a, P] (q i|P)

and q is any orbital. The integrals (mu nu|P) are computed again, block by block, because those over two virtual
orbitals are not kept. W between correlated virtual orbitals is Y_ab of `pair_sums`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from pyscf import gto, lib

from trnqc.errors import MemoryLimit
from trnqc.fitted.memory import COMFORTABLE_BLOCK, preferred_width
from trnqc.host.memory import gigabytes
from trnqc.host.thread_pool import single_threaded_pool
from trnqc.mp2.density.gamma import Gamma
from trnqc.mp2.execution import Execution
from trnqc.mp2.factors.shell_blocks import shell_blocks, three_centre_integrals
from trnqc.mp2.reference.spins import SpinOrbitals
from trnqc.ranks import in_order

# Auxiliary functions of a block where Γ is on disk: every block reads all rows of Γ.
_BLOCK_ON_DISK = 512


@dataclass(frozen=True, eq=False)
class Lagrangian:
    """W_qi [nmo, nocc] and W_qa [nmo, nvir] of one spin, between all orbitals q and the correlated ones, Hartree."""

    occ: np.ndarray
    vir: np.ndarray


def lagrangians(
    mol: gto.Mole,
    auxmol: gto.Mole,
    spins: Sequence[SpinOrbitals],
    gammas: Sequence[Gamma],
    y_vir: Sequence[np.ndarray],
    execution: Execution,
) -> tuple[Lagrangian, ...]:
    """Contract Γ[i, a, P] of each spin, in the raw auxiliary functions in the order of `auxmol`, with three-centre
    integrals.

    `y_vir` is Y_ab of each spin (`pair_sums`). The memory of `execution` is what is left beside Γ, the same on all
    ranks, which share the blocks. Raises MemoryLimit if the smallest block does not fit.
    """
    integrals, _ = three_centre_integrals(mol, auxmol)
    loc = auxmol.ao_loc_nr()
    width = _width(mol.nao_nr(), auxmol, gammas, execution)
    parts = [_Orbitals.of(spin) for spin in spins]

    blocks = list(shell_blocks(loc, width))

    def block(number: int) -> np.ndarray:
        first, last = blocks[number]
        packed, functions = integrals((first, last)), slice(int(loc[first]), int(loc[last]))
        terms = [_block(packed, g.functions(functions), orbitals) for g, orbitals in zip(gammas, parts)]
        return np.concatenate([array.ravel() for term in terms for array in term])

    total = np.zeros(sum(o.sizes[0] + o.sizes[1] for o in parts))
    execution.ranks.at("orbital gradient")
    with single_threaded_pool(execution.threads) as pool:
        terms = in_order(block, len(blocks), total.shape, execution.ranks, pool.map)
        for done, term in enumerate(terms, start=1):
            total += term
            execution.report("orbital gradient", done, len(blocks))
    ends = np.cumsum([size for o in parts for size in o.sizes])[:-1]
    sums = np.split(total, ends)
    return tuple(_in_orbitals(*one) for one in zip(spins, parts, sums[::2], sums[1::2], y_vir))


@dataclass(frozen=True, eq=False)
class _Orbitals:
    """Coefficients of the correlated occupied orbitals, of the correlated virtual ones, and of all orbitals but these
    virtual ones.
    """

    occ: np.ndarray
    vir: np.ndarray
    rest: np.ndarray

    @classmethod
    def of(cls, spin: SpinOrbitals) -> _Orbitals:
        c = spin.coefficients
        return cls(c[:, spin.active_occ], c[:, spin.active_vir], np.delete(c, spin.active_vir, axis=1))

    @property
    def sizes(self) -> tuple[int, int]:
        """Numbers of elements of W[mu, i] and of W[q, a]."""
        return self.occ.size, self.rest.shape[1] * self.vir.shape[1]


def _in_orbitals(
    spin: SpinOrbitals, orbitals: _Orbitals, w_occ: np.ndarray, w_vir: np.ndarray, y_vir: np.ndarray
) -> Lagrangian:
    """W from the sums W[mu, i] and W[q, a] for all q but the correlated virtual orbitals, each of one dimension."""
    vir = np.empty((spin.nmo, len(y_vir)))
    rest = np.delete(np.arange(spin.nmo), spin.active_vir)
    vir[spin.active_vir], vir[rest] = y_vir.T, w_vir.reshape(len(rest), len(y_vir))
    return Lagrangian(spin.coefficients.T @ w_occ.reshape(orbitals.occ.shape), vir)


def _block(packed: np.ndarray, gamma: np.ndarray, orbitals: _Orbitals) -> tuple[np.ndarray, np.ndarray]:
    """W[mu, i] and W[q, a] from integrals [P, mu >= nu] and Γ[P, i, a] of a block."""
    nao, nocc = orbitals.occ.shape
    rows = gamma.reshape(len(packed) * nocc, gamma.shape[2])
    half = (rows @ orbitals.vir.T).reshape(len(packed), nocc, nao)
    square, occupied = np.empty((nao, nao)), np.empty((len(packed), nocc, nao))
    # One product serves C_occ and Γ, as more rows make it faster.
    left, product, w_occ = np.empty((2 * nocc, nao)), np.empty((2 * nocc, nao)), np.zeros((nocc, nao))
    left[:nocc] = orbitals.occ.T
    for row, gamma_of_p, out in zip(packed, half, occupied):
        lib.unpack_tril(row, out=square)
        left[nocc:] = gamma_of_p
        np.matmul(left, square, out=product)
        out[...] = product[:nocc]
        w_occ += product[nocc:]
    return w_occ.T, (occupied.reshape(len(rows), nao) @ orbitals.rest).T @ rows


def _width(nao: int, auxmol: gto.Mole, gammas: Sequence[Gamma], execution: Execution) -> int:
    """Auxiliary functions of a block."""
    naux, smallest = auxmol.nao_nr(), int(np.diff(auxmol.ao_loc_nr()).max())
    on_disk = any(gamma.on_disk for gamma in gammas)
    column = nao * (nao + 1) // 2 + max(nocc * (2 * nao + 2 * nvir) for nocc, nvir, _ in (g.shape for g in gammas))
    square = 2 * nao * (nao + max(sum(g.shape[:2]) for g in gammas))
    room = execution.memory - 8 * execution.threads * square
    fits = room / (8 * execution.threads * column)
    if fits < smallest:
        raise MemoryLimit(
            f"the orbital gradient of the MP2 density needs {gigabytes(8 * execution.threads * column * smallest)} "
            f"for one block of integrals, {gigabytes(max(room, 0))} are left of the memory limit: raise it or use "
            "fewer threads"
        )
    most = _BLOCK_ON_DISK if on_disk else COMFORTABLE_BLOCK
    return int(min(fits, preferred_width(naux, execution.threads, smallest, most)))
