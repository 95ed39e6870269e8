"""Two-point extrapolation of energies to the limit of a complete basis set."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from trnqc.errors import InputError
from trnqc.interfaces.energy import Energy

# Cardinal number of each letter in the names of correlation-consistent basis sets.
LETTERS = {"d": 2, "t": 3, "q": 4, "5": 5, "6": 6}
# Exponent of the Hartree-Fock energy: A. Halkier et al., Chem. Phys. Lett. 302, 437 (1999).
HALKIER = 1.63
# Factor of sqrt(X) in the exponent: A. Karton and J. M. L. Martin, Theor. Chem. Acc. 115, 330 (2006).
KARTON_MARTIN = 9.0
# The error of the Hartree-Fock energy as a function of the cardinal number X, except for a constant factor; None
# stands for the energy of the larger basis set.
HF_ERRORS: dict[str, Callable[[int], float] | None] = {
    "karton-martin": lambda x: (x + 1) * math.exp(-KARTON_MARTIN * math.sqrt(x)),
    "halkier": lambda x: math.exp(-HALKIER * x),
    "largest": None,
}
# The family in front of the cardinal number, the number, and what follows it, without hyphens, such as
# "augccpv", "t", "zdk". "(t+d)" is tight d functions on the second row.
_NAME = re.compile(r"((?:aug|jul|jun|may|apr|heavyaug|maug)?ccpw?c?v)\(?([dtq56])(\+d\))?(z.*)")


@dataclass(frozen=True)
class ExtrapolatedEnergy(Energy):
    """Energies extrapolated to the limit of a complete basis set, Hartree.

    Attributes
    ----------
    e_hf, e_corr
        The extrapolated energies.
    small, large
        The energies from which they were extrapolated.
    cardinals
        Cardinal numbers of both basis sets.
    hf
        The formula for the Hartree-Fock energy, one of HF_ERRORS.
    """

    small: Energy
    large: Energy
    cardinals: tuple[int, int]
    hf: str


def extrapolate(
    small: Any, large: Any, basis_sets: Sequence[str | int], hf: str = "karton-martin"
) -> ExtrapolatedEnergy:
    """Extrapolate energies in two basis sets to the limit of a complete basis set.

    Parameters
    ----------
    small, large
        The results in the smaller and the larger basis set: objects with the attributes e_hf and e_corr in Hartree,
        such as `MP2Result`, `DFMP2` or `trnqc.interfaces.energy.Energy`.
    basis_sets
        The names of both sets, of one family of correlation-consistent sets, or their cardinal numbers X and X + 1.
    hf
        How the Hartree-Fock energy is extrapolated: "karton-martin", "halkier", or "largest" for not at all.

    Returns
    -------
    ExtrapolatedEnergy
        With e_hf, e_corr and e_tot.

    Raises
    ------
    InputError
        If the basis sets are not of one family with consecutive cardinal numbers, or an energy or formula is unknown.

    Notes
    -----
    The error of the correlation energy is assumed to be proportional to X^-3 [1], [2],

        E = (Y^3 E_Y - X^3 E_X) / (Y^3 - X^3),

    and that of the Hartree-Fock energy to (X + 1) exp(-9 sqrt(X)) ("karton-martin", [3]) or exp(-1.63 X) ("halkier",
    [4]).

    References
    ----------
    .. [1] T. Helgaker, W. Klopper, H. Koch, J. Noga, J. Chem. Phys. 106, 9639 (1997).
    .. [2] A. Halkier, T. Helgaker, P. Jørgensen, W. Klopper, H. Koch, J. Olsen, A. K. Wilson, Chem. Phys. Lett. 286,
       243 (1998).
    .. [3] A. Karton, J. M. L. Martin, Theor. Chem. Acc. 115, 330 (2006).
    .. [4] A. Halkier, T. Helgaker, P. Jørgensen, W. Klopper, J. Olsen, Chem. Phys. Lett. 302, 437 (1999).

    Examples
    --------
    >>> double, triple = Energy(-76.0268, -0.2018), Energy(-76.0571, -0.2622)  # water
    >>> limit = extrapolate(double, triple, ("cc-pvdz", "cc-pvtz"))
    >>> print(f"{limit.e_hf:.4f} {limit.e_corr:.4f}")
    -76.0596 -0.2876
    """
    if hf not in HF_ERRORS:
        raise InputError(f"hf must be one of {', '.join(HF_ERRORS)}, got {hf!r}")
    x, y = cardinal_numbers(basis_sets)
    low, high = Energy.of(small), Energy.of(large)
    error = HF_ERRORS[hf]
    return ExtrapolatedEnergy(
        e_hf=high.e_hf if error is None else _limit(low.e_hf, high.e_hf, error(x), error(y)),
        e_corr=_limit(low.e_corr, high.e_corr, x**-3, y**-3),
        small=low,
        large=high,
        cardinals=(x, y),
        hf=hf,
    )


def cardinal_numbers(basis_sets: Sequence[str | int]) -> tuple[int, int]:
    """Return the cardinal numbers of two basis sets, given by name or by number.

    Raises
    ------
    InputError
        If they are not two consecutive numbers, or the sets are of different families.

    Examples
    --------
    >>> cardinal_numbers(("aug-cc-pVTZ", "aug-cc-pVQZ"))
    (3, 4)
    """
    if isinstance(basis_sets, str) or len(basis_sets) != 2:
        raise InputError(f"two basis sets were expected, such as ('cc-pvdz', 'cc-pvtz'), got {basis_sets!r}")
    (family, x), (other, y) = (_family_and_cardinal(basis) for basis in basis_sets)
    if family != other:
        raise InputError(f"two basis sets of one family were expected, got {basis_sets[0]!r} and {basis_sets[1]!r}")
    if y != x + 1:
        raise InputError(
            f"the cardinal numbers of the basis sets must be consecutive, the smaller one first: {basis_sets[0]!r} has "
            f"{x} and {basis_sets[1]!r} has {y}"
        )
    return x, y


def _family_and_cardinal(basis: str | int) -> tuple[str, int]:
    if isinstance(basis, int) and not isinstance(basis, bool) and basis > 1:
        return "", basis
    match = _NAME.fullmatch(re.sub(r"[-_\s]", "", str(basis).lower()))
    if match is None:
        raise InputError(
            f"a correlation-consistent basis set (cc-pvdz, aug-cc-pvtz, cc-pwcvqz, ...) or a cardinal number of at "
            f"least 2 was expected, got {basis!r}"
        )
    before, letter, tight, after = match.groups()
    return f"{before} {tight or ''} {after}", LETTERS[letter]


def _limit(low: float, high: float, error_low: float, error_high: float) -> float:
    """The limit of two energies whose errors are proportional to `error_low` and `error_high`."""
    return (error_low * high - error_high * low) / (error_low - error_high)
