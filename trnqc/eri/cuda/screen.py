"""Screening on a GPU: a group of lanes queues the ket pairs of one row that matter.

A row is a bra pair with a range of ket pairs, of which each lane tests one at a time. The test is that of the CPU's
driver (jk/batch.py). Where a lane puts its pair in the queue follows from the lanes before it that pass, which are
counted in two steps: in blocks of WIDTH lanes, and over the blocks. Queues keep the order of the pairs.
"""

from __future__ import annotations

from trnqc.eri.jk.batch import NUMBERS, REALS, SCHWARZ, SHELL_A, SHELL_B, Batch, G
from trnqc.gen import Array, Value, Var, const
from trnqc.gen import statements as st
from trnqc.gen.values import both, cast, eq, lane, le, lt, maximum, minimum, select
from trnqc.jit import Recipe, Signature

# Lanes of a group.
LANES = 128
# Lanes of a block in which passing lanes are counted. Groups whose lanes are no multiple of it have one block.
WIDTH = 16
# The numbers of a launch: the task, a row of `numbers`; the bra pair of row 0, and the step to the next one, which is
# the number of devices; rows of each bra pair; the range of ket pairs, and the ket pairs of each row.
ROW = {name: Var(name, "i64") for name in ("task", "first_pair", "step", "parts", "ket_begin", "ket_end", "ket_part")}
# The arrays of a driver that are read and written here.
ARRAYS = ("reals", "bra_places", "bra_measures", "ket_places", "ket_measures", "dm_max", "queue", "weight")
# The numbers of all tasks, and the ket pairs in the queue of each row.
ALL_NUMBERS, COUNTS = Array("numbers", "i64", (None, len(NUMBERS))), Array("counts", "i64", (None,))

_ZERO, _ONE = const(0, "i64"), const(1, "i64")
_Q, _CUTOFF, _LARGEST = Var("bra_bound"), Var("cutoff"), Var("largest")
_SAME, _SHELLS = Var("same", "i64"), Var("shells", "i64")
_QUEUE_STEP = Var("queue_step", "i64")


def row_pair(row: Value) -> Value:
    """Return the bra pair of a row."""
    return ROW["first_pair"] + row // ROW["parts"] * ROW["step"]


def queue_size(kets: int, lanes: int) -> int:
    """Return the positions of a queue: those of the pairs, and a vector behind them."""
    return kets + lanes


def parameters(batch: Batch) -> tuple[Value | Array, ...]:
    """Return the parameters of `screen`: ROW, the size of a queue, then arrays."""
    return (*ROW.values(), _QUEUE_STEP, ALL_NUMBERS, COUNTS, *(batch.arrays[name] for name in ARRAYS))


def recipe(batch: Batch, lanes: int) -> Recipe:
    """Return the recipe of the program for groups of so many lanes."""
    name = f"screen_{batch.name}"
    signature = Signature.declared(name, parameters(batch), ("counts", "queue", "weight"))
    return Recipe(name, (signature,), lambda: (screen(batch, lanes),), __name__, variant=str(lanes))


def screen(batch: Batch, lanes: int) -> st.Function:
    """Build the program, whose groups are the rows.

    It fills `queue` with the ket pairs of a row that matter and `weight` with their factors. Behind them is one more
    vector of pairs with weight 0. Their number is stored in `counts`.
    """
    row, begin = Var("row", "i64"), Var("begin", "i64")
    arrays = {name: batch.arrays[name] for name in ARRAYS}
    own = {name: st.View(arrays[name], row * _QUEUE_STEP) for name in ("queue", "weight")}
    own["numbers"] = st.View(ALL_NUMBERS, ROW["task"] * len(NUMBERS))
    start = ROW["ket_begin"] + row % ROW["parts"] * ROW["ket_part"]
    call = st.call(
        _row(batch, lanes),
        pair=row_pair(row),
        begin=begin,
        end=minimum(begin + ROW["ket_part"], ROW["ket_end"]),
        row=row,
        counts=COUNTS,
        **(arrays | own),
    )
    body = st.block(st.Let(begin, start), call)
    title = f"({batch.cls.digits}): ket pairs that matter"
    return st.Function(f"screen_{batch.name}", parameters(batch), body, group=row, title=title)


