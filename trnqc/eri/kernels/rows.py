"""Tables of bra pairs and of vectors of ket pairs that programs around a quartet kernel read, and the kernel's call.

A row is a vector of ket pairs. K is the number of primitive pairs of a record and W its width.
"""

from __future__ import annotations

from typing import Any

from trnqc.eri.classes import CONTRACTION, QuartetClass
from trnqc.eri.kernels.quartet import quartet_function
from trnqc.gen import Array, Value, Var
from trnqc.gen import statements as st

# The bra pair and the row of a call.
PAIR, ROW = Var("pair", "i64"), Var("row", "i64")
# The scalars and arrays that a kernel gets as they are.
_PASSED = ("n_ab", "n_cd", "cutoff", "omega", "boys", "work", "out")


def bra_arrays(cls: QuartetClass) -> tuple[Array, ...]:
    """Return bra_count [pairs], bra [pairs, K, W], bra_centre [pairs, 6] and bra_bound [pairs]; see `ShellPairs`."""
    return (
        Array("bra_count", "i64"),
        Array("bra", "f64", (None, Var("bra_rows", "i64"), _width(cls, "n_ab"))),
        Array("bra_centre", "f64", (None, 6)),
        Array("bra_bound", "f64"),
    )


def ket_arrays(cls: QuartetClass) -> tuple[Array, ...]:
    """Return ket_count [rows], ket [rows, K, W], ket_centre [rows, 6], ket_bound [rows, K + 1] and row_bound [rows].

    They are the arrays of `PackedPairs`.
    """
    rows = Var("ket_rows", "i64")
    return (
        Array("ket_count", "i64"),
        Array("ket", "f64", (None, rows, _width(cls, "n_cd")), lanes=True),
        Array("ket_centre", "f64", (None, 6), lanes=True),
        Array("ket_bound", "f64", (None, rows + 1)),
        Array("row_bound", "f64"),
    )


def _width(cls: QuartetClass, contractions: str) -> Value | int:
    """Return the width of a record; in a general class it ends with coefficients of the pairs of contractions."""
    return CONTRACTION + Var(contractions, "i64") if cls.general else CONTRACTION


def integrals(cls: QuartetClass, args: dict[str, Any], kernel: st.Function | None = None) -> st.Statement:
    """Return the call that computes the integrals of bra pair PAIR with row ROW into `out`, by default with the kernel
    of the class.

    `args` are the parameters of the calling program by name: `bra_arrays`, `ket_arrays`, n_ab, n_cd, cutoff, omega,
    boys, work and out.
    """
    return st.call(
        kernel or quartet_function(cls),
        n_bra=args["bra_count"][PAIR],
        bra=st.view(args["bra"][PAIR, 0, 0]),
        bra_centre=st.view(args["bra_centre"][PAIR, 0]),
        n_ket=args["ket_count"][ROW],
        ket=st.view(args["ket"][ROW, 0, 0]),
        ket_centre=st.view(args["ket_centre"][ROW, 0]),
        ket_bound=st.view(args["ket_bound"][ROW, 0]),
        **{name: args[name] for name in _PASSED},
    )
