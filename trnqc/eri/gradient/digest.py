"""One-sided digestion: integrals (i'j|kl) of a mixed basis into J and K of its first index.

bra pair (i', j), row of ket pairs -> bound -> kernel's block of integrals -> J[i', j], K[i', k], K[i', l]

The bra's functions i' belong to another basis than j, k and l, so no other element of J and K has a share.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from trnqc.eri.classes import CONTRACTION, QuartetClass
from trnqc.eri.kernels.quartet import quartet_function
from trnqc.gen import Array, Value, Var, const
from trnqc.gen import statements as st
from trnqc.gen.values import fma, le, lt, maximum
from trnqc.jit import Recipe, Signature

PAIR, ROW, SET = Var("pair", "i64"), Var("row", "i64"), Var("set", "i64")
_SCALARS = ("bra_rows", "rows", "ket_rows", "n_ab", "n_cd", "n_d", "sets", "n_mixed", "n_ao", "with_j", "with_k")
# How the bra's two indices lie in a block: functions of a contraction, contractions, and the strides of both.
BRA = ("n_i", "n_j", "step_i", "step_j", "contractions_i", "contractions_j", "stride_i", "stride_j")


def parameters(cls: QuartetClass) -> tuple[Value | Array, ...]:
    """Of a digestion, in order; n_ab and n_cd are numbers of pairs of contractions, K of rows of records.

    bra_count i64 [pairs]: rows of records in use; bra [pairs, K, W]; bra_centre [pairs, 6]; bra_bound [pairs]; ao_i,
    ao_j i64 [pairs]: first functions; shell_j i64 [pairs]. ket_count i64 [rows]; ket [rows, K, W] lanes; ket_centre
    [rows, 6] lanes; ket_bound [rows, K + 1]: of records, over the lanes; row_bound [rows]; ao_c, ao_d i64 [rows] lanes;
    share [rows] lanes: 1, 1/2 where k and l are one shell, 0 where a lane is filled up.
    density [sets, n_ao, n_ao]; folded [sets, rows, n_cd, cd] lanes: share (D_cd + D_dc); far [rows]: the largest of
    these; near [shells, rows]: the largest |D_jc| or |D_jd|. Quartets below `screen` by bounds and density are left
    out. cutoff, omega, boys, work, out: the kernel's. sums [sets, n_ab, ab] lanes: scratch.
    Added to: vj [sets, n_mixed, n_ao] += (i'j|kl) D_lk, vk [sets, n_mixed, n_ao] += (i'j|kl) D_jk.
    """
    i64 = {name: Var(name, "i64") for name in (*_SCALARS, *BRA)}
    wide = CONTRACTION + (i64["n_ab"] if cls.general else 0), CONTRACTION + (i64["n_cd"] if cls.general else 0)
    a, b, c, d = cls.extents
    matrix = (None, i64["n_mixed"], i64["n_ao"])
    arrays = (
        Array("bra_count", "i64"), Array("bra", "f64", (None, i64["bra_rows"], wide[0])),
        Array("bra_centre", "f64", (None, 6)), Array("bra_bound", "f64"),
        Array("ao_i", "i64"), Array("ao_j", "i64"), Array("shell_j", "i64"),
        Array("ket_count", "i64"), Array("ket", "f64", (None, i64["ket_rows"], wide[1]), lanes=True),
        Array("ket_centre", "f64", (None, 6), lanes=True), Array("ket_bound", "f64", (None, i64["ket_rows"] + 1)),
        Array("row_bound", "f64"), Array("ao_c", "i64", lanes=True), Array("ao_d", "i64", lanes=True),
        Array("share", "f64", lanes=True),
        Array("density", "f64", (None, i64["n_ao"], i64["n_ao"])),
        Array("folded", "f64", (None, i64["rows"], i64["n_cd"], c * d), lanes=True),
        Array("far", "f64"), Array("near", "f64", (None, i64["rows"])),
        Var("screen"), Var("cutoff"), Var("omega"), Array("boys", "f64"), Array("work", "f64", lanes=True),
        Array("out", "f64", (None, i64["n_cd"], a * b, c * d), lanes=True),
        Array("sums", "f64", (None, i64["n_ab"], a * b), lanes=True),
        Array("vj", "f64", matrix), Array("vk", "f64", matrix),
    )  # fmt: skip
    return (*i64.values(), *arrays)


WRITTEN = ("work", "out", "sums", "vj", "vk")


def program(cls: QuartetClass) -> Recipe:
    """The digestion of a class, to be compiled."""
    name = f"mixed_{cls.name}"
    return Recipe(name, (Signature.declared(name, parameters(cls), WRITTEN),), partial(_functions, cls), __name__)


def _functions(cls: QuartetClass) -> tuple[st.Function, ...]:
    return (digest_function(cls),)


def digest_function(cls: QuartetClass) -> st.Function:
    """The digestion of a class around its kernel; its groups are the bra pairs."""
    given: dict[str, Any] = {st.name_of(p): p for p in parameters(cls)}
    call = st.Call(quartet_function(cls), (
        given["bra_count"][PAIR], st.view(given["bra"][PAIR, 0, 0]), st.view(given["bra_centre"][PAIR, 0]),
        given["ket_count"][ROW], st.view(given["ket"][ROW, 0, 0]), st.view(given["ket_centre"][ROW, 0]),
        st.view(given["ket_bound"][ROW, 0]),
        *(given[n] for n in ("n_ab", "n_cd", "cutoff", "omega", "boys", "work", "out")),
    ))  # fmt: skip
    largest = Var("largest")
    with_j, with_k = (lt(0, given[name]) for name in ("with_j", "with_k"))
    row = st.block(
        st.Declare(largest, const(0.0)),
        st.If(with_j, st.block(st.Assign(largest, given["far"][ROW]))),
        st.If(with_k, st.block(st.Assign(largest, maximum(largest, given["near"][given["shell_j"][PAIR], ROW])))),
        st.If(
            le(given["screen"], given["bra_bound"][PAIR] * given["row_bound"][ROW] * largest),
            st.block(
                call,
                st.loop(
                    SET, given["sets"],
                    st.If(with_j, st.block(_add_j(cls, given))),
                    st.If(with_k, st.block(_add_k(cls, given))),
                ),
            ),
        ),
    )  # fmt: skip
    body = st.block(_clear_j(cls, given), st.loop(ROW, given["rows"], row), st.If(with_j, st.block(_put_j(given))))
    title = f"J and K of the first of ({cls.digits[:2]}|{cls.digits[2:]})"
    return st.Function(f"mixed_{cls.name}", parameters(cls), body, group=PAIR, title=title)


def _clear_j(cls: QuartetClass, given: dict[str, Any]) -> st.Statement:
    p, ab = Var("p", "i64"), Var("ab", "i64")
    a, b, _, _ = cls.extents
    zero = st.store(given["sums"][SET, p, ab], 0.0)
    return st.loop(SET, given["sets"], st.loop(p, given["n_ab"], st.loop(ab, a * b, zero)))


def _add_j(cls: QuartetClass, given: dict[str, Any]) -> st.Statement:
    """Each lane's own sums; they are added up once a bra pair."""
    p, q, ab, cd, total = Var("p", "i64"), Var("q", "i64"), Var("ab", "i64"), Var("cd", "i64"), Var("total")
    a, b, c, d = cls.extents
    term = fma(given["out"][p, q, ab, cd], given["folded"][SET, ROW, q, cd], total)
    inner = st.loop(q, given["n_cd"], st.loop(cd, c * d, st.Assign(total, term)))
    one = [st.Declare(total, given["sums"][SET, p, ab]), inner, st.store(given["sums"][SET, p, ab], total)]
    return st.loop(p, given["n_ab"], st.loop(ab, a * b, one))


