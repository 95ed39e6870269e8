"""Small programs, and functions that run them through the compiler and the interpreter."""

from __future__ import annotations

import numpy as np

from trnqc import jit
from trnqc.gen import Array, Value, Var, const, run
from trnqc.gen import statements as st
from trnqc.gen.build import horner
from trnqc.gen.values import fma

STRICT = ("-Wall", "-Wextra", "-Werror", "-Wno-unused-parameter", "-ffp-contract=off", "-O1")
NUMPY = {"i64": np.int64, "i32": np.int32, "f64": np.float64, "f32": np.float32}

i, j, k = (Var(name, "i64") for name in "ijk")


def compiled(function: st.Function, lanes: int, flags: tuple[str, ...] = STRICT):
    return getattr(jit.library(jit.Recipe.of(function, name="gen-test"), lanes, flags), function.name)


def compiled_together(functions: list[st.Function], lanes: int) -> jit.Library:
    """Functions of different names as one library: starting the compiler takes longer than one small function does."""
    return jit.library(jit.Recipe.of(*functions, name="gen-test"), lanes, STRICT)


def run_both(
    function: st.Function,
    arguments: dict,
    lanes: int,
    groups: tuple[int, int] = (0, 1),
    library: jit.Library | None = None,
    **options,
):
    """Arguments after the interpreter, and after the compiled function; both start from copies.

    library: where the function is compiled already.
    """
    results = []
    for kind in ("interpreter", "compiled"):
        inputs = {n: a.copy() if isinstance(a, np.ndarray) else a for n, a in arguments.items()}
        if kind == "interpreter":
            run(function, inputs, lanes=lanes, groups=groups)
        else:
            extent = {"groups_begin": groups[0], "groups_end": groups[1]} if function.group is not None else {}
            call = compiled(function, lanes, **options) if library is None else getattr(library, function.name)
            call(**inputs, **extent)
        results.append(inputs)
    return results


def gemm(dtype: str = "f64") -> st.Function:
    """c[i, j] = sum over k of a[i, k] b[k, j], a lane being one more column index."""
    m, n, q = (Var(name, "i64") for name in "mnq")
    a, b = Array("a", dtype, (m, q)), Array("b", dtype, (q, n), lanes=True)
    c, total = Array("c", dtype, (m, n), lanes=True), Var("total", dtype)
    inner = st.loop(k, q, st.Assign(total, fma(a[i, k], b[k, j], total)))
    body = st.loop(i, m, st.loop(j, n, st.Declare(total, const(0, dtype)), inner, st.store(c[i, j], total)))
    return st.Function("gemm", (m, n, q, a, b, c), st.block(body, title="one element after the other"), title="c = a b")


def polynomial(coefficients=(1.0, -0.5, 0.25, 2.0)) -> st.Function:
    """y = p(x) and z = p(x)^2, in every group n elements."""
    n, group = Var("n", "i64"), Var("group", "i64")
    x, y, z = (Array(name, "f64", (None, n), lanes=True) for name in "xyz")
    p: Value = Var("p")
    body = st.loop(
        i, n, st.Let(p, horner(coefficients, x[group, i])), st.store(y[group, i], p), st.store(z[group, i], p * p)
    )
    return st.Function("polynomial", (n, x, y, z), st.block(body), group=group)
