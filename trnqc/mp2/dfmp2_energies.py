"""The energies of a DF-MP2 method object, which are read from its result."""

from __future__ import annotations

from typing import Any

from trnqc.mp2.result import MP2Result
from trnqc.types import PairEnergies, SpinPairEnergies


class Energies:
    """The part of `trnqc.DFMP2` that names energies as PySCF does. All of them are None before `kernel`."""

    _scf: Any
    result: MP2Result | None

    @property
    def e_hf(self) -> float:
        """Energy of the reference, Hartree."""
        return float(self._scf.e_tot)

    @property
    def e_corr(self) -> float | None:
        """Correlation energy, Hartree; None before `kernel`."""
        return None if self.result is None else self.result.e_corr

    @property
    def e_tot(self) -> float | None:
        """Reference plus correlation energy, Hartree; None before `kernel`."""
        return None if self.result is None else self.result.e_tot

    @property
    def e_tot_scs(self) -> float | None:
        """Reference plus SCS-MP2 correlation energy, Hartree; None before `kernel`."""
        return None if self.result is None else self.result.e_tot_scs

    @property
    def e_corr_os(self) -> float | None:
        """Opposite-spin part of e_corr, Hartree; None before `kernel`."""
        return None if self.result is None else self.result.e_corr_os

    @property
    def e_corr_ss(self) -> float | None:
        """Same-spin part of e_corr, Hartree; None before `kernel`."""
        return None if self.result is None else self.result.e_corr_ss

    @property
    def pair_energies(self) -> PairEnergies | SpinPairEnergies | None:
        """Energies by pairs, Hartree; None before `kernel`. See `trnqc.types`."""
        return None if self.result is None else self.result.pair_energies
