"""The operator of an integral, from the omega of PySCF."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from pyscf import gto

from trnqc.eri.classes import OPERATORS
from trnqc.errors import InputError


@dataclass(frozen=True)
class Operator:
    """1/r, erf(omega r)/r or erfc(omega r)/r: a name of `trnqc.eri.classes.OPERATORS`, with omega in 1/Bohr, at least
    0.
    """

    name: str
    omega: float

    @classmethod
    def of(cls, mol: gto.Mole, omega: Any = None) -> Operator:
        """Return the operator for an omega as PySCF counts it; see `signed_omega`."""
        signed = signed_omega(mol, omega)
        coulomb, long_range, short_range = OPERATORS
        return cls(coulomb if signed == 0 else long_range if signed > 0 else short_range, abs(signed))


def signed_omega(mol: gto.Mole, omega: Any = None) -> float:
    """Return omega in 1/Bohr with PySCF's sign: above 0 for erf, below 0 for erfc, 0 for 1/r.

    None stands for the molecule's own (`mol.set_range_coulomb`). Raises InputError for anything but a finite number.
    """
    value = mol.omega or 0.0 if omega is None else omega
    if not isinstance(value, int | float | np.number) or not np.isfinite(value):
        raise InputError(f"omega is a finite number of bohr^-1, found {omega}")
    return float(value)
