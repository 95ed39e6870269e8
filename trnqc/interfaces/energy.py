"""Hartree-Fock and correlation energies as one value."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trnqc.errors import InputError


@dataclass(frozen=True)
class Energy:
    """A Hartree-Fock and a correlation energy, Hartree. Energies can be added and subtracted.

    Examples
    --------
    >>> (Energy(-1.5, -0.25) - Energy(-0.5, -0.125)).e_tot
    -1.125
    """

    e_hf: float
    e_corr: float

    @classmethod
    def of(cls, result: Any) -> Energy:
        """Read e_hf and e_corr of an object, such as an `MP2Result` or a `DFMP2` object whose `kernel` was called.

        Raises
        ------
        InputError
            If the object lacks one of these energies.
        """
        energies: dict[str, Any] = {name: getattr(result, name, None) for name in ("e_hf", "e_corr")}
        if missing := [name for name, value in energies.items() if value is None]:
            raise InputError(
                f"an object with the energies e_hf and e_corr was expected, {type(result).__name__} has no "
                f"{' and no '.join(missing)}: call its kernel() first"
            )
        return cls(float(energies["e_hf"]), float(energies["e_corr"]))

    @property
    def e_tot(self) -> float:
        """Sum of both energies, Hartree."""
        return self.e_hf + self.e_corr

    def __add__(self, other: Energy) -> Energy:
        return Energy(self.e_hf + other.e_hf, self.e_corr + other.e_corr)

    def __sub__(self, other: Energy) -> Energy:
        return Energy(self.e_hf - other.e_hf, self.e_corr - other.e_corr)
