"""The Boys function where its table ends and the asymptotic form takes over."""

from __future__ import annotations

import numpy as np
import pytest

from trnqc.eri.kernels import boys
from trnqc.gen import Array, Var, run
from trnqc.gen import statements as st


@pytest.mark.parametrize("order", [0, 1, 4, 9])
def test_values_on_both_sides_of_the_end(order):
    n = Var("n", "i64")
    t, out = Array("t", "f64", (n,), lanes=True), Array("out", "f64", (n, order + 1), lanes=True)
    i, m, one, distance = Var("i", "i64"), Var("m", "i64"), Var("one"), Var("distance")
    table, local = boys.table_array(order), Array("values", "f64", (order + 1,), "local")
    body = st.block(
        st.DeclareArray(local),
        st.Let(distance, t[i]),
        boys.values(order, "coulomb", one, one, one, distance, one, table, local),
        st.loop(m, order + 1, st.store(out[i, m], local[m])),
    )
    f = st.Function("values_of", (n, one, table, t, out), st.block(st.loop(i, n, body)))
    end = boys.end(order)
    points = np.linspace(end - 0.3, end + 0.3, 48).reshape(-1, 4)
    computed = np.empty((len(points), order + 1, 4))
    run(f, {"n": len(points), "one": 1.0, table.name: boys.table(order), "t": points, "out": computed}, lanes=4)
    for m in range(order + 1):
        np.testing.assert_allclose(computed[:, m], 2.0**m * boys.reference(m, points).astype(float), rtol=1e-13)
