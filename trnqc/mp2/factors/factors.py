"""The factors B[i, a, Q] of the integrals (ia|jb), with the orbital energies."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, NamedTuple

import h5py
import numpy as np

from trnqc.arrays import host_array
from trnqc.errors import InputError


@dataclass(frozen=True, eq=False)
class Factors:
    """Fitted three-index integrals of one spin channel: (ia|jb) = sum_Q B[i, a, Q] B[j, b, Q].

    The one channel of a closed shell represents both spins.

    Attributes
    ----------
    B
        [nocc, nvir, naux], fp64, Hartree^1/2: a C-contiguous array, a memory map, an HDF5 dataset, rows on disk
        (`RowsOnDisk`) or rows spread over ranks (`RowsOnRanks`). naux is smaller than the auxiliary basis if linearly
        dependent functions were dropped.
    eps_occ, eps_vir
        Orbital energies [nocc] and [nvir], Hartree.
    metric
        Description of how (P|Q) was factorised.
    integrals
        Description of what computed (mu nu|P).
    timings
        Wall time in seconds, by stage. Integrals and transformation share one pool of threads; its wall time is divided
        between them in proportion to the time of the threads.
    where
        Description of where B is stored.
    """

    B: Any
    eps_occ: np.ndarray
    eps_vir: np.ndarray
    metric: str = ""
    integrals: str = ""
    timings: dict[str, float] = field(default_factory=dict)
    where: str = "in memory"

    @property
    def shape(self) -> tuple[int, int, int]:
        """(nocc, nvir, naux)."""
        return tuple(self.B.shape)

    @property
    def bytes_in_memory(self) -> int:
        """Bytes of B if this process holds all of it in memory, else 0."""
        in_memory = isinstance(self.B, np.ndarray) and not isinstance(self.B, np.memmap)
        return self.B.nbytes if in_memory else 0

    def rows(self, orbitals: slice) -> np.ndarray:
        """Return rows i of B, [n, nvir, naux], as a contiguous array."""
        return np.ascontiguousarray(self.B[orbitals], dtype=np.float64)

    @property
    def ovL(self) -> np.ndarray:
        """B as [nocc * nvir, naux], as PySCF's DF-MP2 names and shapes it. Rows on disk are read into memory."""
        nocc, nvir, naux = self.shape
        return np.asarray(self.B[0:nocc]).reshape(nocc * nvir, naux)


class SpinFactors(NamedTuple):
    """The factors of both spins of an open shell, with the same auxiliary functions."""

    alpha: Factors
    beta: Factors

    @property
    def ovL(self) -> tuple[np.ndarray, np.ndarray]:
        """B of both spins as [nocc * nvir, naux], as PySCF's DF-UMP2 names and shapes it."""
        return self.alpha.ovL, self.beta.ovL


def checked_factors(B: Any, eps_occ: Any, eps_vir: Any) -> Factors:
    """Check the caller's factors [nocc, nvir, naux], float64 or float32, and orbital energies in Hartree.

    An array or tensor is copied only if it is not fp64 or not C-contiguous; an fp64 memory map or HDF5 dataset stays on
    disk. Raises InputError, which names the array and the index, if shapes or dtypes are wrong, or a number is not
    finite.
    """
    eps_occ, eps_vir = _real_array("eps_occ", eps_occ, 1), _real_array("eps_vir", eps_vir, 1)
    if not (_stays_on_disk(B) and B.dtype == np.float64 and B.ndim == 3):
        B = _real_array("B", B, 3)
    if 0 in B.shape:
        raise InputError(f"B[nocc, nvir, naux] must have at least one of each, got shape {B.shape}")
    if B.shape[:2] != (len(eps_occ), len(eps_vir)):
        raise InputError(
            f"B[nocc, nvir, naux] has shape {tuple(B.shape)}, but there are {len(eps_occ)} occupied and "
            f"{len(eps_vir)} virtual energies"
        )
    for name, values in (("eps_occ", eps_occ), ("eps_vir", eps_vir)):
        _check_finite(name, values)
    for i in range(len(eps_occ)):
        _check_finite(f"B[{i}]", np.asarray(B[i]))
    return Factors(B, eps_occ, eps_vir)


def _stays_on_disk(B: Any) -> bool:
    return isinstance(B, h5py.Dataset) or (isinstance(B, np.memmap) and bool(B.flags.c_contiguous))


def _real_array(name: str, values: Any, ndim: int) -> np.ndarray:
    try:
        array = host_array(values, name, "an MP2Result holds numbers; take .detach()")
    except (TypeError, ValueError, RuntimeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{name} must be an array of real numbers: {error}") from None
    if array.dtype.newbyteorder("=") not in (np.float64, np.float32):
        raise InputError(f"{name} must hold float64 or float32 numbers, got dtype {array.dtype}")
    if array.ndim != ndim:
        raise InputError(f"{name} must have {ndim} dimension{'s' * (ndim > 1)}, got shape {array.shape}")
    return np.asarray(array, dtype=np.float64, order="C")


def _check_finite(name: str, values: np.ndarray) -> None:
    bad = np.argwhere(~np.isfinite(values))
    if len(bad):
        raise InputError(
            f"{name} must be finite, found {values[tuple(bad[0])]} at index {bad[0].tolist()} "
            f"({len(bad)} such numbers in all)"
        )


def by_spin(factors: Factors | SpinFactors) -> tuple[Factors, ...]:
    """The factors of a closed shell (one entry), or of alpha and beta spin."""
    return (factors,) if isinstance(factors, Factors) else tuple(factors)
