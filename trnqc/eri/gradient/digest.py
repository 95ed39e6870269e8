"""The digestion of a mixed basis: integrals (i'j|kl) added to J and K of the first index.

bra pair (i', j), vector of ket pairs -> bound -> kernel's block of integrals -> J[i', j], K[i', k], K[i', l]

Since i' belongs to another basis than j, k and l, an integral contributes to no other elements.
"""

from __future__ import annotations

from functools import partial
from typing import Any

from trnqc.eri.classes import QuartetClass
from trnqc.eri.kernels.rows import PAIR, ROW, bra_arrays, integrals, ket_arrays
from trnqc.gen import Array, Value, Var, const
from trnqc.gen import statements as st
from trnqc.gen.values import fma, le, lt, maximum
from trnqc.jit import Recipe, Signature

SET = Var("set", "i64")
_SCALARS = ("bra_rows", "rows", "ket_rows", "n_ab", "n_cd", "n_d", "sets", "n_mixed", "n_ao", "with_j", "with_k")
# How the bra's two indices lie in a block: functions of a contraction, contractions, and the strides of both.
BRA = ("n_i", "n_j", "step_i", "step_j", "contractions_i", "contractions_j", "stride_i", "stride_j")


def parameters(cls: QuartetClass) -> tuple[Value | Array, ...]:
    """Return the parameters of a digestion, in order.

    `sets` is the number of densities, `rows` that of vectors of ket pairs, and K that of primitive pairs.

    - bra_count [pairs], bra [pairs, K, W], bra_centre [pairs, 6], bra_bound [pairs]: the bra pairs, see `ShellPairs`.
    - ao_i, ao_j, shell_j [pairs]: the first functions of i' and j, and the shell of j.
    - ket_count [rows], ket [rows, K, W], ket_centre [rows, 6], ket_bound [rows, K + 1], row_bound [rows]: the ket
      pairs, see `PackedPairs`.
    - ao_c, ao_d [rows], of lanes: the first functions of k and l.
    - share [rows], of lanes: 1, or 1/2 where k and l are one shell, or 0 on a lane that only fills up the vector.
    - density [sets, n_ao, n_ao]: D.
    - folded [sets, rows, n_cd, cd], of lanes: share (D_cd + D_dc); far [rows]: the largest of these.
    - near [shells, rows]: the largest |D_jc| or |D_jd|, by the shell of j.
    - screen: quartets whose bounds times the largest of these densities are smaller are left out.
    - cutoff, omega, boys, work, out: the kernel's; sums [sets, n_ab, ab], of lanes: scratch memory.
    - vj, vk [sets, n_mixed, n_ao]: (i'j|kl) D_lk is added to vj, and (i'j|kl) D_jk to vk.
    """
    i64 = {name: Var(name, "i64") for name in (*_SCALARS, *BRA)}
    a, b, c, d = cls.extents
    matrix = (None, i64["n_mixed"], i64["n_ao"])
    arrays: tuple[Value | Array, ...] = (
        *bra_arrays(cls),
        Array("ao_i", "i64"),
        Array("ao_j", "i64"),
        Array("shell_j", "i64"),
        *ket_arrays(cls),
        Array("ao_c", "i64", lanes=True),
        Array("ao_d", "i64", lanes=True),
        Array("share", "f64", lanes=True),
        Array("density", "f64", (None, i64["n_ao"], i64["n_ao"])),
        Array("folded", "f64", (None, i64["rows"], i64["n_cd"], c * d), lanes=True),
        Array("far", "f64"),
        Array("near", "f64", (None, i64["rows"])),
        Var("screen"),
        Var("cutoff"),
        Var("omega"),
        Array("boys", "f64"),
        Array("work", "f64", lanes=True),
        Array("out", "f64", (None, i64["n_cd"], a * b, c * d), lanes=True),
        Array("sums", "f64", (None, i64["n_ab"], a * b), lanes=True),
        Array("vj", "f64", matrix),
        Array("vk", "f64", matrix),
    )
    return (*i64.values(), *arrays)


WRITTEN = ("work", "out", "sums", "vj", "vk")


def mixed_basis_program(cls: QuartetClass) -> Recipe:
    """Return the recipe of the digestion of a class."""
    name = f"mixed_{cls.name}"
    return Recipe(name, (Signature.declared(name, parameters(cls), WRITTEN),), partial(_functions, cls), __name__)


def _functions(cls: QuartetClass) -> tuple[st.Function, ...]:
    return (digest_function(cls),)


def digest_function(cls: QuartetClass) -> st.Function:
    """The digestion of a class around its kernel; its groups are the bra pairs."""
    args: dict[str, Any] = {st.name_of(p): p for p in parameters(cls)}
    call = integrals(cls, args)
    largest = Var("largest")
    with_j, with_k = (lt(0, args[name]) for name in ("with_j", "with_k"))
    row = st.block(
        st.Declare(largest, const(0.0)),
        st.If(with_j, st.block(st.Assign(largest, args["far"][ROW]))),
        st.If(with_k, st.block(st.Assign(largest, maximum(largest, args["near"][args["shell_j"][PAIR], ROW])))),
        st.If(
            le(args["screen"], args["bra_bound"][PAIR] * args["row_bound"][ROW] * largest),
            st.block(
                call,
                st.loop(
                    SET,
                    args["sets"],
                    st.If(with_j, st.block(_add_j(cls, args))),
                    st.If(with_k, st.block(_add_k(cls, args))),
                ),
            ),
        ),
    )
    body = st.block(_clear_j(cls, args), st.loop(ROW, args["rows"], row), st.If(with_j, st.block(_put_j(args))))
    title = f"J and K of the first of ({cls.digits[:2]}|{cls.digits[2:]})"
    return st.Function(f"mixed_{cls.name}", parameters(cls), body, group=PAIR, title=title)


