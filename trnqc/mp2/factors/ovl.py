"""Factors as PySCF's DF-MP2 names and stores them: ovL[nocc * nvir, naux], or ovL0 and ovL1 of two spins."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import h5py
import numpy as np

from trnqc.errors import InputError, StorageError
from trnqc.mp2.factors.factors import Factors, SpinFactors, checked_factors
from trnqc.mp2.reference.orbitals import ActiveOrbitals


def save_ovl(factors: Factors | SpinFactors, path: str | Path) -> None:
    """Write factors to an HDF5 file. Raises StorageError."""
    parts = {"ovL": factors} if isinstance(factors, Factors) else {"ovL0": factors.alpha, "ovL1": factors.beta}
    try:
        with h5py.File(path, "w") as file:
            for name, part in parts.items():
                nocc, nvir, naux = part.shape
                rows = file.create_dataset(name, (nocc * nvir, naux), dtype=np.float64)
                for i in range(nocc):
                    rows[i * nvir : (i + 1) * nvir] = part.B[i]
    except OSError as error:
        raise StorageError(f"{path}: cannot be written: {error}") from error


def factors_of_ovl(ovl: Any, spins: Sequence[ActiveOrbitals]) -> Factors | SpinFactors:
    """Make factors of integrals in PySCF's form: [nocc * nvir, naux], a pair of these for two spins, or a file of
    `save_ovl`.

    Raises InputError if the file cannot be read, or shapes do not fit the orbitals.
    """
    names = ("ovL",) if len(spins) == 1 else ("ovL0", "ovL1")
    if isinstance(ovl, str | Path):
        try:
            with h5py.File(ovl, "r") as file:
                arrays = [file[name][:] for name in names]
        except (OSError, KeyError) as error:
            raise InputError(f"{ovl}: a file with {' and '.join(names)} was expected: {error}") from error
    else:
        arrays = [ovl] if len(spins) == 1 else list(ovl)
    parts = [_factors(np.asarray(array), spin) for array, spin in zip(arrays, spins, strict=True)]
    return parts[0] if len(parts) == 1 else SpinFactors(*parts)


def _factors(ovl: np.ndarray, spin: ActiveOrbitals) -> Factors:
    if ovl.ndim != 2 or len(ovl) != spin.nocc * spin.nvir:
        raise InputError(
            f"ovL[{spin.nocc} * {spin.nvir}, naux] was expected for the active orbitals, got shape {ovl.shape}"
        )
    return checked_factors(ovl.reshape(spin.nocc, spin.nvir, -1), spin.eps_occ, spin.eps_vir)
