"""Rows at equal distances are moved between memory and lanes."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest

from tests.gen import programs
from tests.gen.programs import compiled_together, run_both
from trnqc.errors import ProgramError
from trnqc.gen import Array, Var, const, emit_cuda, listing
from trnqc.gen import statements as st
from trnqc.gen.cost import cost

begin = Var("begin", "i64")
# Elements between rows, and elements of a row.
SHAPES = [(1, 1), (3, 3), (5, 5), (7, 7), (2, 2), (6, 6), (4, 1), (5, 3), (15, 15)]


def doubled(dtype: str, stride: int, count: int, rows: int) -> st.Function:
    """Rows of `table`, doubled, to the rows of `out`; `buffer` keeps what every lane got."""
    table, out = Array("table", dtype, (None,)), Array("out", dtype, (None,))
    held, buffer = Array("held", dtype, (count + 1,), "local", lanes=True), Array("buffer", dtype, lanes=True)
    one = const(1, "i64")
    body = st.block(
        st.DeclareArray(held),
        st.Unpack(held, one, table, begin + 2, stride, count, rows),
        [st.store(buffer[i], held[i + 1] + held[i + 1]) for i in range(count)],
        st.Pack(out, begin, buffer, const(0, "i64"), stride, count, rows),
    )
    return st.Function(f"packed_{stride}_{count}_{rows}", (begin, table, out, buffer), body)


def rows_of(lanes: int) -> set[int]:
    """One for every lane, and fewer."""
    return {lanes, 1, max(1, lanes - 1), lanes // 2 + 1}


@cache
def every_shape(dtype: str, lanes: int):
    """All functions of these elements and lanes, compiled together."""
    return compiled_together([doubled(dtype, *shape, rows) for shape in SHAPES for rows in rows_of(lanes)], lanes)


@pytest.mark.parametrize("lanes", [1, 2, 4, 8, 16])
@pytest.mark.parametrize("dtype", ["f64", "f32", "i32"])
@pytest.mark.parametrize("stride, count", SHAPES)
def test_every_lane_has_its_row(lanes, dtype, stride, count):
    kind = programs.NUMPY[dtype]
    table = (np.random.default_rng(count).normal(size=300) * 50).astype(kind)
    for rows in rows_of(lanes):
        out = np.arange(300).astype(kind)
        inputs = {"begin": 3, "table": table, "out": out, "buffer": np.ones((count, lanes), kind)}
        ours, theirs = run_both(doubled(dtype, stride, count, rows), inputs, lanes, library=every_shape(dtype, lanes))
        want, buffer = inputs["out"].copy(), np.zeros((count, lanes), kind)
        for lane in range(min(rows, lanes)):
            buffer[:, lane] = 2 * table[5 + lane * stride :][:count]
            want[3 + lane * stride :][:count] = buffer[:, lane]
        for result in (ours, theirs):
            np.testing.assert_array_equal(result["out"], want)
            np.testing.assert_array_equal(result["buffer"], buffer)


def test_threads_without_a_row_touch_nothing():
    text = emit_cuda(doubled("f64", 3, 3, 20), lanes=32)
    assert "lane < 20 ? table[begin + 2 + (long long)lane * 3 + row__] : 0;" in text
    assert "if (lane < 20) out[" in text
    assert "lane < " not in emit_cuda(doubled("f64", 3, 3, 32), lanes=32)


def test_read_by_people_and_counted():
    program = doubled("f64", 5, 3, 8)
    assert "held[1 ..] = table[begin + 2 ..]: 3 of 8 rows, 5 apart" in listing(program)
    assert "out[begin ..] = buffer[0 ..]: 3 of 8 rows, 5 apart" in listing(program)
    counted = cost(program)
    assert (str(counted.read), str(counted.written)) == ("48", "48")


@pytest.mark.parametrize("stride, count, rows", [(1, 2, 8), (3, 0, 8), (3, 3, 0)])
def test_rows_that_cannot_be_moved(stride, count, rows):
    with pytest.raises(ProgramError, match="packed rows need at least"):
        emit_cuda(doubled("f64", stride, count, rows))


def test_one_side_is_of_lanes():
    table = Array("table", "f64")
    body = st.block(st.Unpack(table, const(0, "i64"), table, begin, 1, 1, 8))
    with pytest.raises(ProgramError, match="unpacked from an array without lanes"):
        emit_cuda(st.Function("wrong", (begin, table), body))
