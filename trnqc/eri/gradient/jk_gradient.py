"""Gradients of the two-electron energy of a pair of densities, with exact or with fitted integrals.

  E2(D1, D2) = sum_pqrs (pq|rs) (D1_pq D2_rs - 1/2 D1_pr D2_qs)

It is linear in both densities, so that it gives the gradients of Hartree-Fock, E2(D, D) / 2, and of correlated methods.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
import scipy.linalg
from pyscf import gto, lib

from trnqc.eri.fitting.fitted_integrals import MetricFactor
from trnqc.eri.fitting.thread_pool import single_threaded_pool
from trnqc.eri.gradient.builder import GradientBuilder
from trnqc.eri.gradient.three_centre import three_centre_gradient, two_centre_gradient
from trnqc.eri.integrals import ThreeCentre
from trnqc.eri.jk.builder import CUTOFF
from trnqc.eri.operators import signed_omega
from trnqc.errors import InputError, MemoryLimit
from trnqc.host.memory import gigabytes

# Eigenvalues of a density below this share of the largest are rounding errors.
NEGLIGIBLE = 1e-14
# Fitting functions whose integrals a thread transforms at once.
FUNCTIONS = 64


@dataclass(frozen=True, eq=False)
class DensityPair:
    """Two densities of one spin case, and the factor of their exchange.

    Parameters
    ----------
    first, second : ndarray [n, nao, nao]
        D1 and D2: one spin-summed matrix each, or those of alpha and beta electrons.
    exchange
        1/2 for spin-summed densities, else 1.
    """

    first: np.ndarray
    second: np.ndarray
    exchange: float

    @classmethod
    def of(cls, mol: gto.Mole, d1: Any, d2: Any) -> DensityPair:
        """Check densities [nao, nao] or [2, nao, nao]."""
        nao = mol.nao_nr()
        first, second = (np.asarray(d, dtype=np.float64) for d in (d1, d2))
        if first.shape != second.shape or first.shape not in ((nao, nao), (2, nao, nao)):
            raise InputError(
                f"expected two densities [{nao}, {nao}] or [2, {nao}, {nao}], found {list(first.shape)} and "
                f"{list(second.shape)}"
            )
        for name, one in (("d1", first), ("d2", second)):
            scale = np.abs(one).max(initial=0.0)
            if not np.isfinite(scale):
                raise InputError(f"{name} has elements that are not finite: the step that computed it has failed")
            if np.abs(one - one.swapaxes(-1, -2)).max(initial=0.0) > 1e-8 * scale:
                raise InputError(f"expected symmetric densities, but {name} differs from its transpose")
        factor = 0.5 if first.ndim == 2 else 1.0
        return cls(first.reshape(-1, nao, nao), second.reshape(-1, nao, nao), factor)


def jk_gradient(
    mol: gto.Mole,
    d1: np.ndarray,
    d2: np.ndarray,
    *,
    omega: float | None = None,
    cutoff: float = CUTOFF,
    threads: int | None = None,
) -> np.ndarray:
    """Compute the derivative of E2(D1, D2) by the positions of the atoms, at constant densities.

    Parameters
    ----------
    mol : pyscf.gto.Mole
        The molecule.
    d1, d2 : ndarray [nao, nao] or [2, nao, nao]
        Symmetric densities in atomic orbitals: spin-summed ones, or those of alpha and beta electrons.
    omega : float, optional
        In 1/Bohr: positive for erf(omega r)/r, negative for erfc(|omega| r)/r, 0 for 1/r; None for the molecule's own.
    cutoff : float
        Products of an integral and a density element below this are left out.
    threads : int, optional
        By default `pyscf.lib.num_threads()`. The bits of the result do not depend on it.

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
    vj, vk = builder.get_jk(np.concatenate(stacks))
    n = len(pair.first)
    halves = [(vj[i : i + n].sum(axis=0), vk[i : i + n]) for i in range(0, len(vj), n)]
    others = [pair.first] if one_density else [pair.second, pair.first]
    by_function = np.zeros((3, mol.nao_nr()))
    for (j, k), other in zip(halves, others):
        by_function += 2 * np.einsum("xij,ij->xi", j, other.sum(axis=0))
        by_function -= 2 * pair.exchange * np.einsum("nxij,nij->xi", k, other)
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
) -> np.ndarray:
    """Compute the derivative of E2(D1, D2) with fitted integrals (pq|rs) = sum_PQ (pq|P) (P|Q)^-1 (Q|rs).

    Parameters
    ----------
    mol, auxmol : pyscf.gto.Mole
        The molecule and its fitting functions, on the same atoms.
    d1, d2, omega, threads
        As in `jk_gradient`.
    max_memory : float, optional
        Bytes that the largest arrays may take, by default `mol.max_memory`, which is in megabytes. They hold naux nao r
        elements twice, with r the smaller rank of D1 and D2.

    Returns
    -------
    ndarray [natm, 3]
        In Hartree/Bohr.

    Raises
    ------
    InputError, UnsupportedClass, CompilerError
        As in `jk_gradient`.
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
    memory = 1e6 * mol.max_memory if max_memory is None else max_memory
    with mol.with_range_coulomb(signed), auxmol.with_range_coulomb(signed):
        weights = _FittedWeights(mol, auxmol, pair, memory, threads or lib.num_threads())
    options: dict[str, Any] = {"omega": signed, "threads": threads}
    three = three_centre_gradient(mol, auxmol, weights.three_centre, **options)
    return three + two_centre_gradient(auxmol, weights.two_centre(), **options)


@dataclass(frozen=True, eq=False)
class _Exchange:
    """The exchange of one spin: D1 = W diag(w) W^T, the other density, and T[k, s, P] = sum_r W_rk C^P_rs."""

    orbitals: np.ndarray
    occupations: np.ndarray
    other: np.ndarray
    transformed: np.ndarray


class _FittedWeights:
    """The weights of derivatives of (pq|P) and of (P|Q) in the derivative of the fitted energy."""

    def __init__(self, mol: gto.Mole, auxmol: gto.Mole, pair: DensityPair, memory: float, threads: int) -> None:
        self.factor = pair.exchange
        self.totals = pair.first.sum(axis=0), pair.second.sum(axis=0)
        nao, naux = mol.nao_nr(), auxmol.nao_nr()
        spins = [_low_rank(*densities) for densities in zip(pair.first, pair.second)]
        elements = 2 * naux * nao * sum(len(w) for _, w, _ in spins)
        if 8 * elements > memory:
            raise MemoryLimit(
                f"the fitted gradient of {nao} orbitals and {naux} fitting functions takes {gigabytes(8 * elements)}, "
                f"allowed are {gigabytes(memory)}: raise max_memory"
            )
        half = [np.empty((len(w), nao, naux)) for _, w, _ in spins]
        projections = np.empty((2, naux))
        _transform(mol, auxmol, [w for w, _, _ in spins], self.totals, half, projections, threads)
        metric = MetricFactor.of(mol, auxmol)
        self.coefficients = _solved(metric, projections)
        self.exchange = [_Exchange(*spin, _solved(metric, array)) for spin, array in zip(spins, half)]

    def three_centre(self, functions: np.ndarray) -> np.ndarray:
        """Return the weights [nao, nao, n] of (pq|P) for n fitting functions P."""
        c1, c2 = self.coefficients[:, functions]
        nao = len(self.totals[0])
        weights = np.multiply.outer(self.totals[0], c2) + np.multiply.outer(self.totals[1], c1)
        flat = weights.reshape(nao, -1)
        for spin in self.exchange:
            right = np.matmul(spin.other, spin.transformed[:, :, functions])
            left = -2 * self.factor * spin.orbitals * spin.occupations
            flat += left @ right.reshape(len(right), -1)
        return weights

    def two_centre(self) -> np.ndarray:
        """Return the weights [naux, naux] of (P|Q)."""
        c1, c2 = self.coefficients
        weights = -np.multiply.outer(c1, c2)
        for spin in self.exchange:
            for occupation, rows in zip(spin.occupations, spin.transformed):
                weights += (self.factor * occupation) * (rows.T @ (spin.other @ rows))
        return weights


def _low_rank(d1: np.ndarray, d2: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the eigenvectors and eigenvalues of the density of lower rank, and the other density."""
    systems = []
    for density, other in ((d1, d2), (d2, d1)):
        w, u = np.linalg.eigh((density + density.T) / 2)
        large = np.abs(w) > NEGLIGIBLE * np.abs(w).max(initial=0.0)
        systems.append((u[:, large], w[large], other))
    return min(systems, key=lambda system: len(system[1]))


