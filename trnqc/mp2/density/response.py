"""The change of the Fock matrix that a change of the density causes.

For symmetric densities P of each spin, G[P] = J[Σ P] - K[P] for Hartree-Fock, and its Kohn-Sham counterpart with the
exchange-correlation kernel. J and K are those of the SCF object: exact or fitted, from our kernels where they can be.

Only the columns of occupied orbitals are needed. With fitted integrals in memory they are computed without the others:

    fitted integrals (Q|mu nu), once: L_iq = (Q|iq)
    density P:  d_Q = Σ_pq P_pq (Q|pq) -> J_iq = Σ_Q d_Q L_iq
                V_i,mu = Σ_pq C_mu,p P_pq L_iq -> K_i,mu = Σ_Q,nu V_i,nu (Q|nu mu)

K of a full density costs nao^3 naux operations. Its columns of occupied orbitals, which are all that the Z-vector
equations and the energy-weighted density need, cost nocc nao^2 naux.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
from pyscf import lib, scf
from pyscf.df.df_jk import _DFHF

from trnqc.eri.fitting.thread_pool import single_threaded_pool
from trnqc.eri.pyscf.accelerate import accelerate
from trnqc.errors import UnsupportedError
from trnqc.mp2.density.spins import SpinOrbitals

Densities = Sequence[np.ndarray]
"""One symmetric matrix [nmo, nmo] of molecular orbitals for each spin; for a closed shell that of one spin."""

Rotation = Callable[[Sequence[np.ndarray]], list[np.ndarray]]
"""From z[a, i] to G[P]_ai [nvir, nocc] of each spin, as `Response.rotation`."""

# Auxiliary functions Q of one task of a thread.
_GROUP = 32

# For a group of Q: d_Q by spin summed, and V [Q, i, nu] of each spin.
_Group = Callable[[slice], tuple[np.ndarray, list[np.ndarray]]]


class Response(Protocol):
    """What the Z-vector equations and gradients need of the Fock matrix.

    `rough_rotation` is `rotation` in single precision, or None where that is not available.
    """

    @property
    def rough_rotation(self) -> Rotation | None: ...

    def columns(self, densities: Densities) -> list[np.ndarray]:
        """Return G[P]_qi [nmo, nocc] between all orbitals and the occupied ones, for each spin."""
        ...

    def rotation(self, z: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return G[P]_ai [nvir, nocc] of densities whose only blocks are P_ai = P_ia = z[a, i]."""
        ...


