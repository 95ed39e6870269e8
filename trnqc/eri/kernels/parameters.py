"""The parameters of a quartet kernel, and how it divides its working memory."""

from __future__ import annotations

from dataclasses import dataclass

from trnqc.eri.classes import CONTRACTION, QuartetClass
from trnqc.eri.kernels import boys, columns, horizontal
from trnqc.eri.kernels.recurrence import components
from trnqc.gen import Array, Value, Var


@dataclass(frozen=True)
class KernelParameters:
    """The parameters of a kernel, in order. The records are those of `trnqc.eri.classes`.

    - n_bra: primitive pairs of the bra; bra [n_bra, 6 or 6 + n_ab], bra_centre [6]: its record; A and A - B.
    - n_ket: primitive pairs of the kets; ket [n_ket, 6 or 6 + n_cd], ket_centre [6], of lanes: their records; C and
      C - D. A lane without a pair has COEFFICIENT 0 and ZETA 1.
    - ket_bound [n_ket + 1]: the largest BOUND of a primitive pair over the lanes, falling. The last entry is read, but
      may be any number.
    - n_ab, n_cd: pairs of contractions; 1 in a segmented class. In a general class a segmented pair has 1.0 at
      CONTRACTION.
    - cutoff: primitive quartets whose product of BOUNDs is smaller are left out; omega: in 1/Bohr.
    - boys: the table `boys.table(cls.order)`; work [work_size(...)], of lanes: memory with any contents.
    - out [n_ab, n_cd, na nb, nc nd], of lanes: the integrals; overwritten.

    All arrays are of f64.
    """

    n_bra: Value
    bra: Array
    bra_centre: Array
    n_ket: Value
    ket: Array
    ket_centre: Array
    ket_bound: Array
    n_ab: Value
    n_cd: Value
    cutoff: Value
    omega: Value
    boys: Array
    work: Array
    out: Array

    @property
    def all(self) -> tuple[Value | Array, ...]:
        return tuple(vars(self).values())


def parameters(cls: QuartetClass) -> KernelParameters:
    """Return the parameters of the kernel of a class."""
    n_bra, n_ket, n_ab, n_cd = (Var(name, "i64") for name in ("n_bra", "n_ket", "n_ab", "n_cd"))
    wide_ab, wide_cd = (n + CONTRACTION if cls.general else CONTRACTION for n in (n_ab, n_cd))
    na, nb, nc, nd = cls.extents
    return KernelParameters(
        n_bra=n_bra,
        bra=Array("bra", "f64", (n_bra, wide_ab)),
        bra_centre=Array("bra_centre", "f64", (6,)),
        n_ket=n_ket,
        ket=Array("ket", "f64", (n_ket, wide_cd), lanes=True),
        ket_centre=Array("ket_centre", "f64", (6,), lanes=True),
        ket_bound=Array("ket_bound", "f64", (n_ket + 1,)),
        n_ab=n_ab,
        n_cd=n_cd,
        cutoff=Var("cutoff"),
        omega=Var("omega"),
        boys=boys.table_array(cls.order),
        work=Array("work", "f64", (None,), lanes=True),
        out=Array("out", "f64", (n_ab, n_cd, na * nb, nc * nd), lanes=True),
    )


def target_count(cls: QuartetClass) -> int:
    """Return the number of targets [e0|f0] of one pair of contractions on each side."""
    la, lb, lc, ld = cls.shells
    return len(components(la, lb)) * len(components(lc, ld))


@dataclass(frozen=True)
class WorkLayout:
    """Where the parts of `work` begin.

    In a segmented class they are the targets and the scratch memory of the functions that the kernel calls. A general
    class has targets [n_ab, n_cd, n_t], sums over ket primitives [n_cd, n_t], the targets of one primitive quartet
    [n_t], and scratch memory.
    """

    cls: QuartetClass
    n_ab: Value | int
    n_cd: Value | int

    @property
    def targets(self) -> int:
        return target_count(self.cls)

    @property
    def ket_sums(self) -> Value | int:
        return self.n_ab * self.n_cd * self.targets if self.cls.general else self.targets

    @property
    def primitive(self) -> Value | int:
        return self.ket_sums + self.n_cd * self.targets if self.cls.general else self.ket_sums

    @property
    def scratch(self) -> Value | int:
        return self.primitive + self.targets if self.cls.general else self.primitive

    @property
    def size(self) -> Value | int:
        shells = self.cls.shells
        fitted = columns.scratch_size(*shells, fitted=True) if self.cls.ld == 0 else 0
        own = max(columns.scratch_size(*shells), fitted, horizontal.scratch_size(*shells, self.cls.cartesian))
        return self.scratch + own


def work_size(cls: QuartetClass, n_ab: int, n_cd: int) -> int:
    """Return the elements of one lane of the kernel's parameter `work`."""
    size = WorkLayout(cls, n_ab, n_cd).size
    assert isinstance(size, int)
    return size
