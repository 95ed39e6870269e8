"""Values and statements: what is one object, what is refused where it is written, and what a program costs."""

from __future__ import annotations

import pytest

from trnqc.errors import ProgramError
from trnqc.gen import Array, Var, const
from trnqc.gen import statements as st
from trnqc.gen import values as v
from trnqc.gen.build import horner
from trnqc.gen.cost import cost, cost_of_values

x, y, n = Var("x"), Var("y"), Var("n", "i64")


def test_equal_values_are_one():
    assert x + y is x + y
    assert const(0.0) is not const(-0.0)
    assert const(float("nan")) is const(float("nan"))
    assert const(1.0) is not const(1, "i64")
    assert (x + y).key != (x - y).key


def test_deep_values_need_no_stack():
    total = x
    for _ in range(3_000):
        total = total * y + 1.0
    assert cost_of_values(total).flops.at() == 6_000
    assert len(total.key) == len(x.key)


def test_horner_is_the_cheapest_polynomial():
    assert cost_of_values(horner([1.0, 2.0, 3.0, 4.0], x)).operations == {"fma": 3}
    with pytest.raises(ProgramError):
        horner([], x)


def test_the_caller_gives_a_function_its_trip_counts():
    n, m, i = Var("n", "i64"), Var("m", "i64"), Var("i", "i64")
    x = Array("x", "f64", (None,))
    add = st.Function("add", (n, x), st.block(st.loop(i, n, st.accumulate(x[i], 1.0))))
    result = cost(st.block(st.Call(add, (const(5, "i64"), x)), st.loop(i, m, st.Call(add, (m, x)))))
    assert str(result.flops) == "5 + 1 m m"
    assert result.flops.at(m=3) == 14


def test_cost_of_a_gemm():
    m, p, q = (Var(name, "i64") for name in "mpq")
    i, j, k = (Var(name, "i64") for name in "ijk")
    a, b, c = Array("a", "f64", (m, q)), Array("b", "f64", (q, p)), Array("c", "f64", (m, p))
    body = st.loop(i, m, st.loop(j, p, st.loop(k, q, st.accumulate(c[i, j], a[i, k] * b[k, j]))))
    result = cost(body)
    assert str(result.flops) == "2 m p q"
    assert result.flops.at(m=3, p=5, q=7) == 2 * 3 * 5 * 7
    assert str(result.read) == "24 m p q"
    assert str(result.written) == "8 m p q"
    assert cost(st.loop(i, 7, st.store(c[0, 0], x * y), step=2)).flops.at() == 4
    with pytest.raises(ProgramError, match="depends on m"):
        result.flops.at(p=1, q=1)


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: x + n,
        lambda: v.sqrt(n),
        lambda: x // y,
        lambda: v.with_bit(x, 3),
        lambda: v.lowest_bit(v.cast(n, "i32")),
        lambda: v.select(x, x, y),
        lambda: v.lt(x, y) + 1.0,
        lambda: const(1.5, "i64"),
        lambda: Var("two words"),
        lambda: Var("x", "f16"),
        lambda: Array("a", "f64", (2, 3))[1],
        lambda: Array("a", "f64", (None,), "local"),
        lambda: Array("t", "f64", (2,), "constant", data=(1.0,)),
        lambda: st.store(x, 1.0),
        lambda: st.loop(n, 3, step=0),
    ],
)
def test_wrong_programs_are_refused_where_they_are_written(wrong):
    with pytest.raises(ProgramError):
        wrong()
