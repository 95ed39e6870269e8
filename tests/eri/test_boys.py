"""The Boys function by series, by table and in the forms that kernels take it in."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some
from scipy.special import gamma, gammainc

from trnqc.eri.kernels import boys
from trnqc.gen import Array, Var, run
from trnqc.gen import statements as st

ORDERS = (0, 1, 2, 5, 11, 20)


def test_textbook_values():
    """F_0(T) = sqrt(pi / T) erf(sqrt(T)) / 2, and F_m(0) = 1 / (2 m + 1)."""
    t = np.array([1e-3, 0.5, 3.0, 20.0])
    want = [0.5 * math.sqrt(math.pi / x) * math.erf(math.sqrt(x)) for x in t]
    np.testing.assert_allclose(boys.reference(0, t).astype(float), want, rtol=4e-16)
    for m in ORDERS:
        assert float(boys.reference(m, np.zeros(1))[0]) == 1 / (2 * m + 1)


@pytest.mark.parametrize("order", ORDERS)
def test_series_is_the_incomplete_gamma_function(order):
    t = np.linspace(0.5, 90, 57)
    want = gammainc(order + 0.5, t) * gamma(order + 0.5) / (2 * t ** (order + 0.5))
    np.testing.assert_allclose(boys.reference(order, t).astype(float), want, rtol=1e-13)


def evaluated(order: int, t: np.ndarray, operator: str = "coulomb", omega: float = 0.0) -> np.ndarray:
    """F_m(T), m = 0 .. order, [order + 1, len(t)], as a kernel makes them: rho = 1/2, so that (2 rho)^m = 1."""
    lanes = len(t)
    x, out = Array("x", "f64", (1,), lanes=True), Array("out", "f64", (order + 1,), lanes=True)
    table, held = boys.table_array(order), Array("held", "f64", (order + 1,), "local")
    factor, total, rho, distance, w = (Var(n) for n in ("factor", "total", "rho", "distance", "omega"))
    body = [st.Let(distance, x[0] * 2.0), st.DeclareArray(held)]
    body += boys.values(order, operator, factor, total, rho, distance, w, table, held)
    body += [st.store(out[m], held[m]) for m in range(order + 1)]
    computed = np.empty((order + 1, lanes))
    run(
        st.Function("boys", (factor, total, rho, w, x, table, out), st.block(body)),
        {
            "factor": math.sqrt(2.0),
            "total": 2.0,
            "rho": 0.5,
            "omega": omega,
            "x": t[None].copy(),
            "boys": boys.table(order).copy(),
            "out": computed,
        },
        lanes=lanes,
    )
    return computed


@pytest.mark.parametrize("order", ORDERS)
def test_values(order):
    """To 1e-14 of each value, also where two rows or the table and the asymptotic form meet."""
    last = boys.end(order)
    edges = np.arange(0, last * boys.DENSITY) / boys.DENSITY
    t = np.concatenate([edges, np.nextafter(edges[1:], 0), np.random.default_rng(order).uniform(0, last + 5, 500)])
    computed = evaluated(order, t)
    for m in range(order + 1):
        want = boys.reference(m, t).astype(float)
        np.testing.assert_allclose(computed[m], want, rtol=1.2e-14, atol=0, err_msg=f"m = {m}")


@pytest.mark.parametrize("order", ORDERS)
def test_large_arguments(order):
    t = np.geomspace(boys.end(order), 1e12, 40)
    computed = evaluated(order, t)
    want = [
        math.sqrt(math.pi) / 2 * math.prod((2 * k - 1) / 2 for k in range(1, m + 1)) * t ** -(m + 0.5)
        for m in range(order + 1)
    ]
    np.testing.assert_allclose(computed, want, rtol=1e-13)


@settings(deadline=None, max_examples=40)
@given(some.integers(0, 8), some.lists(some.floats(0, 200, allow_subnormal=False), min_size=1, max_size=20))
def test_recursion_and_bounds(order, arguments):
    """(2 m + 1) F_m = 2 T F_(m+1) + e^-T, and 0 < F_(m+1) < F_m <= 1 / (2 m + 1)."""
    t = np.array(arguments)
    f = evaluated(order + 1, t)
    assert (f > 0).all()
    assert (f[1:] < f[:-1]).all()
    for m in range(order + 1):
        np.testing.assert_allclose((2 * m + 1) * f[m], 2 * t * f[m + 1] + np.exp(-t), rtol=3e-14)
        assert (f[m] <= (1 + 1e-14) / (2 * m + 1)).all()


@pytest.mark.parametrize("omega", [0.2, 1.0, 7.0])
def test_range_separated_values(omega):
    """With s = omega^2 / (omega^2 + rho): s^(m + 1/2) F_m(s T) for erf(omega r)/r, the rest for erfc."""
    t = np.concatenate([np.linspace(0, 60, 40), [1e3, 1e6]])
    s = omega**2 / (omega**2 + 0.5)
    full, long, short = evaluated(3, t), evaluated(3, t, "erf", omega), evaluated(3, t, "erfc", omega)
    scaled = evaluated(3, s * t)
    np.testing.assert_allclose(long, [s ** (m + 0.5) * scaled[m] for m in range(4)], rtol=1e-13)
    np.testing.assert_allclose(short, full - long, atol=1e-15)


def test_rows_are_cache_lines():
    assert boys.table(3).ctypes.data % 64 == 0
    assert boys.table(3)[0].nbytes == 64
