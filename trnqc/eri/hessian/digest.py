"""The digestion of integrals (i'v|cd), where i' is a function of the derivative basis, into matrices of one atom.

bra pair (i', v), vector of ket pairs -> bound -> kernel's block of integrals -> sums of J and K

Which sums are made depends on the kind of pass (passes.py).
"""

from __future__ import annotations

from functools import partial
from typing import Any

from trnqc.eri.classes import QuartetClass
from trnqc.eri.gradient.digest import BRA
from trnqc.eri.hessian.exchange_sums import SET, ExchangeSums
from trnqc.eri.hessian.passes import HessianPass
from trnqc.eri.kernels.quartet import parts
from trnqc.eri.kernels.rows import PAIR, ROW, bra_arrays, integrals, ket_arrays
from trnqc.gen import Array, Value, Var, const
from trnqc.gen import statements as st
from trnqc.gen.values import both, either, fma, le, lt, maximum
from trnqc.jit import Recipe, Signature

_SCALARS = ("bra_rows", "rows", "ket_rows", "n_ab", "n_cd", "n_d", "sets", "n_mixed", "n_ao", "n_v", "n_column")
_FLAGS = ("with_j", "with_k")
WRITTEN = ("work", "out", "j_pair", "j_atom", "k_pair", "k_atom")


def parameters(cls: QuartetClass) -> tuple[Value | Array, ...]:
    """Return the parameters of a digestion, in order.

    `sets` is the number of densities of K, `rows` that of vectors of ket pairs, K that of primitive pairs, `n_mixed`
    the functions of the derivative basis, `n_ao` those of the molecule, `n_v` those of the basis of v, and `n_column`
    the columns of `k_atom`.

    - bra_count [pairs], bra [pairs, K, W], bra_centre [pairs, 6], bra_bound [pairs]: the bra pairs, see `ShellPairs`.
    - ao_i, ao_v, shell_i, shell_v, bra_atom, first_row [pairs]: the first functions of i' and v, their shells, the atom
      of i', and the first vector of kets that the pair meets.
    - ket_count [rows], ket [rows, K, W], ket_centre [rows, 6], ket_bound [rows, K + 1], row_bound, row_atom [rows]: the
      ket pairs, see `PackedPairs`. Vectors whose row_atom is the pair's bra_atom are left out.
    - ao_c, ao_d, share [rows], of lanes: the first functions of c and d; the factor of the pair, 0 where a lane only
      fills up the vector.
    - bra_size [pairs], ket_size [rows]: their product bounds the densities that the quartets meet in J; near_i, near_v
      [shells, rows] by the shells of i' and v in k_atom, and far_i, far_v in k_pair.
    - weight [pairs, 3, n_ab, ab]: W_x of the bra pair; folded [rows, n_cd, cd], of lanes: share (D_cd + D_dc).
    - exchange [sets, 3, n_mixed, n_ao]: P_x; density [sets, n_ao, n_ao]: D.
    - screen: quartets whose bounds times the largest of these densities are smaller are left out.
    - cutoff, omega, boys, work, out: the kernel's.
    - j_pair [pairs, n_ab, ab] and j_atom [rows, 3, n_cd, cd], of lanes; k_pair [sets, n_mixed, n_mixed] and k_atom
      [sets, 3, n_v, n_column]: the sums, to which the digestion adds.
    """
    i64 = {name: Var(name, "i64") for name in (*_SCALARS, *_FLAGS, *BRA)}
    a, b, c, d = cls.extents
    n_ab, n_cd, n_mixed, n_ao = (i64[name] for name in ("n_ab", "n_cd", "n_mixed", "n_ao"))
    near = (None, i64["rows"])
    arrays: tuple[Value | Array, ...] = (
        *bra_arrays(cls),
        *(Array(name, "i64") for name in ("ao_i", "ao_v", "shell_i", "shell_v", "bra_atom", "first_row")),
        *ket_arrays(cls),
        Array("row_atom", "i64"),
        Array("ao_c", "i64", lanes=True),
        Array("ao_d", "i64", lanes=True),
        Array("share", "f64", lanes=True),
        Array("bra_size", "f64"),
        Array("ket_size", "f64"),
        *(Array(name, "f64", near) for name in ("near_i", "near_v", "far_i", "far_v")),
        Array("weight", "f64", (None, 3, n_ab, a * b)),
        Array("folded", "f64", (None, n_cd, c * d), lanes=True),
        Array("exchange", "f64", (None, 3, n_mixed, n_ao)),
        Array("density", "f64", (None, n_ao, n_ao)),
        Var("screen"),
        Var("cutoff"),
        Var("omega"),
        Array("boys", "f64"),
        Array("work", "f64", lanes=True),
        Array("out", "f64", (None, n_cd, a * b, c * d), lanes=True),
        Array("j_pair", "f64", (None, n_ab, a * b), lanes=True),
        Array("j_atom", "f64", (None, 3, n_cd, c * d), lanes=True),
        Array("k_pair", "f64", (None, n_mixed, n_mixed)),
        Array("k_atom", "f64", (None, 3, i64["n_v"], i64["n_column"])),
    )
    return (*i64.values(), *arrays)


