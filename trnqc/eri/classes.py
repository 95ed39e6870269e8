"""Classes of shell quartets, one for each generated kernel, and the records of shell pairs that kernels read.

A record describes the product of two contracted shells a and b at A and B. It has one row for each product of two
primitives, in the order of falling BOUND. With exponents alpha and beta, zeta = alpha + beta and P = (alpha A + beta B)
/ zeta, its columns are

  ZETA          zeta, in 1/Bohr^2
  P .. P + 2    x, y and z of P, in Bohr
  COEFFICIENT   sqrt(2) pi^(5/4) exp(-alpha beta |A-B|^2 / zeta) / zeta, in a segmented pair times the product of the
                two contraction coefficients
  BOUND         the square root of the largest primitive (ab|ab), with contraction coefficients
  CONTRACTION   and on, in a generally contracted pair: a product of two coefficients for each pair of contractions

so that [00|00]^(m) = COEFFICIENT_ab COEFFICIENT_cd F_m(T) / sqrt(zeta + eta), T = zeta eta / (zeta + eta) |P - Q|^2.
The contraction coefficients include the factors 1/sqrt(4 pi) of s and sqrt(3/(4 pi)) of p functions. A density-fitting
shell is a pair with an s function of exponent zero and coefficient one on the same centre.
"""

from __future__ import annotations

from dataclasses import dataclass

from trnqc.errors import UnsupportedClass

# The columns of a record.
ZETA, P, COEFFICIENT, BOUND, CONTRACTION = 0, 1, 4, 5, 6
# 1/r, erf(omega r)/r and erfc(omega r)/r.
OPERATORS = ("coulomb", "erf", "erfc")
# Primitive quartets whose bound is below this share of the cutoff for integrals are left out: a contracted integral has
# some hundreds that matter.
PRIMITIVE = 1e-2
# The highest angular momentum of orbitals (h).
LMAX = 5
# The highest angular momentum of density-fitting shells (k), which are alone on their side.
LMAX_FITTING = 7


@dataclass(frozen=True, order=True)
class QuartetClass:
    """Shells (la lb|lc ld) with la >= lb and lc >= ld, for an operator of OPERATORS.

    `general` states that several contractions share the primitives of a pair. Raises UnsupportedClass if there is no
    such kernel.

    >>> QuartetClass(2, 1, 1, 0, operator="erf").name
    'eri_2110_sph_erf'
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
        """The name of the kernel."""
        words = ["eri", self.digits, "cart" if self.cartesian else "sph"]
        words += ["general"] * self.general + [self.operator] * (self.operator != "coulomb")
        return "_".join(words)

    @property
    def order(self) -> int:
        """la + lb + lc + ld: the highest order of the Boys function."""
        return sum(self.shells)

    def functions(self, l: int) -> int:
        """Return the number of functions of a shell with one contraction."""
        return (l + 1) * (l + 2) // 2 if self.cartesian else 2 * l + 1

    @property
    def extents(self) -> tuple[int, int, int, int]:
        """Numbers of functions of the four shells; integrals of one contraction are [a, b, c, d] in row-major order."""
        a, b, c, d = (self.functions(l) for l in self.shells)
        return a, b, c, d
