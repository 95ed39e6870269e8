"""Rows read ahead: every step has its arrays, none is read twice in neighbouring steps, and few are kept."""

from __future__ import annotations

import threading

import numpy as np
import pytest

from trnqc.fitted.rows import read_ahead

SNAKE = [(0, 0), (1, 0), (1, 1), (2, 1), (2, 0)]


@pytest.mark.parametrize(("steps", "reads"), [([], []), ([(0, 1)], [0, 1]), (SNAKE, [0, 1, 2, 0])], ids=str)
def test_every_step_has_its_arrays(steps, reads):
    read = []

    def array(key):
        read.append(key)
        return np.array(key)

    found = [tuple(int(rows) for rows in arrays) for arrays in read_ahead(iter(steps), array, 3)]
    assert (found, read) == (steps, reads)


@pytest.mark.parametrize("most", [2, 3, 4])
def test_no_more_arrays_are_kept(most):
    read = []
    arrays = read_ahead([(0, 1), (2, 3)], lambda n: read.append(n) or np.array(n), most)
    next(arrays)
    arrays.close()
    assert read == [0, 1, 2, 3][:most]


def test_the_next_array_is_read_while_one_is_used():
    begun = {n: threading.Event() for n in range(3)}

    def read(n):
        begun[n].set()
        return np.array(n)

    for (rows,) in read_ahead(((n,) for n in range(3)), read, 2):
        if rows < 2:
            assert begun[int(rows) + 1].wait(10)
        if rows == 0:
            assert not begun[2].is_set()


def test_an_error_of_reading_is_raised():
    def read(n):
        if n:
            raise OSError("no such row")
        return np.array(n)

    rows = read_ahead([(0,), (1,)], read, 2)
    assert next(rows) == [0]
    with pytest.raises(OSError, match="no such row"):
        next(rows)
