"""Every lane stores to a place of its own: indices computed, and read from a table of lanes beside a common offset."""

from __future__ import annotations

import numpy as np
import pytest

from tests.gen.programs import run_both
from trnqc.errors import ProgramError
from trnqc.gen import Array, Var, const, emit_c
from trnqc.gen import statements as st
from trnqc.gen.values import lane, lt, select
from trnqc.jit import Recipe
from trnqc.jit.emulator import ORDERS
from trnqc.jit.simulated_device import SimulatedDevice

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


@pytest.mark.parametrize("by_lane", [False, True])
@pytest.mark.parametrize("index", [*INDICES, "common"])
@pytest.mark.parametrize("lanes", [1, 4, 8])
@pytest.mark.parametrize("write", [st.store, st.accumulate])
def test_writes_under_a_condition(write, lanes, index, by_lane):
    """Where the condition does not hold, nothing is written, and an index may be anywhere."""
    if index == "common" and write is st.accumulate:
        pytest.skip("an element that lanes share takes a sum over all of them")
    if index == "common" and not by_lane:
        pytest.skip("an element that lanes share takes a condition that they share")
    out = Array("out", "f64", lanes=by_lane)
    place = I if index == "common" else select(lt(X[I], 0.0), const(-(10**9), "i64"), INDICES[index])
    put = write(out[place], X[I], where=lt(0.0, X[I]))
    f = st.Function("spread", (N, AT, X, out), st.block(st.loop(I, N, put)))
    rng = np.random.default_rng(lanes)
    places = rng.permutation(5 * lanes).reshape(5, lanes).astype(np.int64)
    inputs = {"n": 5, "at": places, "x": rng.normal(size=(5, lanes)), "out": np.ones((100, lanes) if by_lane else 100)}
    ours, theirs = run_both(f, inputs, lanes)
    np.testing.assert_array_equal(ours["out"], theirs["out"])
    assert 0 < (ours["out"] != 1).sum() <= (inputs["x"] > 0).sum()


def test_a_condition_for_all_lanes():
    out = Array("out", "f64", lanes=True)
    f = st.Function("spread", (N, X, out), st.block(st.loop(I, N, st.store(out[I], X[I], where=lt(I, N - 1)))))
    inputs = {"n": 5, "x": np.random.default_rng(0).normal(size=(5, 4)), "out": np.ones((5, 4))}
    ours, theirs = run_both(f, inputs, 4)
    np.testing.assert_array_equal(ours["out"], theirs["out"])
    np.testing.assert_array_equal(ours["out"], [*inputs["x"][:-1], np.ones(4)])


def test_lanes_that_share_an_element_share_the_condition():
    out = Array("out", "f64")
    f = st.Function("spread", (N, X, out), st.block(st.store(out[N], const(1.0), where=lt(0.0, X[N]))))
    with pytest.raises(ProgramError, match="shared by all lanes"):
        emit_c(f, lanes=4)


def test_an_element_of_all_lanes_takes_no_addition_under_a_condition():
    out = Array("out", "f64")
    f = st.Function("spread", (N, X, out), st.block(st.accumulate(out[N], X[N], where=lt(0.0, X[N]))))
    with pytest.raises(ProgramError, match="elements of their own"):
        emit_c(f, lanes=4)


@pytest.mark.parametrize("order", ORDERS)
def test_additions_of_threads_under_a_condition(order):
    """A value that is there only where the condition holds is not read elsewhere."""
    out, few = Array("out", "f64"), Array("few", "f64")
    put = st.accumulate(out[lane() // 2], few[lane()], where=lt(lane(), const(3, "i64")))
    f = st.Function("spread", (few, out), st.block(put), group=Var("group", "i64"))
    device = SimulatedDevice(lanes=4, order=order)
    arrays = {"few": device.upload(np.arange(1.0, 4.0)), "out": device.zeros(2)}
    device.launch(device.build(Recipe.of(f, name="spread"), 4), 2, arrays)
    np.testing.assert_array_equal(device.download(arrays["out"]), [6.0, 6.0])


def test_indices_in_memory_pass_no_vector():
    out = Array("out", "f64")
    f = st.Function("spread", (N, AT, X, out), st.block(st.loop(I, N, st.store(out[I * 3 + AT[I]], X[I]))))
    assert "store_at_table_double_x8(out + i * 3, (const int64_t *)&at[i], x[i]);" in emit_c(f, lanes=8)