class GeneralResponse:
    """The response of any reference, by PySCF's `gen_response` with J and K of the object.

    Parameters
    ----------
    mf
        The SCF object.
    spins
        All its orbitals; one entry for a closed shell.
    """

    rough_rotation: Rotation | None = None

    def __init__(self, mf: Any, spins: Sequence[SpinOrbitals]) -> None:
        self.spins = tuple(spins)
        self._potential = accelerated(mf).gen_response(
            *_orbitals_for_pyscf(self.spins), hermi=1, **({"singlet": None} if len(spins) == 1 else {})
        )

    def columns(self, densities: Densities) -> list[np.ndarray]:
        """Return G[P]_qi [nmo, nocc] for each spin."""
        return [s.coefficients.T @ g @ s.c_occ for s, g in zip(self.spins, self._fock(densities))]

    def rotation(self, z: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return G[P]_ai [nvir, nocc] of the rotation z[a, i] for each spin."""
        densities = []
        for spin, block in zip(self.spins, z):
            matrix = np.zeros((spin.nmo, spin.nmo))
            matrix[np.ix_(~spin.occupied, spin.occupied)] = block
            densities.append(matrix + matrix.T)
        return [g[~s.occupied] for s, g in zip(self.spins, self.columns(densities))]

    def _fock(self, densities: Densities) -> np.ndarray:
        """G[P] in atomic orbitals, [spin, nao, nao]."""
        atomic = np.array([spin.to_atomic(p) for spin, p in zip(self.spins, densities)])
        if len(atomic) == 1:
            return self._potential(2 * atomic[0])[None]
        return self._potential(atomic)


class _SinglePrecision:
    """`FittedResponse.rotation` in single precision, from integrals that are not packed."""

    def __init__(self, rows: np.ndarray, spins: Sequence[_Spin], threads: int) -> None:
        self._spins, self._threads, self._factor = spins, threads, 2.0 if len(spins) == 1 else 1.0
        nao = len(spins[0].coefficients)
        self._squares = np.empty((len(rows), nao, nao), np.float32)
        self._occupied = [s.integrals[:, :, : s.nocc].astype(np.float32) for s in spins]
        self._virtual = [s.integrals[:, :, s.nocc :].astype(np.float32) for s in spins]
        self._groups = [slice(q, q + _GROUP) for q in range(0, len(rows), _GROUP)]

        def unpack(q: slice) -> None:
            for row, square in zip(rows[q], self._squares[q]):
                square[...] = lib.unpack_tril(row)

        with single_threaded_pool(threads) as pool:
            list(pool.map(unpack, self._groups))

    def __call__(self, z: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return G[P]_ai [nvir, nocc] of the rotation z[a, i] for each spin."""
        blocks = [block.astype(np.float32) for block in z]
        split = [np.split(s.coefficients, [s.nocc], axis=1) for s in self._spins]
        rotated = [
            np.vstack([(c_vir @ block).T, c_occ.T]).astype(np.float32) for (c_occ, c_vir), block in zip(split, z)
        ]

        def part(q: slice) -> list[tuple[np.ndarray, np.ndarray]]:
            squares = self._squares[q].reshape(-1, self._squares.shape[2])
            d, exchange = np.zeros(len(self._squares[q]), np.float32), []
            for block, both, occupied, virtual in zip(blocks, rotated, self._occupied, self._virtual):
                rotation = (virtual[q].reshape(-1, len(block)) @ block).reshape(occupied[q].shape)
                d += 2 * self._factor * np.einsum("qii->q", rotation)
                v = np.concatenate([occupied[q], rotation], axis=2).reshape(-1, len(both)) @ both
                v = v.reshape(*rotation.shape[:2], -1).transpose(1, 0, 2)
                exchange.append(v.reshape(len(v), -1) @ squares)
            return [(np.tensordot(d, virtual[q], 1), k) for virtual, k in zip(self._virtual, exchange)]

        totals = [
            (np.zeros(block.T.shape), np.zeros((s.nocc, len(s.coefficients)))) for s, block in zip(self._spins, z)
        ]
        with single_threaded_pool(self._threads) as pool:
            for terms in pool.map(part, self._groups):
                for (coulomb, exchange), (j, k) in zip(totals, terms):
                    coulomb += j
                    exchange += k
        return [(j - k @ c_vir).T for (j, k), (_, c_vir) in zip(totals, split)]


def accelerated(mf: Any) -> Any:
    """Return the object with J and K from our kernels, or as it is where they do not serve its kind."""
    try:
        return accelerate(mf)
    except UnsupportedError:
        return mf


def _orbitals_for_pyscf(spins: Sequence[SpinOrbitals]) -> tuple[np.ndarray, np.ndarray]:
    """mo_coeff and mo_occ in the form of the object."""
    if len(spins) == 1:
        return spins[0].coefficients, 2.0 * spins[0].occupied
    return np.array([s.coefficients for s in spins]), np.array([1.0 * s.occupied for s in spins])


def response_of(mf: Any, spins: Sequence[SpinOrbitals], threads: int, room: float = np.inf) -> Response:
    """Return the response of an SCF object: this module's where J and K are fitted and in memory, else the general one.

    Parameters
    ----------
    threads
        Number of threads.
    room
        Bytes that the integrals L_iq, and those in single precision, may take.
    """
    mf = accelerated(mf)
    plain = isinstance(mf, _DFHF) and isinstance(mf, scf.hf.RHF | scf.uhf.UHF) and not hasattr(mf, "xc")
    if not plain or not mf.with_df or mf.only_dfj or hasattr(mf, "with_solvent"):
        return GeneralResponse(mf, spins)
    if mf.with_df._cderi is None:
        mf.with_df.build()
    rows = mf.with_df._cderi
    columns, naux = sum(spin.nocc * spin.nmo for spin in spins), mf.with_df.get_naoaux()
    if not isinstance(rows, np.ndarray) or 8 * columns * naux > room:
        return GeneralResponse(mf, spins)
    single = (12 * columns + 4 * len(spins[0].coefficients) ** 2) * naux <= room
    return FittedResponse(rows, spins, threads, single)


@dataclass(frozen=True, eq=False)
class _Spin:
    """One spin's orbitals, occupied ones first, and its integrals L [naux, nocc, nmo]."""

    orbitals: SpinOrbitals
    coefficients: np.ndarray
    order: np.ndarray
    integrals: np.ndarray

    @property
    def nocc(self) -> int:
        return self.orbitals.nocc


class FittedResponse:
    """G[P] = J[Σ P] - K[P] from fitted integrals in memory.

    Parameters
    ----------
    rows
        Fitted integrals [naux, nao (nao + 1) / 2].
    spins
        All orbitals; one entry for a closed shell.
    threads
        Number of threads. The bits do not depend on it.
    single
        Whether the integrals are kept in single precision, too, for rotations of six digits.
    """

    def __init__(self, rows: np.ndarray, spins: Sequence[SpinOrbitals], threads: int, single: bool = False) -> None:
        self._rows, self._threads = rows, threads
        self._factor = 2.0 if len(spins) == 1 else 1.0
        self._groups = [slice(q, min(q + _GROUP, len(rows))) for q in range(0, len(rows), _GROUP)]
        self._spins = [self._with_integrals(spin) for spin in spins]
        self.rough_rotation: Rotation | None = _SinglePrecision(rows, self._spins, threads) if single else None

    def columns(self, densities: Densities) -> list[np.ndarray]:
        """Return G[P]_qi [nmo, nocc] for each spin."""
        ordered = [p[np.ix_(s.order, s.order)] for s, p in zip(self._spins, densities)]
        left = [s.coefficients @ p for s, p in zip(self._spins, ordered)]
        atomic = sum(t @ s.coefficients.T for s, t in zip(self._spins, left))
        folded = lib.pack_tril(self._factor * (atomic + atomic.T))
        folded[np.cumsum(np.arange(1, len(atomic) + 1)) - 1] /= 2

        def group(q: slice) -> tuple[np.ndarray, list[np.ndarray]]:
            return self._rows[q] @ folded, [np.matmul(s.integrals[q], t.T) for s, t in zip(self._spins, left)]

        results = [np.empty((s.orbitals.nmo, s.nocc)) for s in self._spins]
        for result, s, g in zip(results, self._spins, self._fock(group)):
            result[s.order] = g.T
        return results

    def rotation(self, z: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return G[P]_ai [nvir, nocc] of the rotation z[a, i] for each spin."""
        split = [np.split(s.coefficients, [s.nocc], axis=1) for s in self._spins]
        rotated = [(c_occ.T, (c_vir @ block).T) for (c_occ, c_vir), block in zip(split, z)]

        def group(q: slice) -> tuple[np.ndarray, list[np.ndarray]]:
            d, v = np.zeros(q.stop - q.start), []
            for s, block, (occupied, virtual) in zip(self._spins, z, rotated):
                among_occupied = np.matmul(s.integrals[q, :, s.nocc :], block)
                d += 2 * self._factor * np.einsum("qii->q", among_occupied)
                v.append(np.matmul(s.integrals[q, :, : s.nocc], virtual) + np.matmul(among_occupied, occupied))
            return d, v

        return [g[:, s.nocc :].T for s, g in zip(self._spins, self._fock(group))]

    def _fock(self, group: _Group) -> list[np.ndarray]:
        """G[P]_iq [nocc, nmo] of each spin, with the orbitals q in the order of `_Spin`."""
        nao = len(self._spins[0].coefficients)

        def part(q: slice) -> list[tuple[np.ndarray, np.ndarray]]:
            d, v = group(q)
            square = np.empty((nao, nao))
            exchange, update = (
                [np.zeros((s.nocc, nao)) for s in self._spins],
                [np.empty((s.nocc, nao)) for s in self._spins],
            )
            for n, row in enumerate(self._rows[q]):
                lib.unpack_tril(row, out=square)
                for k, term, of_spin in zip(exchange, update, v):
                    k += np.matmul(of_spin[n], square, out=term)
            coulomb = [np.tensordot(d, s.integrals[q], 1) for s in self._spins]
            return list(zip(coulomb, exchange))

        totals = [(np.zeros((s.nocc, s.orbitals.nmo)), np.zeros((s.nocc, nao))) for s in self._spins]
        with single_threaded_pool(self._threads) as pool:
            for terms in pool.map(part, self._groups):
                for (coulomb, exchange), (j, k) in zip(totals, terms):
                    coulomb += j
                    exchange += k
        return [j - k @ s.coefficients for s, (j, k) in zip(self._spins, totals)]

    def _with_integrals(self, spin: SpinOrbitals) -> _Spin:
        order = np.concatenate([np.flatnonzero(spin.occupied), np.flatnonzero(~spin.occupied)])
        c = np.ascontiguousarray(spin.coefficients[:, order])
        occupied, nao = np.ascontiguousarray(spin.c_occ.T), len(c)
        integrals = np.empty((len(self._rows), spin.nocc, spin.nmo))

        def part(q: slice) -> None:
            square = np.empty((nao, nao))
            for row, out in zip(self._rows[q], integrals[q]):
                np.matmul(occupied @ lib.unpack_tril(row, out=square), c, out=out)

        with single_threaded_pool(self._threads) as pool:
            list(pool.map(part, self._groups))
        return _Spin(spin, c, order, integrals)
