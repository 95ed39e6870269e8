"""The program of a class: contracted derivatives of all pairs (ab| with all fitting shells P of a block.

bra pair, vector of fitting shells -> bound -> kernel (three_centre_quartet.py) -> derivatives by the centres
"""

from __future__ import annotations

from functools import partial
from typing import Any

from trnqc.eri.classes import CONTRACTION
from trnqc.eri.gradient.three_centre_classes import GradientClass
from trnqc.eri.gradient.three_centre_quartet import quartet_gradient
from trnqc.eri.kernels import boys
from trnqc.gen import Array, Value, Var
from trnqc.gen import statements as st
from trnqc.gen.values import le
from trnqc.jit import Recipe, Signature

PAIR, ROW = Var("pair", "i64"), Var("row", "i64")
_SCALARS = ("bra_rows", "ket_rows", "rows", "n_ab", "n_b", "step_a", "step_b", "mirror_a", "mirror_b")
WRITTEN = ("work", "bra_gradient", "ket_gradient")


def three_centre_program(cls: GradientClass) -> Recipe:
    """Return the recipe of the program of a class."""
    signature = Signature.declared(cls.name, parameters(cls), WRITTEN)
    return Recipe(cls.name, (signature,), partial(_functions, cls), __name__)


def parameters(cls: GradientClass) -> tuple[Value | Array, ...]:
    """Return the parameters of a program, in order.

    `rows` is the number of vectors of fitting shells, and K that of primitives.

    - n_ab, n_b: pairs of contractions, and contractions of b.
    - step_a, step_b: what one function a, or b, adds to the position of a weight; mirror_a, mirror_b: the same for the
      second weight that is added, which is that of (ba|P).
    - bra_count [pairs], bra [pairs, K, W], bra_centre [pairs, 6], bra_bound [pairs], ao_a, ao_b [pairs]: the bra pairs,
      see `ShellPairs`; the last column of a record is 2 alpha. factor [pairs]: of the two weights.
    - ket_count [rows], ket [rows, K, 6], ket_centre [rows, 6], ket_bound [rows, K + 1], row_bound [rows]: the fitting
      shells, see `PackedPairs`; ket_place [rows], of lanes: the position of their first function.
    - density: Gamma, with the functions of a fitting shell next to one another.
    - screen: quartets with bra_bound row_bound < screen are left out; cutoff: the same for primitive quartets.
    - omega, boys: as for a quartet kernel; work, of lanes: memory of `work_size` elements.
    - bra_gradient [pairs, 6]: derivatives by A and B are added; ket_gradient [rows, 3], of lanes: those by P.
    """
    i64 = {name: Var(name, "i64") for name in _SCALARS}
    arrays = (
        Array("bra_count", "i64"),
        Array("bra", "f64", (None, i64["bra_rows"], cls.record_width(i64["n_ab"]))),
        Array("bra_centre", "f64", (None, 6)),
        Array("bra_bound", "f64"),
        Array("ao_a", "i64"),
        Array("ao_b", "i64"),
        Array("factor", "f64"),
        Array("ket_count", "i64"),
        Array("ket", "f64", (None, i64["ket_rows"], CONTRACTION), lanes=True),
        Array("ket_centre", "f64", (None, 6), lanes=True),
        Array("ket_bound", "f64", (None, i64["ket_rows"] + 1)),
        Array("row_bound", "f64"),
        Array("ket_place", "i64", lanes=True),
        Array("density", "f64"),
    )
    rest = (
        boys.table_array(cls.order),
        Array("work", "f64", lanes=True),
        Array("bra_gradient", "f64", (None, 6)),
        Array("ket_gradient", "f64", (None, 3), lanes=True),
    )
    return (*i64.values(), *arrays, Var("screen"), Var("cutoff"), Var("omega"), *rest)


def _functions(cls: GradientClass) -> tuple[st.Function, ...]:
    return (gradient_function(cls),)


def gradient_function(cls: GradientClass) -> st.Function:
    """Build the program of a class; its groups are the bra pairs."""
    args: dict[str, Any] = {st.name_of(p): p for p in parameters(cls)}
    sums = Array("sums", "f64", (6,), "local", lanes=True)
    kernel = quartet_gradient(cls)
    shared = ("step_a", "step_b", "mirror_a", "mirror_b", "n_ab", "n_b", "density", "cutoff", "omega", "boys", "work")
    call = st.call(
        kernel,
        n_bra=args["bra_count"][PAIR],
        bra=st.view(args["bra"][PAIR, 0, 0]),
        bra_centre=st.view(args["bra_centre"][PAIR, 0]),
        first_a=args["ao_a"][PAIR],
        first_b=args["ao_b"][PAIR],
        weight=args["factor"][PAIR],
        n_ket=args["ket_count"][ROW],
        ket=st.view(args["ket"][ROW, 0, 0]),
        ket_centre=st.view(args["ket_centre"][ROW, 0]),
        ket_bound=st.view(args["ket_bound"][ROW, 0]),
        place=st.view(args["ket_place"][ROW]),
        bra_sums=sums,
        ket_sums=st.view(args["ket_gradient"][ROW, 0]),
        **{name: args[name] for name in shared},
    )
    x = Var("x", "i64")
    matters = le(args["screen"], args["bra_bound"][PAIR] * args["row_bound"][ROW])
    body = st.block(
        st.DeclareArray(sums),
        st.loop(x, 6, st.store(sums[x], 0.0)),
        st.loop(ROW, args["rows"], st.If(matters, st.block(call))),
        st.loop(x, 6, st.accumulate(args["bra_gradient"][PAIR, x], sums[x])),
    )
    title = f"derivatives of ({cls.la}{cls.lb}|{cls.lc}) with weights"
    return st.Function(cls.name, parameters(cls), body, group=PAIR, title=title)