def _clear_j(cls: QuartetClass, args: dict[str, Any]) -> st.Statement:
    p, ab = Var("p", "i64"), Var("ab", "i64")
    a, b, _, _ = cls.extents
    zero = st.store(args["sums"][SET, p, ab], 0.0)
    return st.loop(SET, args["sets"], st.loop(p, args["n_ab"], st.loop(ab, a * b, zero)))


def _add_j(cls: QuartetClass, args: dict[str, Any]) -> st.Statement:
    """Add to the sums of each lane, which are added up once for each bra pair."""
    p, q, ab, cd, total = Var("p", "i64"), Var("q", "i64"), Var("ab", "i64"), Var("cd", "i64"), Var("total")
    a, b, c, d = cls.extents
    term = fma(args["out"][p, q, ab, cd], args["folded"][SET, ROW, q, cd], total)
    inner = st.loop(q, args["n_cd"], st.loop(cd, c * d, st.Assign(total, term)))
    one = [st.Declare(total, args["sums"][SET, p, ab]), inner, st.store(args["sums"][SET, p, ab], total)]
    return st.loop(p, args["n_ab"], st.loop(ab, a * b, one))


def _put_j(args: dict[str, Any]) -> st.Statement:
    i, j, ci, cj = (Var(n, "i64") for n in ("i", "j", "ci", "cj"))
    p = ci * args["stride_i"] + cj * args["stride_j"]
    ab = i * args["step_i"] + j * args["step_j"]
    row = args["ao_i"][PAIR] + ci * args["n_i"] + i
    column = args["ao_j"][PAIR] + cj * args["n_j"] + j
    put = st.accumulate(args["vj"][SET, row, column], args["sums"][SET, p, ab])
    inside = st.loop(i, args["n_i"], st.loop(j, args["n_j"], put))
    return st.loop(SET, args["sets"], st.loop(ci, args["contractions_i"], st.loop(cj, args["contractions_j"], inside)))


def _add_k(cls: QuartetClass, args: dict[str, Any]) -> st.Statement:
    """Add (i'j|cd) D_jc to K[i', d] and (i'j|cd) D_jd to K[i', c], for one pair of contractions at a time."""
    a, b, c, d = cls.extents
    i, j, ci, cj, q = (Var(n, "i64") for n in ("i", "j", "ci", "cj", "q"))
    first_c, first_d, start = (Var(n, "i64") for n in ("first_c", "first_d", "start"))
    row_c, row_d = (Array(n, "f64", (e,), "local", lanes=True) for n, e in (("row_c", c), ("row_d", d)))
    high = max(a, b)
    sum_c, sum_d = (Array(n, "f64", (high, e), "local", lanes=True) for n, e in (("sum_c", c), ("sum_d", d)))
    n = Var("n", "i64")
    clear = [
        st.loop(i, args["n_i"], st.loop(n, extent, st.store(array[i, n], 0.0)))
        for array, extent in ((sum_c, c), (sum_d, d))
    ]
    density = [
        st.Let(start, ((SET * args["n_ao"] + args["ao_j"][PAIR] + cj * args["n_j"] + j) * args["n_ao"])),
        st.GatherRows(row_c, args["density"], start + first_c, const(c, "i64")),
        st.GatherRows(row_d, args["density"], start + first_d, const(d, "i64")),
    ]
    one = _products(cls, args, i, j, (ci, cj, q), (row_c, row_d, sum_c, sum_d))
    scatter = [
        [
            st.loop(n, extent, st.store(row[n], sums[i, n] * args["share"][ROW])),
            st.ScatterRows(args["vk"], row, start + first, const(extent, "i64")),
        ]
        for row, sums, first, extent in ((row_c, sum_c, first_c, c), (row_d, sum_d, first_d, d))
    ]
    place = (SET * args["n_mixed"] + args["ao_i"][PAIR] + ci * args["n_i"] + i) * args["n_ao"]
    sweep = [
        clear,
        st.loop(cj, args["contractions_j"], st.loop(j, args["n_j"], density, st.loop(i, args["n_i"], one))),
        st.loop(i, args["n_i"], st.Let(start, place), scatter),
    ]
    firsts = [
        st.Let(first_c, args["ao_c"][ROW] + q // args["n_d"] * c),
        st.Let(first_d, args["ao_d"][ROW] + q % args["n_d"] * d),
    ]
    return st.block(
        [st.DeclareArray(array) for array in (row_c, row_d, sum_c, sum_d)],
        st.loop(q, args["n_cd"], firsts, st.loop(ci, args["contractions_i"], sweep)),
    )


def _products(
    cls: QuartetClass,
    args: dict[str, Any],
    i: Value,
    j: Value,
    contractions: tuple[Value, Value, Value],
    arrays: tuple[Array, Array, Array, Array],
) -> st.Statement:
    """Digest one i' and j: a loop over c with straight-line code over d."""
    _, _, c, d = cls.extents
    ci, cj, q = contractions
    row_c, row_d, sum_c, sum_d = arrays
    n = Var("n", "i64")
    p = ci * args["stride_i"] + cj * args["stride_j"]
    ab = i * args["step_i"] + j * args["step_j"]
    totals, own, weight = [Var(f"total_{m}") for m in range(d)], Var("own"), Var("weight")
    integrals = [args["out"][p, q, ab, n * d + m] for m in range(d)]
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
