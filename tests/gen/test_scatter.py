"""Every lane stores to a place of its own: indices computed, and read from a table of lanes beside a common offset."""

from __future__ import annotations

import numpy as np
import pytest

from tests.gen.programs import run_both
from trnqc.gen import Array, Var, emit_c
from trnqc.gen import statements as st

N, I = Var("n", "i64"), Var("i", "i64")
AT, X = Array("at", "i64", (N,), lanes=True), Array("x", "f64", (N,), lanes=True)
INDICES = {
    "computed": AT[I] * 2,
    "tabulated": AT[I],
    "offset": I * 3 + AT[I],
    "offset behind": AT[I] + N,
}


@pytest.mark.parametrize("put", [st.store, st.accumulate])
@pytest.mark.parametrize("by_lane", [False, True])
@pytest.mark.parametrize("index", INDICES)
@pytest.mark.parametrize("lanes", [1, 4, 8])
def test_places_by_lane(lanes, index, by_lane, put):
    out = Array("out", "f64", lanes=by_lane)
    f = st.Function("spread", (N, AT, X, out), st.block(st.loop(I, N, put(out[INDICES[index]], X[I]))))
    rng = np.random.default_rng(lanes)
    places = rng.permutation(5 * lanes).reshape(5, lanes).astype(np.int64)
    inputs = {"n": 5, "at": places, "x": rng.normal(size=(5, lanes)), "out": np.ones((100, lanes) if by_lane else 100)}
    ours, theirs = run_both(f, inputs, lanes)
    np.testing.assert_array_equal(ours["out"], theirs["out"])
    assert (ours["out"] != 1).any()


def test_indices_in_memory_pass_no_vector():
    out = Array("out", "f64")
    f = st.Function("spread", (N, AT, X, out), st.block(st.loop(I, N, st.store(out[I * 3 + AT[I]], X[I]))))
    assert "store_at_table_double_x8(out + i * 3, (const int64_t *)&at[i], x[i]);" in emit_c(f, lanes=8)
