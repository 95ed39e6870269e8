"""Programs written with a Builder compute the same interpreted and compiled."""

from __future__ import annotations

import doctest

import numpy as np
import pytest

from tests.gen.programs import run_both
from trnqc.errors import ProgramError
from trnqc.gen import Array, Var, build, const, listing
from trnqc.gen import statements as st
from trnqc.gen.build import Builder, dot
from trnqc.gen.values import lt


def gemm() -> st.Function:
    """c[i, j] = sum over k of a[i, k] b[k, j], a lane being one more column index; negative sums become 0."""
    m, n, q = (Var(name, "i64") for name in "mnq")
    a, b, c = Array("a", "f64", (m, q)), Array("b", "f64", (q, n), lanes=True), Array("c", "f64", (m, n), lanes=True)
    w = Builder()
    with w.loop("i", m) as i, w.loop("j", n) as j:
        total = w.declare("total", const(0.0))
        with w.loop("k", q) as k:
            w.assign(total, dot([(a[i, k], b[k, j])], total))
        w.store(c[i, j], total)
    return w.function("gemm", (m, n, q, a, b, c), title="c = a b")


@pytest.mark.parametrize("lanes", [1, 4])
@pytest.mark.parametrize("m, n, q", [(1, 1, 1), (3, 2, 5), (2, 3, 0)])
def test_gemm(lanes, m, n, q):
    rng = np.random.default_rng(m * n + q)
    a, b = rng.normal(size=(m, q)), rng.normal(size=(q, n, lanes))
    c = np.full((m, n, lanes), np.nan)
    interpreted, compiled = run_both(gemm(), {"m": m, "n": n, "q": q, "a": a, "b": b, "c": c}, lanes)
    np.testing.assert_array_equal(interpreted["c"], compiled["c"])
    np.testing.assert_allclose(interpreted["c"], np.einsum("ik,kjl->ijl", a, b), rtol=2e-15, atol=1e-14)


def test_every_statement():
    """The largest of the first three elements halved, or their dot product with a table, by the sign of the first."""
    x, out = Array("x", "f64"), Array("out", "f64")
    w = Builder()
    kept = w.array("kept", "f64", (3,))
    table = w.array("table", "f64", (3,), "constant", data=(2.0, -1.0, 0.5))
    with w.block("into registers"):
        for n in range(3):
            w.store(kept[n], x[n])
    n = w.declare("n", const(0, "i64"))
    with w.when(lt(x[0], 0.0)):
        w.store(out[0], dot([(kept[k], table[k]) for k in range(3)]))
    with w.otherwise():
        largest = w.declare("largest", kept[0])
        with w.loop_while(lt(n, 3)):
            with w.when(lt(largest, kept[n])):
                w.assign(largest, kept[n])
            w.assign(n, n + 1)
        half = w.let("half", largest * 0.5)
        w.store(out[0], half)
    w.accumulate(out[1], 1.0)
    w.barrier()
    function = w.function("every", (x, out))
    for values, want in (([-1.0, 2.0, 4.0], -2.0), ([1.0, 3.0, 2.0], 1.5)):
        inputs = {"x": np.array(values), "out": np.array([np.nan, 4.0])}
        for result in run_both(function, inputs, 1):
            np.testing.assert_array_equal(result["out"], [want, 5.0])


def test_functions_are_called():
    x = Array("x", "f64")
    inner = Builder()
    inner.store(x[0], x[0] * 2.0)
    double = inner.function("double_it", (x,))
    y, outer = Array("y", "f64"), Builder()
    with outer.loop("i", 3, begin=1, step=1) as i:
        outer.call(double, st.view(y[i]))
    for result in run_both(outer.function("tail", (y,)), {"y": np.arange(4.0)}, 1):
        np.testing.assert_array_equal(result["y"], [0, 2, 4, 3])


def test_names_differ():
    w = Builder()
    names = [w.name(stem) for stem in ("a", "a", "a_1", "b", "a")]
    assert len(set(names)) == len(names) and "a" not in names


def test_let_names_no_value_twice():
    w, x = Builder(), Var("x")
    assert w.let("y", x) is x and w.let("one", const(1.0)).op == "const" and not w.body
    assert w.let(Var("y"), x) is Var("y") and len(w.body) == 1


def test_dot_without_terms():
    assert dot([], Var("x")) is Var("x")
    assert dot([], dtype="f32") is const(0.0, "f32")
    with pytest.raises(ProgramError, match="start or a dtype"):
        dot([])


def test_otherwise_follows_when():
    w = Builder()
    with pytest.raises(ProgramError, match="follow a when"), w.otherwise():
        pass
    with w.when(lt(Var("x"), 0.0)):
        w.barrier()
    with w.otherwise():
        w.barrier()
    with pytest.raises(ProgramError, match="follow a when"), w.otherwise():
        pass


def test_an_error_inside_leaves_the_outer_body():
    w = Builder()
    with pytest.raises(ZeroDivisionError), w.loop("i", 3):
        raise ZeroDivisionError
    w.barrier()
    assert w.body == [st.Barrier()]


def test_example():
    assert doctest.testmod(build, globs={"Builder": Builder, "dot": dot}).failed == 0
    assert "total_1" in listing(gemm())
