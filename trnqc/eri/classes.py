"""Classes of shell quartets: what one generated kernel computes, and the layout of what it is handed.

A pair record describes the product of two contracted shells a, b at A, B; its rows are the primitive products, largest
first. In every row, with zeta = alpha + beta and P = (alpha A + beta B) / zeta:

  ZETA  zeta;  P .. P + 2  the centre;  COEFFICIENT  sqrt(2) pi^(5/4) exp(-alpha beta |A-B|^2 / zeta) / zeta, times the
  product of the two contraction coefficients where the pair is segmented;  BOUND  sqrt of the largest primitive
  (ab|ab), with contraction coefficients;  CONTRACTION ..  where the pair is generally contracted, one product of
  coefficients for each pair of contractions.

so that [00|00]^(m) = COEFFICIENT_bra COEFFICIENT_ket F_m(T) / sqrt(zeta + eta), T = zeta eta / (zeta + eta) |P - Q|^2.
The factors 1/sqrt(4 pi) of s and sqrt(3/(4 pi)) of p functions are part of the contraction coefficients; a density-
fitting shell is a pair with an s function of exponent zero and coefficient one on the same centre.
"""

from __future__ import annotations

from dataclasses import dataclass

from trnqc.errors import UnsupportedClass

ZETA, P, COEFFICIENT, BOUND, CONTRACTION = 0, 1, 4, 5, 6
OPERATORS = ("coulomb", "erf", "erfc")
# Four-centre classes; a density-fitting shell stands alone on its side.
LMAX, LMAX_FITTING = 5, 7


@dataclass(frozen=True, order=True)
class QuartetClass:
    """Shells (la lb|lc ld) with la >= lb and lc >= ld, in Cartesian or real spherical functions.

    operator: 1/r, erf(omega r)/r or erfc(omega r)/r. general: several contractions share the primitives of a pair.
    """

    la: int
    lb: int
    lc: int
    ld: int
    cartesian: bool = False
    general: bool = False
    operator: str = "coulomb"

    def __post_init__(self) -> None:
        if self.operator not in OPERATORS:
            raise UnsupportedClass(f"operator is one of {', '.join(OPERATORS)}, found {self.operator!r}")
        if min(self.shells) < 0 or self.la < self.lb or self.lc < self.ld:
            raise UnsupportedClass(f"a class ({self.digits}) has la >= lb >= 0 and lc >= ld >= 0")
        for high, low in ((self.la, self.lb), (self.lc, self.ld)):
            if high > (LMAX_FITTING if low == 0 else LMAX):
                raise UnsupportedClass(
                    f"class ({self.digits}): angular momentum {high} is beyond {LMAX} (beyond {LMAX_FITTING} for "
                    "density-fitting shells); use PySCF's own integrals for this basis"
                )

    @property
    def shells(self) -> tuple[int, int, int, int]:
        return self.la, self.lb, self.lc, self.ld

    @property
    def digits(self) -> str:
        return "".join(map(str, self.shells))

    @property
    def name(self) -> str:
        """An identifier, such as ``eri_2110_sph_erf``."""
        words = ["eri", self.digits, "cart" if self.cartesian else "sph"]
        words += ["general"] * self.general + [self.operator] * (self.operator != "coulomb")
        return "_".join(words)

    @property
    def order(self) -> int:
        """la + lb + lc + ld: the highest order of the Boys function."""
        return sum(self.shells)

    def functions(self, l: int) -> int:
        """Functions of a shell."""
        return (l + 1) * (l + 2) // 2 if self.cartesian else 2 * l + 1

    @property
    def extents(self) -> tuple[int, int, int, int]:
        """Functions of the four shells: one contraction's block of integrals is [a, b, c, d] in row-major order."""
        a, b, c, d = (self.functions(l) for l in self.shells)
        return a, b, c, d
