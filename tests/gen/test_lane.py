"""The number of a lane: strided reads, a transposition through shared memory, and what control flow may not do."""

from __future__ import annotations

import numpy as np
import pytest

from tests.gen.programs import run_both
from trnqc.errors import ProgramError
from trnqc.gen import Array, Var, emit_cuda
from trnqc.gen import statements as st
from trnqc.gen.values import cast, lane, lt, minimum

N = Var("n", "i64")
X, OUT = Array("x", "f32"), Array("out", "f32")


@pytest.mark.parametrize("lanes", [1, 4, 16])
def test_lanes_exchange_through_shared_memory(lanes):
    """Every lane reads three neighbours, and stores what another one read; past the end the last element stands in."""
    stage = Array("stage", "f32", (3 * 16,), space="shared")
    put = [st.store(stage[lane() * 3 + k], X[minimum(lane() * 3 + k, N - 1)] + 1) for k in range(3)]
    taken = [st.store(OUT[lane() + k * lanes], stage[lane() + k * lanes]) for k in range(3)]
    f = st.Function("exchange", (N, X, OUT), st.block(st.DeclareArray(stage), put, st.Barrier(), taken))
    x = np.random.default_rng(0).normal(size=3 * lanes - 1).astype(np.float32)
    ours, theirs = run_both(f, {"n": len(x), "x": x, "out": np.zeros(3 * lanes, np.float32)}, lanes)
    np.testing.assert_array_equal(ours["out"], theirs["out"])
    np.testing.assert_array_equal(ours["out"], np.append(x, x[-1]) + 1)


def test_a_number_of_its_own_is_a_value_by_lane():
    f = st.Function("numbers", (OUT,), st.block(st.store(OUT[lane()], cast(lane(), "f32"))))
    assert "out[(long long)lane]" in emit_cuda(f)
    branch = st.If(lt(lane(), 3), st.block(st.store(OUT[0], 1.0)))
    with pytest.raises(ProgramError, match="control flow must be the same on every lane"):
        emit_cuda(st.Function("branch", (OUT,), st.block(branch)))
