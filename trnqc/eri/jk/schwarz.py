"""Schwarz bounds sqrt(max |(ab|ab)|) of pairs, computed by the kernels with the same pair as bra and as ket.

|(ab|cd)| <= sqrt((ab|ab)) sqrt((cd|cd)) holds for 1/r, erf(omega r)/r and erfc(omega r)/r: they are positive operators.
"""

from __future__ import annotations

from trnqc.eri.classes import CONTRACTION, QuartetClass
from trnqc.eri.kernels import boys
from trnqc.eri.kernels.quartet import quartet_function
from trnqc.gen import Array, Value, Var, const
from trnqc.gen import statements as st
from trnqc.gen.values import maximum, sqrt
from trnqc.jit import Signature

_ROWS, _N_AB, _OMEGA, _PAIR = Var("rows", "i64"), Var("n_ab", "i64"), Var("omega"), Var("pair", "i64")


def _arrays(cls: QuartetClass) -> dict[str, Array]:
    """Return records [pairs, rows, W], centre [pairs, 6], count, bound [pairs], ones [rows + 1], lane and scratch."""
    wide = _N_AB + CONTRACTION if cls.general else CONTRACTION
    na, nb, _, _ = cls.extents
    arrays = (
        Array("records", "f64", (None, _ROWS, wide)),
        Array("centre", "f64", (None, 6)),
        Array("count", "i64"),
        Array("ones", "f64", (_ROWS + 1,)),
        boys.table_array(cls.order),
        Array("lane", "i64", (1,), lanes=True),
        Array("bound", "f64"),
        Array("lanes_ket", "f64", (_ROWS, wide), lanes=True),
        Array("lanes_centre", "f64", (6,), lanes=True),
        Array("work", "f64", lanes=True),
        Array("out", "f64", (_N_AB, _N_AB, na * nb, na * nb), lanes=True),
    )
    return {a.name: a for a in arrays}


def _parameters(cls: QuartetClass) -> tuple[Value | Array, ...]:
    return (_ROWS, _N_AB, _OMEGA, *_arrays(cls).values())


def signature(cls: QuartetClass) -> Signature:
    """Return the signature of `bounds`."""
    written = ("bound", "lanes_ket", "lanes_centre", "work", "out")
    return Signature.declared(f"schwarz_{cls.name}", _parameters(cls), written)


def bounds(cls: QuartetClass, kernel: st.Function | None = None) -> st.Function:
    """Build the function; its groups are the pairs. kernel: by default the class's own."""
    a, at, largest = _arrays(cls), Var("at", "i64"), Var("largest")
    na, nb, _, _ = cls.extents
    wide = _N_AB + CONTRACTION if cls.general else CONTRACTION
    p, ab, used = Var("p", "i64"), Var("ab", "i64"), Var("used", "i64")
    call = st.call(
        kernel or quartet_function(cls),
        n_bra=used,
        bra=st.view(a["records"][_PAIR, 0, 0]),
        bra_centre=st.view(a["centre"][_PAIR, 0]),
        n_ket=used,
        ket=a["lanes_ket"],
        ket_centre=a["lanes_centre"],
        ket_bound=a["ones"],
        n_ab=_N_AB,
        n_cd=_N_AB,
        cutoff=0.0,
        omega=_OMEGA,
        **{name: a[name] for name in ("boys", "work", "out")},
    )
    body = st.block(
        st.Let(used, a["count"][_PAIR]),
        # The same pair on every lane.
        st.Let(at, a["lane"][0] * 0 + _PAIR),
        st.GatherRows(a["lanes_ket"], a["records"], at * (_ROWS * wide), used * wide),
        st.GatherRows(a["lanes_centre"], a["centre"], at * 6, const(6, "i64")),
        call,
        st.Declare(largest, const(0.0)),
        st.loop(p, _N_AB, st.loop(ab, na * nb, st.Assign(largest, maximum(a["out"][p, p, ab, ab], largest)))),
        st.store(a["bound"][at], sqrt(largest)),
    )
    return st.Function(f"schwarz_{cls.name}", _parameters(cls), body, group=_PAIR, title="Schwarz bounds")
