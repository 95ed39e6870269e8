"""Elements of a sparse result that are computed out of order are sorted: few and many per row, and in tables."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse

from trnqc.sparse.lower.sorting import SHORT
from trnqc.sparse.lower.workspace import CROWDED
from trnqc.sparse.network.network import network
from trnqc.sparse.run.kernel import compiled
from trnqc.sparse.run.operands import NetworkOperands
from trnqc.sparse.search.named_nests import fused
from trnqc.sparse.tensors.convert import as_tensor
from trnqc.sparse.tensors.storage import from_coo


def run(subscripts, tensors, loops, threads=1):
    inputs = tuple(map(as_tensor, tensors))
    net = network(subscripts, [tensor.shape for tensor in inputs])
    nest = fused(net, (0, 1), [tuple(loops)])
    return compiled(nest)(NetworkOperands(net, inputs).for_nest(nest.formats), threads).check()


@pytest.mark.parametrize("threads", [1, 2])
def test_short_and_long_rows(threads):
    rng = np.random.default_rng(2)
    lengths = rng.choice([0, 1, 2, 5, 60], 80)
    left = scipy.sparse.csr_array(
        (
            rng.standard_normal(lengths.sum()),
            rng.integers(0, 90, lengths.sum()),
            np.concatenate([[0], lengths.cumsum()]),
        ),
        shape=(80, 90),
    )
    right = scipy.sparse.random_array((90, 6000), density=0.01, rng=rng).tocsr()
    expected = (left @ right).tocsr()
    touched = np.diff(expected.indptr)
    # Rows that are sorted by insertion, through a heap, and by a pass over all columns.
    assert (touched <= SHORT).any()
    assert ((touched > SHORT) & (touched * CROWDED < 6000)).any()
    assert (touched * CROWDED > 6000).any()
    result = run("ij,jk->ik", (left, right), "ijk", threads)
    assert abs(result.to_scipy().tocsr() - expected).max() < 1e-13
    assert result.nnz == expected.nnz


def test_tables():
    rng = np.random.default_rng(3)
    a = from_coo((3, 50, 2100), [rng.integers(0, n, 400) for n in (3, 50, 2100)], rng.standard_normal(400))
    b = from_coo((50, 2200), [rng.integers(0, n, 300) for n in (50, 2200)], rng.standard_normal(300))
    result = run("bji,jk->bik", (a, b), "bjik")
    at, values = a.to_coo()
    for batch in range(3):
        here = at[0] == batch
        left = scipy.sparse.coo_array((values[here], (at[2, here], at[1, here])), shape=(2100, 50)).tocsr()
        expected = (left @ b.to_scipy().tocsr()).tocoo()
        coordinates, numbers = result.to_coo()
        part = coordinates[0] == batch
        part_of_result = scipy.sparse.coo_array((numbers[part], tuple(coordinates[1:, part])), shape=(2100, 2200))
        assert part.sum() == expected.nnz
        assert abs(part_of_result.tocsr() - expected.tocsr()).max() < 1e-13