def _transform(
    mol: gto.Mole,
    auxmol: gto.Mole,
    orbitals: Sequence[np.ndarray],
    densities: Sequence[np.ndarray],
    half: Sequence[np.ndarray],
    projections: np.ndarray,
    threads: int,
) -> None:
    """Write sum_r W_rk (P|rs) into half [k, s, P], and sum_rs (P|rs) D_rs into projections [2, P]."""
    integrals, loc = ThreeCentre(mol, auxmol), auxmol.ao_loc_nr()
    edges = [0]
    for shell in range(1, auxmol.nbas + 1):
        if shell == auxmol.nbas or loc[shell + 1] - loc[edges[-1]] > FUNCTIONS:
            edges.append(shell)

    def transform(shells: tuple[int, int]) -> None:
        first, last = loc[shells[0]], loc[shells[1]]
        square = lib.unpack_tril(integrals(shells))
        for density, projection in zip(densities, projections):
            projection[first:last] = np.einsum("prs,rs->p", square, density)
        for w, to in zip(orbitals, half):
            to[:, :, first:last] = np.matmul(w.T, square).transpose(1, 2, 0)

    with single_threaded_pool(threads) as pool:
        list(pool.map(transform, pairwise(edges)))


def _solved(metric: MetricFactor, rows: np.ndarray) -> np.ndarray:
    """Return rows [..., naux] times the inverse of the metric, in their memory where the metric is not singular."""
    flat = rows.reshape(-1, rows.shape[-1])
    if not metric.is_lower:
        return ((flat @ metric.matrix) @ metric.matrix.T).reshape(rows.shape)
    solved = scipy.linalg.cho_solve((metric.matrix, True), flat.T, overwrite_b=True, check_finite=False)
    return np.ascontiguousarray(solved.T).reshape(rows.shape)
