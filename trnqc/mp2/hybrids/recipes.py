"""The recipes of double-hybrid functionals, each stated once with its source, and the energy by its parts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from pyscf.dft import libxc

from trnqc.errors import InputError
from trnqc.mp2.hybrids.expansion import WB97M2, SeriesFunctional


@dataclass(frozen=True)
class Damping:
    """Parameters of two-body D3 dispersion with rational (Becke-Johnson) damping.

    `s6` and `s8` scale the r^-6 and r^-8 terms, `a1` scales the critical radius, and `a2` (Bohr) is added to it; S.
    Grimme, S. Ehrlich and L. Goerigk, J. Comput. Chem. 32, 1456 (2011) define them.
    """

    s6: float
    s8: float
    a1: float
    a2: float


@dataclass(frozen=True)
class HybridRecipe:
    """What a double-hybrid energy consists of: E = E_DFT + c_os E_os + c_ss E_ss + E_disp.

    E_os and E_ss are the opposite- and same-spin parts of the MP2 energy expression, evaluated with Kohn-Sham orbitals.

    Attributes
    ----------
    name
        The functional's name.
    scf
        The functional of the SCF, in PySCF's notation.
    c_os, c_ss
        Factors of the perturbation's parts.
    source
        Where the recipe was published.
    final
        The functional of E_DFT, in PySCF's notation or as a power series; None if it is that of the SCF.
    damping
        Parameters of D3(BJ); None if none were published for this recipe.
    with_dispersion
        Whether the dispersion is part of the definition, so that it is added unless it is switched off.
    """

    name: str
    scf: str
    c_os: float
    c_ss: float
    source: str
    final: str | SeriesFunctional | None = None
    damping: Damping | None = None
    with_dispersion: bool = False


# DSD functionals were fitted together with their dispersion. The other names stand for functionals without dispersion,
# as in their first publications; `disp="d3bj"` adds it where parameters exist:
# L. Goerigk and S. Grimme, J. Chem. Theory Comput. 7, 291 (2011).
# P86 is libxc's GGA_C_P86, with the parameters of the publication (f~ = 0.19195), not P86_FT of other programs.
# B3LYP is PySCF's, with VWN3 ("B3LYPG"), as XYG3 was defined.
RECIPES: tuple[HybridRecipe, ...] = (
    HybridRecipe(
        "B2PLYP",
        "0.53*HF + 0.47*B88, 0.73*LYP",
        0.27,
        0.27,
        "S. Grimme, J. Chem. Phys. 124, 034108 (2006)",
        damping=Damping(0.64, 0.9147, 0.3065, 5.0570),
    ),
    HybridRecipe(
        "B2GP-PLYP",
        "0.65*HF + 0.35*B88, 0.64*LYP",
        0.36,
        0.36,
        "A. Karton, A. Tarnopolsky, J.-F. Lamere, G. C. Schatz and J. M. L. Martin, J. Phys. Chem. A 112, 12868 (2008)",
        damping=Damping(0.56, 0.2597, 0.0, 6.3332),
    ),
    HybridRecipe(
        "DSD-BLYP",
        "0.71*HF + 0.29*B88, 0.54*LYP",
        0.47,
        0.40,
        "S. Kozuch and J. M. L. Martin, J. Comput. Chem. 34, 2327 (2013)",
        damping=Damping(0.57, 0.0, 0.0, 5.4),
        with_dispersion=True,
    ),
    HybridRecipe(
        "DSD-PBEP86",
        "0.69*HF + 0.31*PBE, 0.44*P86",
        0.52,
        0.22,
        "S. Kozuch and J. M. L. Martin, J. Comput. Chem. 34, 2327 (2013)",
        damping=Damping(0.48, 0.0, 0.0, 5.6),
        with_dispersion=True,
    ),
    HybridRecipe(
        "PBE0-2",
        "0.793701*HF + 0.206299*PBE, 0.5*PBE",
        0.5,
        0.5,
        "J.-D. Chai and S.-P. Mao, Chem. Phys. Lett. 538, 121 (2012)",
    ),
    HybridRecipe(
        "PBE-QIDH",
        "0.6933612744*HF + 0.3066387256*PBE, 0.6666666667*PBE",
        0.3333333333,
        0.3333333333,
        "E. Bremond, J. C. Sancho-Garcia, A. J. Perez-Jimenez and C. Adamo, J. Chem. Phys. 141, 031101 (2014)",
    ),
    HybridRecipe(
        "wB2PLYP",
        "0.53*HF + 0.47*LR_HF(0.3) + 0.47*GGA_X_ITYH, 0.73*LYP",
        0.27,
        0.27,
        "M. Casanova-Paez, M. B. Dardis and L. Goerigk, J. Chem. Theory Comput. 15, 4735 (2019)",
    ),
    HybridRecipe(
        "XYG3",
        "B3LYPG",
        0.3211,
        0.3211,
        "Y. Zhang, X. Xu and W. A. Goddard III, Proc. Natl. Acad. Sci. USA 106, 4963 (2009)",
        final="0.8033*HF - 0.0140*LDA + 0.2107*B88, 0.6789*LYP",
    ),
    HybridRecipe(
        "wB97M(2)",
        "wB97M-V",
        0.34096,
        0.34096,
        "N. Mardirossian and M. Head-Gordon, J. Chem. Phys. 148, 241736 (2018)",
        final=WB97M2,
    ),
)


def named(name: str) -> HybridRecipe | None:
    """The recipe of a name, as `recipe` reads names, or None."""
    return next((one for one in RECIPES if _plain(one.name) == _plain(name)), None)


def recipe(functional: str | HybridRecipe | tuple[Any, ...]) -> HybridRecipe:
    """Look up the recipe of a functional, or make one of explicit parts.

    Parameters
    ----------
    functional
        A name, in which case, hyphens, underscores and parentheses do not matter; a `HybridRecipe`; or a tuple
        (scf, c_os, c_ss) or (scf, final, c_os, c_ss) of functionals in PySCF's notation and factors.

    Raises
    ------
    InputError
        If the name is unknown or the tuple does not describe a functional.

    Examples
    --------
    >>> recipe("b2plyp").c_os
    0.27
    >>> recipe(("0.5*HF + 0.5*PBE, 0.875*PBE", 0.125, 0.125)).scf      # PBE0-DH
    '0.5*HF + 0.5*PBE, 0.875*PBE'
    """
    if isinstance(functional, HybridRecipe):
        return functional
    if isinstance(functional, str):
        if known := named(functional):
            return known
        raise InputError(
            f"the recipe of {functional!r} is unknown; known are {', '.join(one.name for one in RECIPES)}; others "
            "can be written as (scf, c_os, c_ss) or (scf, final, c_os, c_ss) in PySCF's notation"
        )
    try:
        scf, *middle, c_os, c_ss = functional
        (final,) = middle or (None,)
        if not (isinstance(scf, str) and isinstance(final, str | None)):
            raise TypeError
        for name in (scf, *([final] if final else [])):
            _check_functional(name)
        return HybridRecipe("user-defined", scf, float(c_os), float(c_ss), "", final)
    except InputError:
        raise
    except (TypeError, ValueError):
        raise InputError(
            "a double hybrid was expected as a name, a HybridRecipe, (scf, c_os, c_ss) or (scf, final, c_os, c_ss), "
            f"got {functional!r}"
        ) from None


def _check_functional(xc: str) -> None:
    """Raise InputError if libxc cannot read the name of a functional."""
    try:
        libxc.parse_xc(xc)
    except (KeyError, ValueError) as error:
        reason = error.args[0] if error.args else error
        raise InputError(f"the functional {xc!r} of the double hybrid is not one of PySCF's: {reason}") from error


def _plain(name: str) -> str:
    name = name.lower().replace("ω", "w")
    return "".join(letter for letter in name if letter.isalnum())


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

    recipe: HybridRecipe
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
