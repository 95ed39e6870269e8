"""Columns of all rows, one share on each rank, exchanged for all columns of some rows."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest

from tests.mp2.thread_ranks import on_threads
from trnqc.fitted import ranks as exchange
from trnqc.ranks import ALONE


@pytest.mark.parametrize("piece", [1, 200, exchange.PIECE], ids=["one row", "several rows", "whole"])
@pytest.mark.parametrize("size", [1, 2, 5])
def test_every_rank_gets_all_columns_of_its_rows(size, piece, monkeypatch):
    monkeypatch.setattr(exchange, "PIECE", piece)
    whole = np.arange(17.0 * 11).reshape(17, 11)
    ends = (np.linspace(0, n, size + 1).astype(int) for n in whole.shape)
    rows, columns = ([slice(begin, end) for begin, end in pairwise(edges)] for edges in ends)

    def work(ranks):
        mine, count = whole[:, columns[ranks.rank]], len(whole[rows[ranks.rank]])
        own, turned = np.zeros((count, 11)), np.zeros((11, count))
        exchange.fill_from_every_rank(
            ranks,
            lambda to: [mine[rows[to]], mine[rows[to]].T],
            lambda source: [own[:, columns[source]], turned[columns[source]]],
        )
        return np.stack([own, turned.T], axis=-1)

    results = on_threads(size, work) if size > 1 else [work(ALONE)]
    np.testing.assert_array_equal(np.concatenate(results), np.stack([whole, whole], axis=-1))
