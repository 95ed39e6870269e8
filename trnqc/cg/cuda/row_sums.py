"""Kernels that add rows of a result up in a fixed order: the segments of a node, and gradients of shared weights."""

from __future__ import annotations

from dataclasses import dataclass

from trnqc.cg.cuda.kernel import DTYPES
from trnqc.gen import Array, Value, Var
from trnqc.gen import statements as st
from trnqc.gen.values import lane, minimum

# Largest number of rows that a lane adds up in a step of `levels`.
LONGEST = 64


@dataclass(frozen=True)
class SumLevel:
    """A step: rows to + n = sum of rows first + n length to first + (n + 1) length - 1, all below `stop`."""

    first: int
    stop: int
    length: int
    to: int

    def __len__(self) -> int:
        return -(-(self.stop - self.first) // self.length)


def levels(count: int, longest: int = LONGEST) -> list[SumLevel]:
    """Return the steps in which rows 0 to count - 1 are summed into row 0.

    Each step sums ranges of at most `longest` rows. Its results are stored in new rows, after all others, except the
    result of the last step.
    """
    steps, begin, end = [], 0, count
    while end - begin > longest:
        steps.append(SumLevel(begin, end, longest, end))
        begin, end = end, end + len(steps[-1])
    return [*steps, SumLevel(begin, end, end - begin, 0)] if count else steps


def levels_rows(count: int, longest: int = LONGEST) -> int:
    """Return the number of rows that `levels` uses in total."""
    return max([count, *(level.to + len(level) for level in levels(count, longest))])


def sum_level(size: int, lanes: int) -> st.Function:
    """Return the kernel of a `SumLevel`, with one group for each of its sums and each block of `lanes` columns.

    Rows have `columns` elements of `size` bytes.
    """
    first, stop, length, to = (Var(name, "i64") for name in ("first", "stop", "length", "to"))
    which, begin = Var("which", "i64"), Var("begin", "i64")
    let = st.Let(begin, first + which * length)
    body = _sum(size, lanes, which, let, begin, minimum(begin + length, stop), to + which)
    params = (_COLUMNS, first, stop, length, to, Array("rows", DTYPES[size]))
    return st.Function(f"cg_sum_level_{DTYPES[size]}", params, body, group=_GROUP, title="sums of rows, in order")


def sum_segments(size: int, lanes: int) -> st.Function:
    """Return the kernel of `segments.Ranges`, with one group for each range and each block of `lanes` columns."""
    begin, end, row = (Array(name, "i64") for name in ("begin", "end", "row"))
    which, start = Var("which", "i64"), Var("start", "i64")
    body = _sum(size, lanes, which, st.Let(start, begin[which]), start, end[which], row[which])
    params = (_COLUMNS, begin, end, row, Array("rows", DTYPES[size]))
    return st.Function(f"cg_sum_segments_{DTYPES[size]}", params, body, group=_GROUP, title="sums of segments")


_GROUP, _COLUMNS = Var("group", "i64"), Var("columns", "i64")


def _sum(size: int, lanes: int, which: Value, let: st.Statement, begin: Value, end: Value, row: Value) -> st.Block:
    """Return the statements that store the sum of rows `begin` to `end` - 1 in `row`, for one block of columns."""
    r, c, total = Var("r", "i64"), Var("c", "i64"), Var("total", DTYPES[size])
    rows = Array("rows", DTYPES[size])
    blocks = (_COLUMNS + (lanes - 1)) // lanes
    return st.block(
        st.Let(which, _GROUP // blocks),
        let,
        st.Let(c, minimum(_GROUP % blocks * lanes + lane(), _COLUMNS - 1)),
        st.Declare(total, rows[begin * _COLUMNS + c]),
        st.loop(r, end, st.Assign(total, total + rows[r * _COLUMNS + c]), begin=begin + 1),
        # Several lanes may have the last column. All of them read it before any of them writes.
        st.Barrier(),
        st.store(rows[row * _COLUMNS + c], total),
    )
