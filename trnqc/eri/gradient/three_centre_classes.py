"""Classes of contracted derivatives of (ab|P), one for each kernel, and how a kernel divides its working memory."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from trnqc.eri.classes import CONTRACTION, QuartetClass
from trnqc.eri.kernels import columns
from trnqc.eri.kernels.angular import Powers, ncart
from trnqc.eri.kernels.recurrence import FITTED, components, fewest_flops, recurrence
from trnqc.eri.kernels.variants import LARGEST_FITTED
from trnqc.eri.shells.pairs import ShellPairs
from trnqc.gen import Value


@dataclass(frozen=True)
class GradientClass:
    """A bra pair of shells la >= lb with fitting shells of angular momentum lc, for an operator of
    `trnqc.eri.classes.OPERATORS`.

    `general` states that several contractions share the primitives of the bra pair. Raises UnsupportedClass if an
    angular momentum is beyond those of the kernels.
    """

    la: int
    lb: int
    lc: int
    cartesian: bool = False
    general: bool = False
    operator: str = "coulomb"

    def __post_init__(self) -> None:
        # The class of the integrals themselves has the same limits.
        QuartetClass(self.la, self.lb, self.lc, 0, operator=self.operator)

    @property
    def name(self) -> str:
        words = ["gradient", f"{self.la}{self.lb}{self.lc}", "cart" if self.cartesian else "sph"]
        words += ["general"] * self.general + [self.operator] * (self.operator != "coulomb")
        return "_".join(words)

    @property
    def recurrence(self) -> tuple[int, int, int, int]:
        """The class of the vertical recurrence whose targets are all [e|f] that the derivatives need."""
        low = max(self.la - 1, 0)
        return low, self.la + self.lb + 1 - low, self.lc, 0

    @property
    def order(self) -> int:
        """The highest order of the Boys function."""
        return sum(self.recurrence)

    @property
    def rule(self) -> str:
        """The rule of the recurrence."""
        return fewest_flops(*self.recurrence) if self.cartesian else FITTED

    @property
    def form(self) -> str:
        """The form of the recurrence, one of `variants.FORMS`: straight-line code where compilers can take it."""
        return _form(self.recurrence, self.rule)

    @property
    def extents(self) -> tuple[int, int, int]:
        """Functions of a, b and P."""
        a, b, c = (ncart(l) if self.cartesian else 2 * l + 1 for l in (self.la, self.lb, self.lc))
        return a, b, c

    def record_width(self, n_ab: Value) -> Value | int:
        """Return the columns of a bra record for n_ab pairs of contractions; the last column is 2 alpha."""
        return n_ab + (CONTRACTION + 1) if self.general else CONTRACTION + 1

    @property
    def lower(self) -> tuple[Powers, ...]:
        """The e of the targets from which (a-1 b| and (a b-1| follow; none for two s functions."""
        return components(self.la - 1, self.lb) if self.la else ()


@cache
def _form(shells: tuple[int, int, int, int], rule: str) -> str:
    return "columns" if len(recurrence(*shells, rule).graph) > LARGEST_FITTED else "straight"


def class_of(bra: ShellPairs, ket: ShellPairs, operator: str) -> GradientClass:
    """Return the class of a class of pairs with a class of fitting shells; s and p functions are called spherical."""
    cartesian = bra.cartesian and max(bra.la, ket.la) > 1
    return GradientClass(bra.la, bra.lb, ket.la, cartesian, bra.general, operator)


@dataclass(frozen=True)
class WorkOffsets:
    """Where the parts of the working memory begin, in elements of a lane.

    They are the weights of Cartesian functions [n_ab, ab, f], of targets [n_ab, e, f], of targets for one primitive [e,
    f], the sums of lower targets [n_ab, e, f], the targets of one primitive quartet [e, f], and scratch memory.
    """

    cls: GradientClass
    n_ab: Value | int

    @property
    def functions(self) -> int:
        """Cartesian functions ab f."""
        return ncart(self.cls.la) * ncart(self.cls.lb) * self.n_f

    @property
    def n_f(self) -> int:
        return ncart(self.cls.lc)

    @property
    def weights(self) -> int:
        """Weights of targets."""
        return len(components(self.cls.la, self.cls.lb)) * self.n_f

    @property
    def lower(self) -> int:
        return len(self.cls.lower) * self.n_f

    @property
    def at_weights(self) -> Value | int:
        return self.n_ab * self.functions

    @property
    def at_primitive(self) -> Value | int:
        return self.at_weights + self.n_ab * self.weights

    @property
    def at_lower(self) -> Value | int:
        return self.at_primitive + self.weights

    @property
    def at_targets(self) -> Value | int:
        return self.at_lower + self.n_ab * self.lower

    @property
    def at_scratch(self) -> Value | int:
        l, low, lc, _ = self.cls.recurrence
        return self.at_targets + len(components(l, low)) * len(components(lc, 0))

    @property
    def size(self) -> Value | int:
        shells = self.cls.recurrence
        fitted = 0 if self.cls.cartesian else columns.scratch_size(*shells, fitted=True)
        return self.at_scratch + max(columns.scratch_size(*shells), fitted)


def work_size(cls: GradientClass, n_ab: int) -> int:
    """Return the elements of one lane of the parameter `work`."""
    size = WorkOffsets(cls, n_ab).size
    assert isinstance(size, int)
    return size
