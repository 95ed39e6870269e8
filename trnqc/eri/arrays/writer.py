"""The writer of a class: integrals of bra pairs with vectors of ket pairs, each written to its elements of an array.

bra pair, vector of ket pairs -> bound -> kernel's block of integrals -> destination[bra place + ket place]

The index of an element is the sum of a place of the bra and one of the ket. That covers square and packed layouts and
ranges of shells. Each integral may have several `copies`, for the exchange of its indices. A `triangular` writer writes
one copy to n (n + 1) / 2 + m instead, with the larger place n and the smaller place m.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from trnqc.eri.classes import QuartetClass
from trnqc.eri.kernels.quartet import parts, quartet_function
from trnqc.eri.kernels.recurrence import FITTED
from trnqc.eri.kernels.rows import PAIR, ROW, bra_arrays, integrals, ket_arrays
from trnqc.eri.kernels.variants import Variant
from trnqc.gen import Array, Value, Var
from trnqc.gen import statements as st
from trnqc.gen.values import le, maximum, minimum
from trnqc.jit import Recipe, Signature


def parameters(cls: QuartetClass) -> tuple[Value | Array, ...]:
    """Return the parameters of a writer, in order.

    `rows` is the number of vectors of ket pairs, and K that of primitive pairs.

    - begin, end: the range of bra pairs.
    - bra_count [pairs], bra [pairs, K, W], bra_centre [pairs, 6], bra_bound [pairs]: the bra pairs, see `ShellPairs`.
    - bra_place [pairs, copies, n_ab, ab]: their places.
    - ket_count [rows], ket [rows, K, W], ket_centre [rows, 6], ket_bound [rows, K + 1], row_bound [rows]: the ket
      pairs, see `PackedPairs`.
    - ket_place [rows, copies, n_cd, cd], of lanes: their places.
    - screen: quartets with bra_bound row_bound < screen are left out.
    - cutoff, omega, boys, work, out: the kernel's.
    - destination: the array.
    """
    i64 = {name: Var(name, "i64") for name in ("begin", "end", "bra_rows", "ket_rows", "copies", "n_ab", "n_cd")}
    a, b, c, d = cls.extents
    arrays = (
        *bra_arrays(cls),
        Array("bra_place", "i64", (None, i64["copies"], i64["n_ab"], a * b)),
        *ket_arrays(cls),
        Array("ket_place", "i64", (None, i64["copies"], i64["n_cd"], c * d), lanes=True),
    )
    screens = (Var("screen"), Var("cutoff"), Var("omega"))
    scratch = (
        Array("boys", "f64"),
        Array("work", "f64", lanes=True),
        Array("out", "f64", (None, i64["n_cd"], a * b, c * d), lanes=True),
        Array("destination", "f64"),
    )
    return (*i64.values(), *arrays, *screens, *scratch)


@dataclass(frozen=True)
class Writer:
    """The writer of a class. fitted: whether the ket is a density-fitting shell; triangular: as above."""

    cls: QuartetClass
    fitted: bool = False
    triangular: bool = False

    @property
    def name(self) -> str:
        return "write_" + self.cls.name + "_fitted" * self.fitted + "_triangular" * self.triangular

    @property
    def program(self) -> Recipe:
        signature = Signature.declared(self.name, parameters(self.cls), ("work", "out", "destination"))
        # The kernel of a fitting shell is called by nothing else.
        shared = () if self.fitted else parts(self.cls)
        return Recipe(self.name, (signature,), partial(_functions, self), __name__, parts=shared)


def _functions(writer: Writer) -> tuple[st.Function, ...]:
    return (writer_function(writer),)


def writer_function(writer: Writer, kernel: st.Function | None = None) -> st.Function:
    """Build the program; its groups are the vectors of ket pairs. kernel: by default the class's own."""
    cls = writer.cls
    args: dict[str, Any] = {st.name_of(p): p for p in parameters(cls)}
    call = integrals(cls, args, kernel or _kernel(writer))
    bound = args["bra_bound"][PAIR] * args["row_bound"][ROW]
    body = st.If(le(args["screen"], bound), st.block(call, _scatter(cls, args, writer.triangular)))
    # The loop over bra pairs is the inner one, because neighbours write to the same cache lines.
    pairs = st.loop(PAIR, args["end"], body, begin=args["begin"])
    return st.Function(
        writer.name,
        parameters(cls),
        st.block(pairs),
        group=ROW,
        title=f"({cls.digits[:2]}|{cls.digits[2:]}): integrals to their places",
    )


def _kernel(writer: Writer) -> st.Function:
    """Return the kernel; fitting shells of solid harmonics have a recurrence of their own."""
    if writer.fitted and not writer.cls.cartesian:
        return quartet_function(writer.cls, variant=Variant(rule=FITTED))
    return quartet_function(writer.cls)


def _scatter(cls: QuartetClass, args: dict[str, Any], triangular: bool) -> st.Statement:
    a, b, c, d = cls.extents
    p, q, ab, cd, copy, left = (Var(n, "i64") for n in ("p", "q", "ab", "cd", "copy", "left"))
    right = args["ket_place"][ROW, copy, q, cd]
    place = left + right
    if triangular:
        n, m = maximum(left, right), minimum(left, right)
        place = n * (n + 1) // 2 + m
    one = st.store(args["destination"][place], args["out"][p, q, ab, cd])
    each = st.block(
        st.Let(left, args["bra_place"][PAIR, copy, p, ab]),
        st.loop(q, args["n_cd"], st.loop(cd, c * d, one)),
    )
    return st.loop(copy, args["copies"], st.loop(p, args["n_ab"], st.loop(ab, a * b, each)))
