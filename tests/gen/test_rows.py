"""Rows are moved between memory and lanes, one row for each lane."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from tests.gen import programs
from tests.gen.programs import compiled_together, run_both
from trnqc.errors import ProgramError
from trnqc.gen import Array, Var, const, emit_c, emit_cuda, listing
from trnqc.gen import statements as st
from trnqc.gen.cost import cost

n = Var("n", "i64")
at = Array("at", "i64", (2,), lanes=True)


def copy_and_add(dtype: str, count, local: bool = False) -> st.Function:
    """Each lane's row of `table` is doubled and added to its row of `sums`."""
    table, sums = Array("table", dtype, (None,)), Array("sums", dtype, (None,))
    buffer = Array("buffer", dtype, (count if local else n,), "local" if local else "global", lanes=True)
    i = Var("i", "i64")
    length = const(count, "i64") if local else n
    body = st.block(
        [st.DeclareArray(buffer)] * local,
        st.GatherRows(buffer, table, at[0], length),
        st.loop(i, length, st.store(buffer[i], buffer[i] + buffer[i])),
        st.ScatterRows(sums, buffer, at[1] + 1, length),
    )
    return st.Function(f"rows_{count}" if local else "rows", (n, table, sums, at, *[buffer] * (not local)), body)


LENGTHS = [
    (1, False),
    (3, True),
    (4, True),
    (5, False),
    (6, True),
    (7, False),
    (8, False),
    (9, True),
    (21, False),
    (15, True),
]


@cache
def every_length(dtype: str, lanes: int):
    """All functions of these elements and lanes, compiled together."""
    fixed = [copy_and_add(dtype, count, True) for count, local in LENGTHS if local]
    return compiled_together([copy_and_add(dtype, 1), *fixed], lanes)


@pytest.mark.parametrize("lanes", [1, 2, 4, 8])
@pytest.mark.parametrize("dtype", ["f64", "f32", "i64"])
@pytest.mark.parametrize("count, local", LENGTHS)
def test_every_lane_has_its_row(lanes, dtype, count, local):
    rng = np.random.default_rng(count + lanes)
    kind = programs.NUMPY[dtype]
    table = (rng.normal(size=300) * 50).astype(kind)
    # Lanes 1, 2, 3 add to the row of lane 0; the others are apart.
    to = np.where(np.arange(lanes) < 4, 0, np.arange(lanes)) * count
    inputs = {
        "n": count,
        "table": table,
        "sums": np.arange(10 * 21 + 1).astype(kind),
        "at": np.stack([rng.integers(0, 300 - count, lanes), to]),
        "buffer": np.zeros((count, lanes), kind),
    }
    inputs = {k: v for k, v in inputs.items() if not (local and k == "buffer")}
    ours, theirs = run_both(copy_and_add(dtype, count, local), inputs, lanes, library=every_length(dtype, lanes))
    np.testing.assert_array_equal(ours["sums"], theirs["sums"])
    want = inputs["sums"].copy()
    for lane in range(lanes):
        start = inputs["at"][:, lane]
        want[start[1] + 1 : start[1] + 1 + count] += 2 * table[start[0] : start[0] + count]
    np.testing.assert_array_equal(theirs["sums"], want)
    if not local:
        np.testing.assert_array_equal(ours["buffer"], theirs["buffer"])


def test_a_gpu_adds_atomically():
    text = emit_cuda(copy_and_add("f64", 3), lanes=64)
    assert "atomicAdd(&sums[" in text
    assert "buffer[row__ * 64 + lane] = table[at[lane] + row__];" in text.replace("at[0 * 64 + lane]", "at[lane]")


def test_read_by_people_and_counted():
    program = copy_and_add("f64", 3)
    assert "buffer = table[at[0] .. + n]" in listing(program)
    assert "sums[at[1] + 1 .. + n] += buffer" in listing(program)
    assert cost(program).flops.at(n=5) == 2 * 5
    assert cost(copy_and_add("f64", 3, local=True)).written.at() == 8 * 3


def test_what_rows_may_not_be():
    table, lanes = Array("table", "f64", (None,)), Array("lanes", "f64", (None,), lanes=True)
    other = Array("other", "f32", (None,))
    for wrong, match in [
        (st.GatherRows(table, lanes, at[0], n), "rows are gathered from"),
        (st.GatherRows(lanes, lanes, at[0], n), "rows are gathered from"),
        (st.GatherRows(lanes, other, at[0], n), "the same type"),
        (st.ScatterRows(lanes, table, at[0], n), "rows are gathered from"),
        (st.GatherRows(lanes, table, at[0], at[1]), "length"),
        (st.GatherRows(Array("nowhere", "f64", (4,), lanes=True), table, at[0], n), "outside its scope"),
    ]:
        with pytest.raises(ProgramError, match=match):
            emit_c(st.Function("rows", (n, at, table, lanes, other), st.block(wrong)), lanes=4)
