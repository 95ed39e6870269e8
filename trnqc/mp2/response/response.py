"""The change of the Fock matrix that a change of the density causes.

For symmetric densities P of each spin, G[P] = J[Σ P] - K[P] for Hartree-Fock, and its Kohn-Sham counterpart with the
exchange-correlation kernel. J and K are those of the SCF object: exact or fitted, from our kernels where they can be.
Only the columns of occupied orbitals are computed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np
from pyscf import scf
from pyscf.df.df_jk import _DFHF

from trnqc.errors import CompilerError, UnsupportedError
from trnqc.host.overrides import users_method
from trnqc.mp2.reference.spins import SpinOrbitals
from trnqc.mp2.response.fitted import FittedResponse
from trnqc.pyscf.accelerate import accelerate
from trnqc.pyscf.exchange import users_jk
from trnqc.ranks import ALONE, Ranks

Densities = Sequence[np.ndarray]
"""One symmetric matrix [nmo, nmo] of molecular orbitals for each spin; for a closed shell that of one spin."""

# Bytes of fitted integrals from which on single precision saves time. With fewer a product takes 10 ms.
MANY = 5e7


class RotationResponse(Protocol):
    """Columns G[P]_qi [nmo, nocc] of each spin, between all orbitals and the occupied ones, for rotations."""

    def rotation(self, z: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return G[P]_qi of densities P_ai = P_ia = z[a, i], which are zero elsewhere."""
        ...


class FockResponse(RotationResponse, Protocol):
    """The responses of the Fock matrix that the Z-vector equations and gradients need.

    `rough` is the response to rotations in single precision, or None if there is none.
    """

    @property
    def rough(self) -> RotationResponse | None: ...

    def columns(self, densities: Densities) -> list[np.ndarray]:
        """Return G[P]_qi of any densities."""
        ...


class GeneralResponse:
    """The response of any reference, by PySCF's `gen_response` with J and K of the object."""

    rough: RotationResponse | None = None

    def __init__(self, mf: Any, spins: Sequence[SpinOrbitals]) -> None:
        self.spins = tuple(spins)
        self._potential = accelerated(mf).gen_response(
            *_orbitals_for_pyscf(self.spins), hermi=1, **({"singlet": None} if len(spins) == 1 else {})
        )

    def columns(self, densities: Densities) -> list[np.ndarray]:
        """Return G[P]_qi [nmo, nocc] for each spin."""
        return [s.coefficients.T @ g @ s.c_occ for s, g in zip(self.spins, self._fock(densities))]

    def rotation(self, z: Sequence[np.ndarray]) -> list[np.ndarray]:
        """Return G[P]_qi [nmo, nocc] of the rotation z[a, i] for each spin."""
        return self.columns([spin.rotated(block) for spin, block in zip(self.spins, z)])

    def _fock(self, densities: Densities) -> np.ndarray:
        """G[P] in atomic orbitals, [spin, nao, nao]."""
        atomic = np.array([spin.to_atomic(p) for spin, p in zip(self.spins, densities)])
        if len(atomic) == 1:
            return self._potential(2 * atomic[0])[None]
        return self._potential(atomic)


def accelerated(mf: Any) -> Any:
    """Return the object with J and K from our kernels; an object of a kind that they do not serve is returned
    unchanged.
    """
    try:
        return accelerate(mf)
    except UnsupportedError:
        return mf


def _orbitals_for_pyscf(spins: Sequence[SpinOrbitals]) -> tuple[np.ndarray, np.ndarray]:
    """mo_coeff and mo_occ in the form of the object."""
    if len(spins) == 1:
        return spins[0].coefficients, 2.0 * spins[0].occupied
    return np.array([s.coefficients for s in spins]), np.array([1.0 * s.occupied for s in spins])


def response_of(
    mf: Any, spins: Sequence[SpinOrbitals], threads: int, room: float = np.inf, ranks: Ranks = ALONE
) -> FockResponse:
    """Return the response of an SCF object: from fitted integrals where they are in memory, else the general one.

    `room` are the bytes that half-transformed integrals may take, the same on all ranks. The ranks share products with
    fitted integrals, and all of them have the whole result.
    """
    mf = accelerated(mf)
    plain = isinstance(mf, _DFHF) and isinstance(mf, scf.hf.RHF | scf.uhf.UHF) and not hasattr(mf, "xc")
    # A user's J and K, and what a user's method makes of them, are known to PySCF's response alone.
    plain = plain and not users_jk(mf) and not users_method(mf, "gen_response")
    if not plain or not mf.with_df or mf.only_dfj or hasattr(mf, "with_solvent"):
        return GeneralResponse(mf, spins)
    if mf.with_df._cderi is None:
        mf.with_df.build()
    rows = mf.with_df._cderi
    if not isinstance(rows, np.ndarray):
        return GeneralResponse(mf, spins)
    needed = FittedResponse.exact_bytes(len(rows), spins)
    try:
        if needed <= room:
            rough = rows.nbytes >= MANY and 1.5 * needed <= room
            return FittedResponse(rows, spins, threads, ranks, rough=rough)
    except CompilerError:
        pass
    return GeneralResponse(mf, spins)
