"""The energy of a double hybrid by its parts."""

from __future__ import annotations

from dataclasses import dataclass

from trnqc.mp2.hybrids.recipes import Recipe


@dataclass(frozen=True)
class DoubleHybridResult:
    """The energy of a double hybrid by its parts, in Hartree.

    Attributes
    ----------
    recipe
        The functional.
    e_scf
        Energy of the SCF with the functional of the SCF.
    e_dft
        Energy of its density with the final functional, without perturbation and dispersion. It is `e_scf` unless the
        recipe has a final functional.
    e_corr_os, e_corr_ss
        Opposite- and same-spin parts of the MP2 energy expression, not scaled.
    e_disp
        Dispersion energy.
    """

    recipe: Recipe
    e_scf: float
    e_dft: float
    e_corr_os: float
    e_corr_ss: float
    e_disp: float

    @property
    def e_pt2(self) -> float:
        """Scaled perturbation energy, c_os e_corr_os + c_ss e_corr_ss."""
        return self.recipe.c_os * self.e_corr_os + self.recipe.c_ss * self.e_corr_ss

    @property
    def e_tot(self) -> float:
        """Total energy."""
        return self.e_dft + self.e_pt2 + self.e_disp
