"""Elements of a sparse result that are computed out of order are put in order: by bits, in lists, and in tables."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse

from trnqc.sparse.lower.sorting import SHORT
from trnqc.sparse.lower.workspace import CROWDED, MOST_WORDS, WORD
from trnqc.sparse.network.nest import Format
from trnqc.sparse.network.network import network
from trnqc.sparse.run.kernel import NestKernel, compiled
from trnqc.sparse.run.operands import NetworkOperands
from trnqc.sparse.search.named_nests import fused
from trnqc.sparse.tensors.convert import as_tensor
from trnqc.sparse.tensors.storage import SparseTensor, from_coo


def run(subscripts, tensors, tree, loops, threads=1, full=(), stored=None) -> tuple[SparseTensor, NestKernel]:
    inputs = tuple(map(as_tensor, tensors))
    net = network(subscripts, [tensor.shape for tensor in inputs])
    nest = fused(net, tree, [tuple(each) for each in loops], full, space="listed")
    kernel = compiled(nest if stored is None else replace(nest, formats=(*nest.formats[:-1], stored)))
    return kernel(NetworkOperands(net, inputs).for_nest(kernel.program.nest.formats), threads).check(), kernel


def workspaces(kernel):
    return list(kernel.program.tensors.workspaces.values())


def rows_of_many_lengths(rng):
    lengths = rng.choice([0, 1, 2, 5, 60], 80)
    where = rng.integers(0, 90, lengths.sum()), np.concatenate([[0], lengths.cumsum()])
    return scipy.sparse.csr_array((rng.standard_normal(lengths.sum()), *where), shape=(80, 90))


# One word of bits, one more than a word, the most words that are looked through, and one, two and three levels more.
@pytest.mark.parametrize("columns", [1, 63, 64, 65, 256, 257, 6000, 16384, 16385, 1_048_577])
@pytest.mark.parametrize("threads", [1, 2])
def test_rows_by_bits(columns, threads):
    rng = np.random.default_rng(2)
    left = rows_of_many_lengths(rng)
    density = min(1.0, 2000 / columns / 90)
    right = scipy.sparse.random_array((90, columns), density=density, rng=rng).tocsr()
    expected = (left @ right).tocsr()
    result, kernel = run("ij,jk->ik", (left, right), (0, 1), ["ijk"], threads)
    (workspace,) = workspaces(kernel)
    assert workspace.in_order
    assert min(workspace.bits.values()) <= MOST_WORDS
    assert len(workspace.bits) == 1 + sum(columns > MOST_WORDS * WORD**n for n in (1, 2, 3))
    assert abs(result.to_scipy().tocsr() - expected).max() < 1e-13
    assert result.nnz == expected.nnz


def test_two_indices_by_bits():
    rng = np.random.default_rng(4)
    a = from_coo((30, 40), [rng.integers(0, n, 150) for n in (30, 40)], rng.standard_normal(150))
    b = from_coo((40, 17, 67), [rng.integers(0, n, 200) for n in (40, 17, 67)], rng.standard_normal(200))
    result, kernel = run("ij,jkl->ikl", (a, b), (0, 1), ["ijkl"])
    assert workspaces(kernel)[0].in_order
    assert workspaces(kernel)[0].spec.order == ("k", "l")
    np.testing.assert_allclose(result.to_dense(), np.einsum("ij,jkl->ikl", a.to_dense(), b.to_dense()), atol=1e-13)


@pytest.mark.parametrize("threads", [1, 2])
def test_a_whole_result_by_bits(threads):
    rng = np.random.default_rng(7)
    left = rows_of_many_lengths(rng)
    right = scipy.sparse.random_array((90, 700), density=0.02, rng=rng).tocsr()
    columns = Format(("k", "i"), ("dense", "compressed"))
    result, kernel = run("ij,jk->ik", (left, right), (0, 1), ["ijk"], threads, stored=columns)
    assert workspaces(kernel)[0].in_order and workspaces(kernel)[0].kept
    expected = (left @ right).tocsr()
    assert abs(result.to_scipy().tocsr() - expected).max() < 1e-13
    assert result.nnz == expected.nnz


def test_factors_of_the_result_that_store_all_values():
    rng = np.random.default_rng(5)
    left, d = rows_of_many_lengths(rng), rng.standard_normal(700)
    right = scipy.sparse.random_array((90, 700), density=0.02, rng=rng).tocsr()
    result, kernel = run("ij,jk,k->ik", (left, right, d), ((0, 1), 2), ["ijk", "ik"], full=(2,))
    assert workspaces(kernel)[0].in_order
    expected = (left @ right).tocsr() * d[None, :]
    assert abs(result.to_scipy().tocsr() - expected).max() < 1e-13
    assert result.nnz == (left @ right).nnz


def test_a_stored_factor_of_the_result_has_its_own_order():
    rng = np.random.default_rng(6)
    left = rows_of_many_lengths(rng)
    right, d = (scipy.sparse.random_array((n, 700), density=0.05, rng=rng).tocsr() for n in (90, 80))
    result, kernel = run("ij,jk,ik->ik", (left, right, d), ((0, 1), 2), ["ijk", "ik"])
    assert not workspaces(kernel)[0].in_order
    assert abs(result.to_scipy().tocsr() - (left @ right).tocsr() * d).max() < 1e-13


@pytest.mark.parametrize("threads", [1, 2])
def test_short_and_long_lists(threads):
    rng = np.random.default_rng(2)
    left = rows_of_many_lengths(rng)
    right = scipy.sparse.random_array((90, 6000), density=0.01, rng=rng).tocsr()
    ones = scipy.sparse.csr_array(np.ones((80, 1))), scipy.sparse.csr_array(np.ones((1, 6000)))
    expected = (left @ right).tocsr()
    touched = np.diff(expected.indptr)
    # Rows that are sorted by insertion, through a heap, and by a pass over all columns.
    assert (touched <= SHORT).any()
    assert ((touched > SHORT) & (touched * CROWDED < 6000)).any()
    assert (touched * CROWDED > 6000).any()
    result, kernel = run("ij,jk,il,lk->ik", (left, right, *ones), ((0, 1), (2, 3)), ["ijk", "ilk", "ik"], threads)
    assert not any(workspace.in_order for workspace in workspaces(kernel))
    assert abs(result.to_scipy().tocsr() - expected).max() < 1e-13
    assert result.nnz == expected.nnz


def test_tables():
    rng = np.random.default_rng(3)
    a = from_coo((3, 50, 2100), [rng.integers(0, n, 400) for n in (3, 50, 2100)], rng.standard_normal(400))
    b = from_coo((50, 2200), [rng.integers(0, n, 300) for n in (50, 2200)], rng.standard_normal(300))
    result, kernel = run("bji,jk->bik", (a, b), (0, 1), ["bjik"])
    assert workspaces(kernel)[0].hashed
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