def _row(batch: Batch, lanes: int) -> st.Function:
    """Return the function of one row."""
    a = batch.arrays
    k, stop, last, count = (Var(x, "i64") for x in ("k", "stop", "last", "count"))
    begin, end, row = (Var(x, "i64") for x in ("begin", "end", "row"))
    pad = count + lane()
    matters = le(_CUTOFF, _Q * a["ket_measures"][minimum(k, stop - 1), SCHWARZ] * _LARGEST)
    body = st.block(
        [st.DeclareArray(array) for array in _counters(lanes)],
        [st.Let(v, a["numbers"][NUMBERS.index(v.attr)]) for v in (_SAME, _SHELLS)],
        [st.Let(v, a["reals"][REALS.index(v.attr)]) for v in (_CUTOFF, _LARGEST)],
        st.Let(Var("shell_a", "i64"), a["bra_places"][G, SHELL_A]),
        st.Let(Var("shell_b", "i64"), a["bra_places"][G, SHELL_B]),
        st.Let(_Q, a["bra_measures"][G, SCHWARZ]),
        # Of a table with itself, only ket pairs up to the bra pair.
        st.Let(stop, select(eq(_SAME, _ONE), minimum(end, G + 1), end)),
        st.Declare(count, _ZERO),
        st.Declare(k, begin),
        st.While(both(lt(k, stop), matters), _vector(batch, lanes, k, stop, count)),
        st.Barrier(),
        st.Let(last, select(lt(_ZERO, count), a["queue"][maximum(count - 1, _ZERO)], _ZERO)),
        st.store(a["queue"][pad], last),
        st.store(a["weight"][pad], 0.0),
        st.store(COUNTS[row], count),
    )
    arrays = tuple(a[name] for name in ("numbers", *ARRAYS))
    return st.Function(f"screen_row_{batch.name}", (G, begin, end, row, COUNTS, *arrays), body)


def _width(lanes: int) -> int:
    return lanes if lanes % WIDTH else WIDTH


def _counters(lanes: int) -> tuple[Array, Array]:
    """Return the arrays in shared memory for whether each lane passes, and how many of each block do."""
    return Array("flags", "i32", (lanes,), "shared"), Array("passing", "i32", (lanes // _width(lanes),), "shared")


def _vector(batch: Batch, lanes: int, k: Value, stop: Value, count: Value) -> st.Block:
    """Test one ket pair on each lane, and queue those that pass."""
    a, (flags, blocks), width = batch.arrays, _counters(lanes), _width(lanes)
    at, block, passes, mine = Var("at", "i64"), Var("block", "i64"), Var("passes", "i32"), Var("mine", "i64")
    before, total, j = Var("before", "i64"), Var("total", "i64"), Var("j", "i64")
    in_block, f, place, half = Var("in_block", "i64"), Var("f", "i64"), Var("place", "i64"), Var("half")
    count_block = [
        st.Let(f, cast(flags[block * width + j], "i64")),
        st.Assign(in_block, in_block + f),
        st.Assign(before, before + select(lt(block * width + j, lane()), f, _ZERO)),
    ]
    count_blocks = [
        st.Let(mine, cast(blocks[j], "i64")),
        st.Assign(total, total + mine),
        st.Assign(before, before + select(lt(j, block), mine, _ZERO)),
    ]
    return st.block(
        st.Let(at, minimum(k + lane(), stop - 1)),
        _test(batch, at, lt(k + lane(), stop), passes, half),
        st.Let(block, lane() // width),
        st.store(flags[lane()], passes),
        st.Barrier(),
        st.Declare(before, _ZERO),
        st.Declare(in_block, _ZERO),
        st.loop(j, const(width, "i64"), count_block),
        st.store(blocks[block], cast(in_block, "i32")),
        st.Barrier(),
        st.Declare(total, _ZERO),
        st.loop(j, const(blocks.size or 0, "i64"), count_blocks),
        st.Let(place, count + before),
        st.store(a["queue"][place], at, where=eq(passes, const(1, "i32"))),
        st.store(a["weight"][place], half, where=eq(passes, const(1, "i32"))),
        st.Assign(count, count + total),
        st.Assign(k, k + lanes),
    )


def _test(batch: Batch, at: Value, valid: Value, passes: Value, half: Value) -> list[st.Statement]:
    """Define `passes`, 1 if the quartet of bra pair G and ket pair `at` matters and else 0, and its factor `half`."""
    a, dm = batch.arrays, batch.arrays["dm_max"]
    sa, sb, sc, sd = (Var(f"shell_{x}", "i64") for x in "abcd")
    largest: Value = const(0.0)
    for test in [4.0 * dm[sa, sb], 4.0 * dm[sc, sd]] if batch.with_j else []:
        largest = maximum(test, largest)
    for test in [dm[x, y] for x in (sa, sb) for y in (sc, sd)] if batch.with_k else []:
        largest = maximum(test, largest)
    bound = _Q * a["ket_measures"][at, SCHWARZ]
    matters = both(valid, le(_CUTOFF, bound * minimum(largest, 1.0)))
    factor = select(eq(sa, sb), const(0.5), const(1.0))
    factor = select(eq(sc, sd), 0.5 * factor, factor)
    same = both(eq(_SAME, _ONE), eq(at, G))
    return [
        st.Let(sc, a["ket_places"][at, SHELL_A]),
        st.Let(sd, a["ket_places"][at, SHELL_B]),
        st.Let(passes, select(matters, const(1, "i32"), const(0, "i32"))),
        st.Let(half, select(same, 0.5 * factor, factor)),
    ]
