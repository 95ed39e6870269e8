"""The PSUM state, which keeps the region in use apart, against one code an element."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from trnqc.sim.memory.psum import DRAINED, FILLED, FRESH, OPEN, REFILLED, PsumState

ROWS, COLUMNS = 4, 6


@st.composite
def regions(draw):
    r0, c0 = draw(st.integers(0, ROWS - 1)), draw(st.integers(0, COLUMNS - 1))
    rows, step = draw(st.integers(1, ROWS - r0)), draw(st.integers(1, 2))
    columns = draw(st.integers(1, (COLUMNS - c0 + step - 1) // step))
    return r0 * COLUMNS + c0, (rows, columns), (COLUMNS, step)


def elements(state, key):
    offset, shape, strides = key
    return np.ndarray(shape, np.uint8, state, offset, strides)


@settings(max_examples=200, deadline=None)
@given(st.lists(st.tuples(st.sampled_from(["multiply", "read", "fill"]), regions()), max_size=12), regions())
def test_regions_in_any_order(steps, last):
    state, plain = PsumState(ROWS, COLUMNS), np.zeros(ROWS * COLUMNS, np.uint8)
    for what, key in steps:
        part = elements(plain, key)
        if what == "multiply":
            state.set(key, OPEN)
            part[...] = OPEN
        elif what == "read":
            state.mark_read(key)
            part[part == OPEN] = DRAINED
        else:
            state.mark_filled(key)
            part[...] = np.where((part == FRESH) | (part == FILLED), FILLED, REFILLED)
    code, mixed = state.codes_of(last)
    want = elements(plain, last)
    if mixed is None:
        assert (want == code).all()
    else:
        np.testing.assert_array_equal(mixed, want)
        assert len(np.unique(want)) > 1