def _put_j(given: dict[str, Any]) -> st.Statement:
    i, j, ci, cj = (Var(n, "i64") for n in ("i", "j", "ci", "cj"))
    p = ci * given["stride_i"] + cj * given["stride_j"]
    ab = i * given["step_i"] + j * given["step_j"]
    row = given["ao_i"][PAIR] + ci * given["n_i"] + i
    column = given["ao_j"][PAIR] + cj * given["n_j"] + j
    put = st.accumulate(given["vj"][SET, row, column], given["sums"][SET, p, ab])
    inside = st.loop(i, given["n_i"], st.loop(j, given["n_j"], put))
    return st.loop(
        SET, given["sets"], st.loop(ci, given["contractions_i"], st.loop(cj, given["contractions_j"], inside))
    )


def _add_k(cls: QuartetClass, given: dict[str, Any]) -> st.Statement:
    """K[i', d] += (i'j|cd) D_jc and K[i', c] += (i'j|cd) D_jd, for a pair of contractions of each side at a time."""
    a, b, c, d = cls.extents
    i, j, ci, cj, q = (Var(n, "i64") for n in ("i", "j", "ci", "cj", "q"))
    first_c, first_d, start = (Var(n, "i64") for n in ("first_c", "first_d", "start"))
    row_c, row_d = (Array(n, "f64", (e,), "local", lanes=True) for n, e in (("row_c", c), ("row_d", d)))
    high = max(a, b)
    sum_c, sum_d = (Array(n, "f64", (high, e), "local", lanes=True) for n, e in (("sum_c", c), ("sum_d", d)))
    n = Var("n", "i64")
    clear = [
        st.loop(i, given["n_i"], st.loop(n, extent, st.store(array[i, n], 0.0)))
        for array, extent in ((sum_c, c), (sum_d, d))
    ]
    density = [
        st.Let(start, ((SET * given["n_ao"] + given["ao_j"][PAIR] + cj * given["n_j"] + j) * given["n_ao"])),
        st.GatherRows(row_c, given["density"], start + first_c, const(c, "i64")),
        st.GatherRows(row_d, given["density"], start + first_d, const(d, "i64")),
    ]
    one = _products(cls, given, i, j, (ci, cj, q), (row_c, row_d, sum_c, sum_d))
    scatter = [
        [
            st.loop(n, extent, st.store(row[n], sums[i, n] * given["share"][ROW])),
            st.ScatterRows(given["vk"], row, start + first, const(extent, "i64")),
        ]
        for row, sums, first, extent in ((row_c, sum_c, first_c, c), (row_d, sum_d, first_d, d))
    ]
    place = (SET * given["n_mixed"] + given["ao_i"][PAIR] + ci * given["n_i"] + i) * given["n_ao"]
    sweep = [
        clear,
        st.loop(cj, given["contractions_j"], st.loop(j, given["n_j"], density, st.loop(i, given["n_i"], one))),
        st.loop(i, given["n_i"], st.Let(start, place), scatter),
    ]
    firsts = [
        st.Let(first_c, given["ao_c"][ROW] + q // given["n_d"] * c),
        st.Let(first_d, given["ao_d"][ROW] + q % given["n_d"] * d),
    ]
    return st.block(
        [st.DeclareArray(array) for array in (row_c, row_d, sum_c, sum_d)],
        st.loop(q, given["n_cd"], firsts, st.loop(ci, given["contractions_i"], sweep)),
    )


def _products(
    cls: QuartetClass,
    given: dict[str, Any],
    i: Value,
    j: Value,
    contractions: tuple[Value, Value, Value],
    arrays: tuple[Array, Array, Array, Array],
) -> st.Statement:
    """One i' and j: a loop over c around straight lines over d."""
    _, _, c, d = cls.extents
    ci, cj, q = contractions
    row_c, row_d, sum_c, sum_d = arrays
    n = Var("n", "i64")
    p = ci * given["stride_i"] + cj * given["stride_j"]
    ab = i * given["step_i"] + j * given["step_j"]
    totals, own, weight = [Var(f"total_{m}") for m in range(d)], Var("own"), Var("weight")
    integrals = [given["out"][p, q, ab, n * d + m] for m in range(d)]
    lines: list[st.Statement] = [st.Let(weight, row_c[n]), st.Declare(own, sum_c[i, n])]
    for m in range(d):
        lines += [
            st.Assign(totals[m], fma(integrals[m], weight, totals[m])),
            st.Assign(own, fma(integrals[m], row_d[m], own)),
        ]
    lines.append(st.store(sum_c[i, n], own))
    return st.block(
        [st.Declare(total, sum_d[i, m]) for m, total in enumerate(totals)],
        st.loop(n, c, lines),
        [st.store(sum_d[i, m], total) for m, total in enumerate(totals)],
    )