def hessian_program(kind: HessianPass, cls: QuartetClass) -> Recipe:
    """Return the recipe of the digestion of a class in a kind of pass."""
    name = f"hessian_{kind.name}_{cls.name}"
    signature = Signature.declared(name, parameters(cls), WRITTEN)
    return Recipe(name, (signature,), partial(_functions, kind, cls, name), __name__, parts=parts(cls))


def _functions(kind: HessianPass, cls: QuartetClass, name: str) -> tuple[st.Function, ...]:
    return (digest_function(kind, cls, name),)


def digest_function(kind: HessianPass, cls: QuartetClass, name: str) -> st.Function:
    """Build the digestion of a class around its kernel; its groups are the bra pairs."""
    args: dict[str, Any] = {st.name_of(p): p for p in parameters(cls)}
    largest = Var("largest")
    with_j, with_k = (lt(0, args[name]) for name in _FLAGS)
    sums = [
        st.If(
            with_j,
            st.block(_add_j_pair(cls, args) if kind.j_pair else [], _add_j_atom(cls, args) if kind.j_atom else []),
        ),
        st.If(with_k, st.block(st.loop(SET, args["sets"], ExchangeSums(kind, cls, args).added()))),
    ]
    one, other = args["bra_atom"][PAIR], args["row_atom"][ROW]
    row = st.block(
        st.Declare(largest, const(0.0)),
        st.If(with_j, st.block(st.Assign(largest, args["bra_size"][PAIR] * args["ket_size"][ROW]))),
        st.If(with_k, st.block(st.Assign(largest, maximum(largest, _reach(kind, args))))),
        st.If(
            both(
                either(lt(one, other), lt(other, one)),
                le(args["screen"], args["bra_bound"][PAIR] * args["row_bound"][ROW] * largest),
            ),
            st.block(integrals(cls, args), sums),
        ),
    )
    body = st.block(st.loop(ROW, args["rows"], row, begin=args["first_row"][PAIR]))
    title = f"sums of the pass {kind.name} over ({cls.digits[:2]}|{cls.digits[2:]})"
    return st.Function(name, parameters(cls), body, group=PAIR, title=title)


def _reach(kind: HessianPass, args: dict[str, Any]) -> Value:
    """Return a bound of the densities that a quartet meets in K."""
    i, v = args["shell_i"][PAIR], args["shell_v"][PAIR]
    near = args["near_i"][i, ROW] * args["near_v"][v, ROW]
    return maximum(near, args["far_i"][i, ROW] * args["far_v"][v, ROW]) if kind.k_pair else near


def _add_j_pair(cls: QuartetClass, args: dict[str, Any]) -> st.Statement:
    p, q, ab, cd, total = Var("p", "i64"), Var("q", "i64"), Var("ab", "i64"), Var("cd", "i64"), Var("total")
    a, b, c, d = cls.extents
    term = fma(args["out"][p, q, ab, cd], args["folded"][ROW, q, cd], total)
    inner = st.loop(q, args["n_cd"], st.loop(cd, c * d, st.Assign(total, term)))
    one = [st.Declare(total, args["j_pair"][PAIR, p, ab]), inner, st.store(args["j_pair"][PAIR, p, ab], total)]
    return st.loop(p, args["n_ab"], st.loop(ab, a * b, one))


def _add_j_atom(cls: QuartetClass, args: dict[str, Any]) -> st.Statement:
    """Add the products of the bra's weights for x, y and z to the sums of each ket: straight-line code over d."""
    p, q, ab, n = (Var(name, "i64") for name in ("p", "q", "ab", "n"))
    a, b, c, d = cls.extents
    weights = [Var(f"weight_{x}") for x in range(3)]
    totals = {(x, m): Var(f"total_{x}_{m}") for x in range(3) for m in range(d)}
    places = {(x, m): args["j_atom"][ROW, x, q, n * d + m] for x, m in totals}
    lines: list[st.Statement] = [st.Let(w, args["weight"][PAIR, x, p, ab]) for x, w in enumerate(weights)]
    for m in range(d):
        value = Var(f"value_{m}")
        lines.append(st.Let(value, args["out"][p, q, ab, n * d + m]))
        lines += [st.Assign(totals[x, m], fma(value, w, totals[x, m])) for x, w in enumerate(weights)]
    body = [
        [st.Declare(total, places[key]) for key, total in totals.items()],
        st.loop(p, args["n_ab"], st.loop(ab, a * b, lines)),
        [st.store(places[key], total) for key, total in totals.items()],
    ]
    return st.loop(q, args["n_cd"], st.loop(n, c, body))
