"""Integrals of a class written out: one bra pair with rows of ket pairs, each integral to its places in an array.

bra pair, ket row -> bound -> kernel's block of integrals -> destination[bra place + ket place]

A place is an element of the destination, so any layout whose index is a sum over bra and ket will do: square, packed by
pairs, cut to a range of shells; `copies` of them give the images of an integral under the exchange of its indices.
`triangular` writes one copy to n (n + 1) / 2 + m instead, n and m the larger
and the smaller of the two places.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from trnqc.eri.classes import CONTRACTION, QuartetClass
from trnqc.eri.kernels.quartet import parts, quartet_function
from trnqc.eri.kernels.recurrence import FITTED
from trnqc.eri.kernels.variants import Variant
from trnqc.gen import Array, Value, Var
from trnqc.gen import statements as st
from trnqc.gen.values import le, maximum, minimum
from trnqc.jit import Recipe, Signature

PAIR, ROW = Var("pair", "i64"), Var("row", "i64")


def parameters(cls: QuartetClass) -> tuple[Value | Array, ...]:
    """Of a writer, in order; n_ab and n_cd are numbers of pairs of contractions, K of rows of records.

    begin, end: the bra pairs to take. bra_count i64 [pairs]: rows of records in use; bra [pairs, K, W]; bra_centre
    [pairs, 6]; bra_bound [pairs]; bra_place i64 [pairs, copies, n_ab ab]. ket_count i64 [rows]; ket [rows, K, W] lanes;
    ket_centre [rows, 6] lanes; ket_bound [rows, K + 1]: of records, over the lanes; row_bound [rows]; ket_place i64
    [rows, copies, n_cd cd] lanes.
    Quartets with bra_bound row_bound < screen are not touched. cutoff, omega, boys, work, out: the kernel's.
    """
    i64 = {name: Var(name, "i64") for name in ("begin", "end", "bra_rows", "ket_rows", "copies", "n_ab", "n_cd")}
    wide = CONTRACTION + (i64["n_ab"] if cls.general else 0), CONTRACTION + (i64["n_cd"] if cls.general else 0)
    a, b, c, d = cls.extents
    arrays = (
        Array("bra_count", "i64"),
        Array("bra", "f64", (None, i64["bra_rows"], wide[0])),
        Array("bra_centre", "f64", (None, 6)),
        Array("bra_bound", "f64"),
        Array("bra_place", "i64", (None, i64["copies"], i64["n_ab"], a * b)),
        Array("ket_count", "i64"),
        Array("ket", "f64", (None, i64["ket_rows"], wide[1]), lanes=True),
        Array("ket_centre", "f64", (None, 6), lanes=True),
        Array("ket_bound", "f64", (None, i64["ket_rows"] + 1)),
        Array("row_bound", "f64"),
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
    """The writer of a class. fitted: the ket is a density-fitting shell, not a pair; triangular: see above."""

    cls: QuartetClass
    fitted: bool = False
    triangular: bool = False

    @property
    def name(self) -> str:
        return "write_" + self.cls.name + "_fitted" * self.fitted + "_triangular" * self.triangular

    @property
    def program(self) -> Recipe:
        signature = Signature.declared(self.name, parameters(self.cls), ("work", "out", "destination"))
        # A fitting shell has a kernel of its own, which nothing else calls.
        shared = () if self.fitted else parts(self.cls)
        return Recipe(self.name, (signature,), partial(_functions, self), __name__, parts=shared)


def _functions(writer: Writer) -> tuple[st.Function, ...]:
    return (writer_function(writer),)


def writer_function(writer: Writer, kernel: st.Function | None = None) -> st.Function:
    """The program; its groups are the rows. kernel: of the class, by default its own."""
    cls = writer.cls
    given: dict[str, Any] = {st.name_of(p): p for p in parameters(cls)}
    call = st.Call(kernel or _kernel(writer), (
        given["bra_count"][PAIR], st.view(given["bra"][PAIR, 0, 0]), st.view(given["bra_centre"][PAIR, 0]),
        given["ket_count"][ROW], st.view(given["ket"][ROW, 0, 0]), st.view(given["ket_centre"][ROW, 0]),
        st.view(given["ket_bound"][ROW, 0]),
        *(given[n] for n in ("n_ab", "n_cd", "cutoff", "omega", "boys", "work", "out")),
    ))  # fmt: skip
    bound = given["bra_bound"][PAIR] * given["row_bound"][ROW]
    body = st.If(le(given["screen"], bound), st.block(call, _scatter(cls, given, writer.triangular)))
    # Pairs are the inner loop because neighbours have neighbouring places, in lines of cache that a row just wrote to.
    pairs = st.loop(PAIR, given["end"], body, begin=given["begin"])
    return st.Function(
        writer.name, parameters(cls), st.block(pairs), group=ROW,
        title=f"({cls.digits[:2]}|{cls.digits[2:]}): integrals to their places",
    )  # fmt: skip


def _kernel(writer: Writer) -> st.Function:
    """Fitting shells of solid harmonics have a recurrence of their own."""
    if writer.fitted and not writer.cls.cartesian:
        return quartet_function(writer.cls, variant=Variant(rule=FITTED))
    return quartet_function(writer.cls)


def _scatter(cls: QuartetClass, given: dict[str, Any], triangular: bool) -> st.Statement:
    a, b, c, d = cls.extents
    p, q, ab, cd, copy, left = (Var(n, "i64") for n in ("p", "q", "ab", "cd", "copy", "left"))
    right = given["ket_place"][ROW, copy, q, cd]
    place = left + right
    if triangular:
        n, m = maximum(left, right), minimum(left, right)
        place = n * (n + 1) // 2 + m
    one = st.store(given["destination"][place], given["out"][p, q, ab, cd])
    each = st.block(
        st.Let(left, given["bra_place"][PAIR, copy, p, ab]),
        st.loop(q, given["n_cd"], st.loop(cd, c * d, one)),
    )
    return st.loop(copy, given["copies"], st.loop(p, given["n_ab"], st.loop(ab, a * b, each)))
