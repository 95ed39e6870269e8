"""Emitted C computes what the interpreter does, for every number of lanes and with warnings as errors."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from tests.gen import programs
from tests.gen.programs import NUMPY, compiled, gemm, i, j, polynomial, run_both
from trnqc import jit
from trnqc.errors import ProgramError
from trnqc.gen import Array, Var, const, emit_c, emit_cuda, listing, run
from trnqc.gen import statements as st
from trnqc.gen import values as v

LANES = (1, 4, 8)
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("dtype, eps", [("f64", 2e-15), ("f32", 1e-6)])
@pytest.mark.parametrize("m, n, q", [(1, 1, 1), (3, 2, 5), (2, 7, 1), (2, 3, 0)])
def test_gemm(lanes, dtype, eps, m, n, q):
    rng = np.random.default_rng(m * n + q)
    kind = programs.NUMPY[dtype]
    a, b = rng.normal(size=(m, q)).astype(kind), rng.normal(size=(q, n, lanes)).astype(kind)
    c = np.full((m, n, lanes), np.nan, kind)
    ours, theirs = run_both(gemm(dtype), {"m": m, "n": n, "q": q, "a": a, "b": b, "c": c}, lanes)
    np.testing.assert_array_equal(ours["c"], theirs["c"])
    np.testing.assert_allclose(ours["c"], np.einsum("ik,kjl->ijl", a, b), rtol=eps, atol=eps * q)


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("dtype", ["f64", "f32"])
def test_named_multiply_adds_round_once_where_the_compiler_has_a_function(lanes, dtype):
    """x * x - 1 of x = 1 + h has the term h * h only if the product is not rounded; a scalar factor is spread."""
    x, y = (Array(n, dtype, (None,), lanes=True) for n in "xy")
    scale = Var("scale", dtype)
    values = [v.fma(x[0], x[0], const(-1.0, dtype)), v.fma(scale, x[0], x[0])]
    f = st.Function("f", (scale, x, y), st.block(st.store(y[n], value) for n, value in enumerate(values)))
    named = f"fma_{dtype}x{lanes}"
    assert (named in emit_c(f, lanes=lanes, names_fma=True)) == (lanes > 1) and named not in emit_c(f, lanes=lanes)
    kind = NUMPY[dtype]
    h = kind(2.0 ** (-30 if dtype == "f64" else -13))
    given, got = np.full((1, lanes), 1 + h, kind), np.zeros((2, lanes), kind)
    target = jit.find_compiler()
    compiled(f, lanes, flags=("-Og", "-ffp-contract=off"))(kind(2), given, got)
    has_function = {64: "__AVX512F__", 32: "__FMA__"}.get(lanes * h.itemsize, "no macro") in target.target
    rounded_once = lanes > 1 and has_function and "__clang__" not in target.target
    np.testing.assert_array_equal(got[0], 2 * h + h * h * rounded_once)
    np.testing.assert_array_equal(got[1], 3 * given[0])


@pytest.mark.parametrize("lanes", LANES)
def test_groups_are_a_range(lanes):
    x = np.random.default_rng(1).normal(size=(5, 3, lanes))
    zero = np.zeros_like(x)
    ours, theirs = run_both(polynomial(), {"n": 3, "x": x, "y": zero, "z": zero}, lanes, groups=(1, 4))
    np.testing.assert_array_equal(ours["z"], theirs["z"])
    want = np.polynomial.polynomial.polyval(x, (1.0, -0.5, 0.25, 2.0))
    np.testing.assert_allclose(ours["y"][1:4], want[1:4], rtol=1e-14, atol=1e-14)
    assert not ours["y"][[0, 4]].any()


@pytest.mark.parametrize("lanes", LANES)
@pytest.mark.parametrize("dtype", ["f64", "f32"])
def test_every_operation(lanes, dtype):
    a, b, out = (Array(n, dtype, (None,), lanes=True) for n in ("a", "b", "out"))
    x, y, big = Var("x", dtype), Var("y", dtype), Var("big", "bool")
    results = [
        x + y,
        x - y,
        x * y,
        x / y,
        -x,
        v.fma(x, y, x),
        v.sqrt(x * x),
        v.exp(-x * x),
        v.log(x * x + 2.0),
        v.minimum(x, y),
        v.maximum(y, 0.5),
        v.select(big, x, 2.0),
        v.select(v.both(big, v.lt(x, y)), x, y),
        v.select(v.either(v.invert(big), v.le(x, y)), x, y),
        v.select(v.eq(x, y), x * 3.0, y),
        v.cast(v.cast(x * 8.0, "i64"), dtype),
        v.cast(v.cast(x * 8.0, "i32"), dtype),
        v.cast(v.cast(x * 8.0, "i64") % 3, dtype),
        v.cast(v.cast(x * 8.0, "i64") // 5, dtype),
        v.cast(v.cast(x, "f32"), dtype),
        v.from_bits(v.bits(x * y) + 1),
        v.cast(v.bits(y), dtype),
        v.cast(v.with_bit(v.cast(x * 8.0, "i64"), v.cast(y * y, "i64") * 3 + 40), dtype),
        v.cast(v.lowest_bit(v.with_bit(v.cast(x * 8.0, "i64"), 63)), dtype),
        v.cast(v.lowest_bit(v.with_bit(v.cast(0.0 * x, "i64"), 63)), dtype),
        v.cast(v.without_lowest_bit(v.with_bit(v.cast(x * 8.0, "i64"), 62)), dtype),
        const(-1.5, dtype) * x - (x - y),
        x - (y - x) * (x + y) / (x - 3.0),
    ]
    body = [st.Let(x, a[0]), st.Let(y, b[0]), st.Let(big, v.lt(1.0, x))]
    body += [st.store(out[n], value) for n, value in enumerate(results)]
    f = st.Function("operations", (a, b, out), st.block(body))
    kind = programs.NUMPY[dtype]
    for xs, ys in [(1.25, -0.5), (-0.75, -0.75), (2.5, 7.0), (-3.0, 0.0)]:
        inputs = {
            "a": (xs * (1 + np.arange(lanes)[None] / 8)).astype(kind),
            "b": np.full((1, lanes), ys, kind),
            "out": np.zeros((len(results), lanes), kind),
        }
        ours, theirs = run_both(f, inputs, lanes)
        ulps = 4 * np.finfo(kind).eps  # exp and log are the library's own
        np.testing.assert_allclose(theirs["out"], ours["out"], rtol=ulps, atol=0)


@pytest.mark.parametrize("lanes", LANES)
def test_indices_that_differ_by_lane(lanes):
    n = Var("n", "i64")
    table, sums = Array("table", "f64", (n,)), Array("sums", "f64", (n,))
    at = Array("at", "i64", (None,), lanes=True)
    x, out = Array("x", "f64", (None,), lanes=True), Array("out", "f64", (None,), lanes=True)
    body = st.block(
        st.store(out[0], table[at[0]] * x[at[1]]),
        st.accumulate(sums[at[0]], x[0]),
        st.accumulate(sums[0], x[0]),
        st.store(out[at[1]], 7.0),
    )
    rng = np.random.default_rng(lanes)
    inputs = {
        "n": 5,
        "table": rng.normal(size=5),
        "sums": np.zeros(5),
        "x": rng.normal(size=(2, lanes)),
        "at": np.stack([np.arange(lanes) % 5, (np.arange(lanes) + 1) % 2]),
        "out": np.zeros((2, lanes)),
    }
    f = st.Function("gather", (n, table, sums, at, x, out), body)
    ours, theirs = run_both(f, inputs, lanes)
    np.testing.assert_array_equal(ours["out"], theirs["out"])
    np.testing.assert_array_equal(ours["sums"], theirs["sums"])
    assert ours["sums"].sum() == pytest.approx(2 * inputs["x"][0].sum(), rel=1e-13, abs=1e-13)


@pytest.mark.parametrize("lanes", LANES)
def test_merge_of_two_sorted_lists(lanes):
    """Co-iteration by while and if: what intersecting two compressed levels needs."""
    na, nb, count = (Var(n, "i64") for n in ("na", "nb", "count"))
    a, b, result = (Array(n, "i64", (None,)) for n in ("a", "b", "found"))
    p, q = Var("p", "i64"), Var("q", "i64")
    step = st.If(
        v.eq(a[p], b[q]),
        st.block(
            st.store(result[count + 1], a[p]), st.Assign(count, count + 1), st.Assign(p, p + 1), st.Assign(q, q + 1)
        ),
        st.block(st.If(v.lt(a[p], b[q]), st.block(st.Assign(p, p + 1)), st.block(st.Assign(q, q + 1)))),
    )
    zero = const(0, "i64")
    merge = st.While(v.both(v.lt(p, na), v.lt(q, nb)), st.block(step))
    body = st.block(
        st.Declare(p, zero), st.Declare(q, zero), st.Declare(count, zero), merge, st.store(result[0], count)
    )
    f = st.Function("merge", (na, nb, a, b, result), body)
    for left, right in [([1, 4, 6, 9], [0, 4, 5, 9, 11]), ([], [3]), ([2], [2]), ([1, 3], [2, 4])]:
        inputs = {
            "na": len(left),
            "nb": len(right),
            "a": np.array(left, np.int64),
            "b": np.array(right, np.int64),
            "found": np.full(6, -1),
        }
        ours, theirs = run_both(f, inputs, lanes)
        np.testing.assert_array_equal(ours["found"], theirs["found"])
        common = sorted(set(left) & set(right))
        assert list(ours["found"][: 1 + len(common)]) == [len(common), *common]


@pytest.mark.parametrize("lanes", LANES)
def test_local_arrays_tables_calls_and_fences(lanes):
    x, out = Array("x", "f64", (None,), lanes=True), Array("out", "f64", (None,), lanes=True)
    factor, work = Var("factor"), Array("work", "f64", (3,), "local")
    cells = Array("cells", "f64", (3,), "local")
    weights = Array("weights", "f64", (3,), "constant", data=(0.5, -2.0, 1e-3))
    scale = st.Function(
        "scale", (factor, cells), st.block(st.loop(i, 3, st.store(cells[i], cells[i] * factor))), title="scale cells"
    )
    t = Var("double")  # a word of C
    body = st.block(
        st.DeclareArray(weights),
        st.DeclareArray(work),
        st.loop(j, 3, st.store(work[j], x[j] * weights[j])),
        st.Call(scale, (x[0], work)),
        st.Call(scale, (const(0.5), work)),
        st.Declare(t, const(0.0)),
        st.loop(j, 3, st.Assign(t, t + work[j]), st.Fence((t,)), begin=0, step=2),
        st.Barrier(),
        st.store(out[0], t),
    )
    inputs = {"x": np.random.default_rng(2).normal(size=(3, lanes)), "out": np.zeros((1, lanes))}
    ours, theirs = run_both(st.Function("work", (x, out), body), inputs, lanes)
    np.testing.assert_array_equal(ours["out"], theirs["out"])
    np.testing.assert_allclose(ours["out"][0], 0.5 * inputs["x"][0] * (0.5 * inputs["x"][0] + 1e-3 * inputs["x"][2]))


@pytest.mark.parametrize("lanes", LANES)
def test_an_element_that_is_asked_for_changes_nothing(lanes):
    j, x, out = Var("j", "i64"), Array("x", "f64", (3,), lanes=True), Array("out", "f64", (3,), lanes=True)
    body = st.loop(j, 3, st.prefetch(x[j + 5]), st.store(out[j], x[j]))
    f = st.Function("copy", (x, out), st.block(body))
    inputs = {"x": np.random.default_rng(2).normal(size=(3, lanes)), "out": np.zeros((3, lanes))}
    ours, theirs = run_both(f, inputs, lanes)
    np.testing.assert_array_equal(ours["out"], inputs["x"])
    np.testing.assert_array_equal(theirs["out"], inputs["x"])
    assert "prefetch x[j + 5]" in listing(f)
    assert "__builtin_prefetch(x + " in emit_c(f, lanes=lanes) and "prefetch" not in emit_cuda(f, lanes=32)


@pytest.mark.parametrize("lanes", LANES)
def test_views_of_arrays(lanes):
    """A called function adds row j of a table, and of an array of lanes, to a place that differs by call."""
    n, j = Var("n", "i64"), Var("j", "i64")
    row, total = Array("row", "f64", (2,)), Array("total", "f64", lanes=True)
    part = Array("part", "f64", (2,), lanes=True)
    add = st.Function("add", (row, part, total), st.block(st.accumulate(total[0], row[1] * part[1])))
    table, x = Array("table", "f64", (n, 2)), Array("x", "f64", (n, 2), lanes=True)
    out = Array("out", "f64", (n,), lanes=True)
    call = st.Call(add, (st.view(table[j, 0]), st.view(x[j, 0]), st.view(out[n - 1 - j])))
    f = st.Function("rows", (n, table, x, out), st.block(st.loop(j, n, call)))
    assert f.written == ("out",) and "add(table[j * 2 + 0 ..], " in listing(f)
    # Pointers of called functions, and to what is written, are not marked in CUDA: see `Dialect`.
    assert "add(const double *row" in emit_cuda(f) and "add(const double *restrict row" in emit_c(f)
    assert "const double *__restrict__ table" in emit_cuda(f) and "double *out)" in emit_cuda(f)
    assert "add(table + (j * 2 + 0), x + (j * 2 + 0) * 128, out + (n - 1 - j) * 128, lane)" in emit_cuda(f, lanes=128)
    rng = np.random.default_rng(lanes)
    inputs = {"n": 3, "table": rng.normal(size=(3, 2)), "x": rng.normal(size=(3, 2, lanes)), "out": np.ones((3, lanes))}
    ours, theirs = run_both(f, inputs, lanes)
    np.testing.assert_array_equal(ours["out"], theirs["out"])
    np.testing.assert_allclose(ours["out"][::-1], 1 + inputs["table"][:, 1:] * inputs["x"][:, 1], rtol=1e-14)


@pytest.mark.parametrize("lanes", LANES)
def test_flat_views_of_arrays_of_lanes(lanes):
    """The same vectors in memory are the operand of one call as elements, and of the other as vectors."""
    k, n = Var("k", "i64"), Var("n", "i64")
    factors, row, total = Array("factors", "f64"), Array("row", "f64", lanes=True), Array("total", "f64", lanes=True)
    scale = st.Function("scale", (factors, row, total, k), st.block(st.accumulate(total[0], factors[k] * row[0])))
    write = st.Function("write", (factors,), st.block(st.store(factors[1], const(7.0))))
    x, out = Array("x", "f64", lanes=True), Array("out", "f64", lanes=True)
    call = st.Call(scale, (st.flat_view(x[1]), st.view(x[0]), out, k))
    f = st.Function("flat", (n, x, out), st.block(st.loop(k, n, call), st.Call(write, (st.flat_view(x[0]),))))
    assert "scale(x[1 ..] flat, x[0 ..], out, k)" in listing(f) and f.written == ("x", "out")
    assert "scale(x + 1 * 128, x + 0 * 128, out, k, lane)" in emit_cuda(f, lanes=128)
    data = np.random.default_rng(3).normal(size=(3, max(2, lanes)))[:, :lanes]
    inputs = {"n": lanes, "x": np.ascontiguousarray(data), "out": np.zeros((1, lanes))}
    ours, theirs = run_both(f, inputs, lanes)
    np.testing.assert_array_equal(ours["out"], theirs["out"])
    np.testing.assert_array_equal(ours["x"], theirs["x"])
    np.testing.assert_allclose(ours["out"][0], data[1].sum() * data[0], rtol=1e-13)


def test_a_flat_view_is_one_of_a_global_array_of_lanes():
    clear = st.Function("clear", (cells := Array("cells", "f64"),), st.block(st.store(cells[0], const(0.0))))
    for array in (Array("table", "f64"), Array("own", "f64", (4,), "local", lanes=True)):
        declared = [st.DeclareArray(array)] * (array.space == "local")
        params = () if declared else (array,)
        f = st.Function("bad", params, st.block(declared, st.Call(clear, (st.flat_view(array[0]),))))
        with pytest.raises(ProgramError, match="takes"):
            emit_c(f)


@pytest.mark.parametrize("calls, kind", [(4, "__forceinline__"), (5, "__noinline__")])
def test_code_called_from_many_places_stands_once(calls, kind):
    x, at = Array("x", "f64", (None,), lanes=True), Var("at", "i64")
    add = st.Function("add", (at, x), st.block(st.accumulate(x[at], 1.0)))
    f = st.Function("many", (x,), st.block([st.Call(add, (const(n % 2, "i64"), x)) for n in range(calls)]))
    assert f"{kind} void add(" in emit_cuda(f)
    ours, theirs = run_both(f, {"x": np.zeros((2, 4))}, 4)
    np.testing.assert_array_equal(ours["x"], theirs["x"])
    assert ours["x"].sum() == 4 * calls


def test_a_view_begins_at_one_element_for_all_lanes():
    cells, at = Array("cells", "f64", (4,)), Array("at", "i64", (1,), lanes=True)
    clear = st.Function("clear", (cells,), st.block(st.store(cells[0], const(0.0))))
    f = st.Function("bad", (cells, at), st.block(st.Call(clear, (st.view(cells[at[0]]),))))
    with pytest.raises(ProgramError, match="the same element on every lane"):
        emit_c(f)


def test_loop_bounds_are_evaluated_once():
    n = Array("n", "i64", (1,))
    f = st.Function("once", (n,), st.block(st.loop(i, n[0] + 1, st.store(n[0], n[0] + 2))))
    ours, theirs = run_both(f, {"n": np.array([3])}, 1)
    assert ours["n"][0] == theirs["n"][0] == 11


def test_text_is_the_same_in_any_process():
    emit = "emit_c(programs.gemm(), lanes=8) + emit_cuda(programs.polynomial())"
    program = f"from tests.gen import programs; from trnqc.gen import emit_c, emit_cuda; print({emit}, end='')"
    texts = {
        subprocess.run(
            [sys.executable, "-c", program],
            cwd=ROOT,
            env={"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT), "PATH": ""},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("0", "1", "12345")
    }
    assert texts == {eval(emit, {"programs": programs, "emit_c": emit_c, "emit_cuda": emit_cuda})}


def test_lanes_are_checked():
    x, s = Array("x", "f64", (None,), lanes=True), Array("s", "f64", (1,))
    uneven = st.Function("f", (x,), st.block(st.If(v.lt(x[0], 0.0), st.block(st.store(x[0], 0.0)))))
    with pytest.raises(ProgramError, match="select"):
        emit_c(uneven, lanes=4)
    with pytest.raises(ProgramError, match="select"):
        run(uneven, {"x": np.zeros((1, 4))}, lanes=4)
    with pytest.raises(ProgramError, match="shared by all lanes"):
        emit_c(st.Function("f", (x, s), st.block(st.store(s[0], x[0]))))
    with pytest.raises(ProgramError, match="power of two"):
        emit_c(gemm(), lanes=3)


def test_names_are_checked():
    x, a, b = Var("x"), Array("a", "f64", (None,)), Array("b", "f64", (4,), "local")
    one = st.Let(x, const(1.0))
    for body, match in [
        (st.block(st.store(a[0], x)), "outside its scope"),
        (st.block(st.loop(i, 3, one), st.store(a[0], x)), "outside its scope"),
        (st.block(one, one), "twice"),
        (st.block(st.store(b[0], 1.0)), "outside its scope"),
        (st.block(st.Assign(x, const(1.0))), "outside its scope"),
        (st.block(st.Let(Var("x", "f32"), const(1.0, "f32")), st.store(a[0], x)), "used as"),
    ]:
        with pytest.raises(ProgramError, match=match):
            emit_c(st.Function("f", (a,), body))
    emit_c(st.Function("f", (a,), st.block(st.loop(i, 3, one), st.loop(i, 2, one, st.store(a[i], x)))))


@pytest.mark.parametrize(
    "wrong, match",
    [
        ({}, "needs the argument"),
        ({"x": np.zeros((2, 3))}, "lanes"),
        ({"x": np.zeros((2, 4), np.float32)}, "float64"),
        ({"x": np.zeros((0, 4))}, "outside"),
    ],
)
def test_the_interpreter_checks_what_it_is_given(wrong, match):
    x = Array("x", "f64", (None,), lanes=True)
    with pytest.raises(ProgramError, match=match):
        run(st.Function("f", (x,), st.block(st.store(x[0], x[0] + 1.0))), wrong, lanes=4)


def test_compiled_functions_run_with_the_usual_flags_too():
    x = np.random.default_rng(3).normal(size=(1, 4, 8))
    zero = np.zeros_like(x)
    ours, theirs = run_both(polynomial(), {"n": 4, "x": x, "y": zero, "z": zero}, 8, flags=())
    np.testing.assert_allclose(ours["z"], theirs["z"], rtol=1e-13)
    assert callable(compiled(polynomial(), 8, flags=()))
