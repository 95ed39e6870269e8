"""Barriers that follow another one are left out of text for threads, and no others."""

from __future__ import annotations

import pytest

from trnqc.gen import Array, Var, emit_c, emit_cuda
from trnqc.gen import statements as st
from trnqc.gen.values import lane, lt

N, I = Var("n", "i64"), Var("i", "i64")
X, OUT = Array("x", "f64", (None,)), Array("out", "f64", (None,))
NEAR, OWN = Array("near", "f64", (32,), "shared"), Array("own", "f64", (4,), "local", lanes=True)
WRITE, READ = st.store(NEAR[lane()], X[lane()]), st.store(OUT[lane()], NEAR[lane() + 1])
LET = st.Let(Var("a"), X[lane()] * 2.0)


def barriers(*body: st.Statement) -> int:
    f = st.Function(
        "f", (N, X, OUT), st.block(st.DeclareArray(NEAR), st.DeclareArray(OWN), *body), group=Var("g", "i64")
    )
    assert "syncthreads" not in emit_c(f, lanes=4)
    return emit_cuda(f, lanes=32).count("__syncthreads();")


B = st.Barrier()
CASES = {
    "the first": ((B, WRITE), 1),
    "two": ((WRITE, B, B, READ), 1),
    "around what nobody writes": ((WRITE, B, LET, B, READ), 1),
    "around local memory": ((WRITE, B, st.store(OWN[0], 1.0), B, READ), 1),
    "around shared memory": ((WRITE, B, READ, B, WRITE), 2),
    "around written memory": ((WRITE, B, st.Let(Var("b"), OUT[0]), B, READ), 2),
    "ends of a body": ((WRITE, B, st.loop(I, N, st.block(B, READ, B, WRITE, B))), 3),
    "a body without an end": ((WRITE, B, st.loop(I, N, st.block(B, READ, B, WRITE))), 3),
    "behind a body": ((st.loop(I, N, st.block(WRITE, B)), B, READ), 2),
    "behind a clean body": ((WRITE, B, st.loop(I, N, st.block(READ, B)), B, WRITE), 2),
    "branches": ((WRITE, B, st.If(lt(N, 1), st.block(READ), st.block()), B, WRITE), 2),
    "branches that use nothing": ((WRITE, B, st.If(lt(N, 1), st.block(LET), st.block()), B, READ), 1),
}


@pytest.mark.parametrize("case", CASES)
def test_barriers_that_are_kept(case):
    body, kept = CASES[case]
    assert barriers(*body) == kept


def test_arrays_of_a_called_function_may_be_shared():
    """A function that only reads its array does not know who writes it."""
    inner = Array("inner", "f64", (None,))
    reader = st.Function(
        "reader", (inner, OUT), st.block(B, st.Let(Var("b"), inner[0]), B, st.store(OUT[lane()], Var("b")))
    )
    call = st.Call(reader, (X, OUT))
    f = st.Function("f", (N, X, OUT), st.block(call), group=Var("g", "i64"))
    assert emit_cuda(f, lanes=32).count("__syncthreads();") == 2
