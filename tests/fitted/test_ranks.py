"""Columns of all rows, one share on each rank, exchanged for all columns of some rows."""

from __future__ import annotations

import numpy as np
import pytest

from tests.mp2.thread_ranks import on_threads
from trnqc.fitted.ranks import from_every_rank
from trnqc.ranks import ALONE


@pytest.mark.parametrize("size", [1, 2, 5])
def test_every_rank_gets_all_columns_of_its_rows(size):
    whole = np.arange(13.0 * 11).reshape(13, 11)
    rows, columns = (np.array_split(np.arange(n), size) for n in whole.shape)

    def work(ranks):
        own, mine = np.zeros((len(rows[ranks.rank]), 11)), whole[:, columns[ranks.rank]]
        parts = from_every_rank(ranks, lambda to: [mine[rows[to]]], lambda source: [(len(own), len(columns[source]))])
        for source, (part,) in parts:
            own[:, columns[source]] = part
        return own

    results = on_threads(size, work) if size > 1 else [work(ALONE)]
    np.testing.assert_array_equal(np.concatenate(results), whole)
