"""Variants of a quartet kernel: straight-line code or loops, and what else can be chosen without changing integrals."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache

from trnqc.eri.classes import QuartetClass
from trnqc.eri.kernels import columns, vertical
from trnqc.eri.kernels.parameters import target_count
from trnqc.eri.kernels.recurrence import FITTED, components, fewest_flops, recurrence
from trnqc.gen import Array
from trnqc.gen import statements as st

# The forms of the vertical recurrence: `vertical.straight` and `columns.vertical`.
FORMS = ("straight", "columns")
# Nodes of the recurrence's graph up to which a kernel is straight-line code. Compilers take too long for more.
LARGEST = 6000
# The same for a fitting shell, where loops run faster from here on.
LARGEST_FITTED = 4000


@dataclass(frozen=True)
class Variant:
    """Choices for a kernel, as in `vertical.straight` and `horizontal.horizontal_function`. The defaults suit CPUs.

    The form "columns" only reads whether the rule is FITTED. `space` is the memory for the targets of a segmented
    class: "global" for the kernel's work, "shared", or "local", which are registers if they suffice. If `peeled`, the
    first primitive quartet has code of its own that stores, so that no targets are cleared. `largest` is the number of
    nodes up to which `form_of` chooses straight-line code, or 0 for LARGEST and LARGEST_FITTED.
    """

    rule: str = ""
    method: str = ""
    draws: int = 1
    space: str = "global"
    peeled: bool = True
    fused: bool = True
    unrolled: bool | None = None
    largest: int = 0

    def targets(self, cls: QuartetClass) -> Array | None:
        """Return the array of the targets, or None if they are in the kernel's work."""
        la, lb, lc, ld = cls.shells
        shape = (len(components(la, lb)), len(components(lc, ld)))
        own = self.space != "global" and not cls.general
        return Array("h", "f64", shape, self.space, lanes=self.space != "local") if own else None


STANDARD = Variant()
# A third to a half of the code, for the quick form of a program. It is generated sooner, too: the order of the nodes is
# not searched for.
QUICK = Variant(method="listed", peeled=False, unrolled=False, largest=1000)
# Options of the compiler for the quick form. GCC takes a quarter of the time that it takes at -O3, and the code 1.4 to
# 1.5 times as long.
QUICK_FLAGS = ("-Og",)
# Options that only GCC has. Registers allocated without regard to loops take an eighth less of its time, and the code
# is as fast.
QUICK_FLAGS_OF_GCC = ("-fira-region=one",)


@cache
def form_of(cls: QuartetClass, variant: Variant = STANDARD) -> str:
    """Choose the form: straight-line code where compilers can build it in reasonable time, else loops over columns."""
    # A peeled kernel has the code of the recurrence twice.
    copies = 2 if variant.peeled and not cls.general else 1
    most = variant.largest or (LARGEST_FITTED if variant.rule == FITTED else LARGEST) // copies
    if target_count(cls) > most:
        return "columns"
    graph = recurrence(*cls.shells, variant.rule or fewest_flops(*cls.shells)).graph
    return "straight" if len(graph) <= most else "columns"


@cache
def primitive_function(cls: QuartetClass, form: str = "", add: bool = True, variant: Variant = STANDARD) -> st.Function:
    """Build the vertical recurrence of a primitive quartet in one of FORMS; it adds to its targets or stores them."""
    if (form or form_of(cls, variant)) == "columns":
        return columns.vertical(*cls.shells, add=add, fitted=variant.rule == FITTED)
    return vertical.straight(
        *cls.shells,
        add=add,
        rule=variant.rule,
        method=variant.method,
        draws=variant.draws,
        space="global" if cls.general else variant.space,
    )
