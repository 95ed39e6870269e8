"""Gradients of the two-electron energy of a pair of densities, with exact or with fitted integrals.

  E2(D1, D2) = sum_pqrs (pq|rs) (D1_pq D2_rs - 1/2 D1_pr D2_qs)

It is linear in both densities, so that it gives the gradients of Hartree-Fock, E2(D, D) / 2, and of correlated methods.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from pyscf import gto, lib

from trnqc.eri.gradient.builder import GradientBuilder
from trnqc.eri.gradient.fitted.densities import DensityPair
from trnqc.eri.gradient.fitted.half_transform import FittedRows
from trnqc.eri.gradient.fitted.weights import FittedWeights
from trnqc.eri.gradient.three_centre import functions_of_ranks, three_centre_gradient, two_centre_gradient
from trnqc.eri.jk.builder import CUTOFF
from trnqc.eri.operators import signed_omega
from trnqc.host.blas import single_threaded
from trnqc.ranks import ALONE, Ranks


def exact_jk_gradient(
    mol: gto.Mole,
    d1: np.ndarray,
    d2: np.ndarray,
    *,
    omega: float | None = None,
    cutoff: float = CUTOFF,
    threads: int | None = None,
    coulomb: float = 1.0,
    exchange: float = 1.0,
) -> np.ndarray:
    """Compute the derivative of E2(D1, D2) by the positions of the atoms, at constant densities.

    Parameters
    ----------
    mol : pyscf.gto.Mole
        The molecule.
    d1, d2 : ndarray [nao, nao] or [2, nao, nao]
        Symmetric densities in atomic orbitals: spin-summed ones, or those of alpha and beta electrons.
    omega : float, optional
        In 1/Bohr: positive for erf(omega r)/r, negative for erfc(-omega r)/r, 0 for 1/r; None for the molecule's own.
    cutoff : float
        Products of an integral and a density element below this are left out.
    threads : int, optional
        By default `pyscf.lib.num_threads()`. The bits of the result do not depend on it.
    coulomb, exchange : float
        Factors of the first and of the second term of E2, such as 1 and 0.2 for B3LYP.

    Returns
    -------
    ndarray [natm, 3]
        In Hartree/Bohr.

    Raises
    ------
    InputError
        For arrays that are not symmetric densities of this molecule.
    UnsupportedClass, CompilerError
        If there are no kernels for these shells.

    Notes
    -----
    E2 = sum_pqrs (pq|rs) (D1_pq D2_rs - 1/2 D1_pr D2_qs) with spin-summed densities. With two spins the first term has
    total densities, and the second one is the sum of D1_pr D2_qs over both spins. One pass over the integrals (dp q|rs)
    gives J and K of both densities, and by symmetry each of them stands for two of the four centres.
    """
    pair = DensityPair.of(mol, d1, d2)
    builder = GradientBuilder(mol, signed_omega(mol, omega), cutoff, threads)
    one_density = np.array_equal(pair.first, pair.second)
    stacks = [pair.first] if one_density else [pair.first, pair.second]
    vj, vk = builder.get_jk(np.concatenate(stacks), bool(coulomb), bool(exchange))
    by_function = np.zeros((3, mol.nao_nr()))
    for n, other in enumerate([pair.first] if one_density else [pair.second, pair.first]):
        own = slice(n * len(other), (n + 1) * len(other))
        if coulomb:
            by_function += 2 * coulomb * np.einsum("xij,ij->xi", vj[own].sum(axis=0), other.sum(axis=0))
        if exchange:
            by_function -= 2 * exchange * pair.exchange * np.einsum("nxij,nij->xi", vk[own], other)
    if one_density:
        by_function *= 2
    slices = mol.aoslice_by_atom()[:, 2:]
    return np.array([by_function[:, begin:end].sum(axis=1) for begin, end in slices])


def fitted_jk_gradient(
    mol: gto.Mole,
    auxmol: gto.Mole,
    d1: np.ndarray,
    d2: np.ndarray,
    *,
    omega: float | None = None,
    threads: int | None = None,
    max_memory: float | None = None,
    coulomb: float = 1.0,
    exchange: float = 1.0,
    rows: np.ndarray | FittedRows | None = None,
    ranks: Ranks = ALONE,
) -> np.ndarray:
    """Compute the derivative of E2(D1, D2) with fitted integrals (pq|rs) = sum_PQ (pq|P) (P|Q)^-1 (Q|rs).

    Parameters
    ----------
    mol, auxmol : pyscf.gto.Mole
        The molecule and its fitting functions, on the same atoms.
    d1, d2, omega, threads
        As in `exact_jk_gradient`.
    max_memory : float, optional
        Bytes that the largest arrays may take, by default `mol.max_memory`, which is in megabytes. They hold naux nao r
        elements, with r the smaller rank of D1 and D2, or naux r^2 elements if both densities have the same r
        orbitals, as in Hartree-Fock.
    coulomb, exchange
        As in `exact_jk_gradient`.
    rows : ndarray [naux, nao (nao + 1) / 2] or FittedRows, optional
        Fitted integrals L^-1 (P|rs) of this operator, r >= s, with L the Cholesky factor of (P|Q), as an object of
        density fitting keeps them; see `trnqc.eri.gradient.fitted.half_transform.rows_of`. They spare the integrals. A
        `FittedRows` may have those of one of several ranks.
    ranks : Ranks, optional
        The processes that share the derivatives of integrals, see `three_centre_gradient`.

    Returns
    -------
    ndarray [natm, 3]
        In Hartree/Bohr.

    Raises
    ------
    InputError, UnsupportedClass, CompilerError
        As in `exact_jk_gradient`.
    MemoryLimit
        If the arrays do not fit into max_memory.

    Notes
    -----
    With v_P = sum_rs (P|rs) D_rs, c = (P|Q)^-1 v and C^P_rs = sum_Q (P|Q)^-1_PQ (Q|rs), the derivative is a sum over
    derivatives of (pq|P) with the weights D1_pq c2_P + D2_pq c1_P - (D1 C^P D2)_pq, and over derivatives of (P|Q) with
    - c1_P c2_Q + 1/2 tr(C^P D1 C^Q D2), for spin-summed densities.
    """
    pair = DensityPair.of(mol, d1, d2)
    signed = signed_omega(mol, omega)
    if rows is None:
        # Ranges of shells of one kind fill the lanes of the kernels.
        auxmol = auxmol.copy(deep=False)
        auxmol._bas = auxmol._bas[np.argsort(auxmol._bas[:, gto.ANG_OF], kind="stable")]
    if isinstance(rows, np.ndarray):
        rows = FittedRows(rows)
    memory = 1e6 * mol.max_memory if max_memory is None else max_memory
    threads = threads or lib.num_threads()
    options: dict[str, Any] = {"omega": signed, "threads": threads}
    with single_threaded(), mol.with_range_coulomb(signed), auxmol.with_range_coulomb(signed):
        factors: dict[str, Any] = {"coulomb": coulomb, "exchange": exchange}
        if isinstance(rows, FittedRows) and rows.ranks.size > 1:
            factors["functions"] = functions_of_ranks(mol, auxmol, rows.ranks.size)
        weights = FittedWeights(mol, auxmol, pair, **factors, rows=rows, memory=memory, threads=threads)
    options["ranks"] = ranks
    three = three_centre_gradient(mol, auxmol, weights.three_centre, **options)
    return three + two_centre_gradient(auxmol, weights.two_centre(), **options)
