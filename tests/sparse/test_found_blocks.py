"""Blocks that the stored elements of sparse tensors form are found and computed as such."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from scripts.workloads.irreps import irreps
from trnqc.errors import InputError, OperandError
from trnqc.sparse import SparseTensor, api, contract, from_dense, plan
from trnqc.sparse.blocks.find import found_blocks, to_blocks, to_elements
from trnqc.sparse.blocks.plan import BlockPlan
from trnqc.sparse.network.network import network
from trnqc.sparse.tensors.storage import from_coo


def in_blocks(sizes: list[tuple[int, ...]], fill: float, seed: int) -> np.ndarray:
    """An array of blocks of these sizes, of which about the part `fill` is not zero."""
    draw = np.random.default_rng(seed)
    array = draw.uniform(0.5, 2, [sum(mode) for mode in sizes]) * draw.choice((-1, 1), [sum(mode) for mode in sizes])
    stored = draw.random([len(mode) for mode in sizes]) < fill
    for axis, mode in enumerate(sizes):
        stored = np.repeat(stored, mode, axis)
    return array * stored


@settings(max_examples=40, deadline=None)
@given(
    some.lists(some.lists(some.integers(5, 9), min_size=2, max_size=5).map(tuple), min_size=2, max_size=3),
    some.floats(0.1, 0.8),
    some.integers(0, 99),
)
def test_blocks_are_found(sizes, fill, seed):
    """The blocks are those of the array or larger, and have its elements and no others."""
    array = in_blocks(sizes, fill, seed)
    tensor = from_dense(array)
    found = found_blocks(network("abc"[: array.ndim] + "->" + "abc"[: array.ndim], [array.shape]), [tensor])
    if tensor.nnz in (0, array.size):
        assert found is None or found == (None,)
        return
    assert found is not None
    (pattern,) = found
    assert pattern.size == tensor.nnz and all(len(a) <= len(b) for a, b in zip(pattern.sizes, sizes))
    blocks = to_blocks(tensor, pattern)
    np.testing.assert_array_equal(blocks.to_dense(), array)
    np.testing.assert_array_equal(to_elements(blocks).to_dense(), array)


def test_ranges_are_those_that_no_operand_tells_apart():
    """The second operand halves the blocks of the first one along the index that they share."""
    a, b = in_blocks([(8, 8), (12, 12)], 0.5, 1), in_blocks([(6,) * 4, (10, 10)], 0.5, 3)
    net = network("ij,jk->ik", [a.shape, b.shape])
    left, right = found_blocks(net, [from_dense(a), from_dense(b)])
    assert left.sizes[1] == right.sizes[0] and set(right.sizes[0]) <= {6, 12}


def test_none_where_there_are_none():
    draw = np.random.default_rng(0)
    scattered = from_dense(draw.random((60, 60)) * (draw.random((60, 60)) < 0.3))
    whole = in_blocks([(10,) * 6, (10,) * 6], 0.5, 1)
    holes = np.where(draw.random(whole.shape) < 0.2, 0, whole)
    net = network("ij,jk->ik", [(60, 60), (60, 60)])
    assert found_blocks(net, [scattered, scattered]) is None
    assert found_blocks(net, [from_dense(whole), scattered]) is None
    assert found_blocks(net, [from_dense(holes), from_dense(whole)]) is None
    with pytest.raises(InputError, match="form='auto'"):
        plan("ij,jk->ik", scattered, scattered, form="blocks")


@pytest.mark.parametrize("out", ["dense", "sparse"])
def test_integrals_by_irreps(out):
    integrals, c = irreps(5)
    tensor, matrix = from_dense(integrals), from_dense(c)
    found = plan("pqrs,pi,qj->ijrs", tensor, matrix, matrix, out=out, form="blocks")
    expected = np.einsum("pqrs,pi,qj->ijrs", integrals, c, c, optimize=True)
    assert found.form == "blocks" and "512 of 4096 blocks" in str(found)
    for operands in ((), (tensor, matrix, matrix), (from_dense(2 * integrals), matrix, matrix)):
        result = found.run(*operands)
        assert isinstance(result, SparseTensor) == (out == "sparse")
        array = result if isinstance(result, np.ndarray) else result.to_dense()
        np.testing.assert_allclose(
            array, expected * (2 if len(operands) and operands[0] is not tensor else 1), atol=1e-11
        )


@pytest.fixture
def quick_blocks(monkeypatch):
    """Estimates by which products of blocks are always the fastest form."""
    monkeypatch.setattr(api, "LONG_FOR_BLOCKS", 0.0)
    monkeypatch.setattr(BlockPlan, "seconds", 0.0)
    monkeypatch.setattr(api, "_chosen", {})


def test_other_elements_are_computed_by_the_nest(quick_blocks):
    """A plan takes operands with elements at other places, which are no such blocks."""
    integrals, c = irreps(5)
    draw = np.random.default_rng(5)
    other = integrals + draw.random(integrals.shape) * (draw.random(integrals.shape) < 0.01)
    found = plan("pqrs,pi->iqrs", from_dense(integrals), from_dense(c), out="dense")
    assert found.form == "blocks" and "as blocks:" in str(found) and "nest:" in str(found)
    expected = np.einsum("pqrs,pi->iqrs", other, c, optimize=True)
    np.testing.assert_allclose(found.run(from_dense(other), from_dense(c)), expected, atol=1e-11)
    alone = plan("pqrs,pi->iqrs", from_dense(integrals), from_dense(c), out="dense", form="blocks")
    with pytest.raises(OperandError, match="plan anew"):
        alone.run(from_dense(other), from_dense(c))


def test_other_elements_without_a_compiler(quick_blocks, monkeypatch):
    """Blocks need no compiler, and SciPy computes what has others."""
    integrals, c = irreps(4)
    found = plan("pqrs,pi->iqrs", from_dense(integrals), from_dense(c), out="dense")
    monkeypatch.setattr("trnqc.sparse.run.plan.lacks_compiler", lambda: "there is none")
    expected = np.einsum("pqrs,pi->iqrs", integrals, c, optimize=True)
    np.testing.assert_allclose(found.run(), expected, atol=1e-11)
    other = integrals + (integrals == 0) * (np.random.default_rng(1).random(integrals.shape) < 1e-3)
    said: list[str] = []
    monkeypatch.setattr("trnqc.sparse.run.plan.say_no_compiler", said.append)
    expected = np.einsum("pqrs,pi->iqrs", other, c, optimize=True)
    np.testing.assert_allclose(found.run(from_dense(other), from_dense(c)), expected, atol=1e-11)
    assert said == ["there is none"]


def test_fewer_elements_are_zeros_of_blocks():
    integrals, c = irreps(5)
    integrals[3, :, :, 2] = 0
    full, c = irreps(5)
    found = plan("pqrs,pi->iqrs", from_dense(full), from_dense(c), out="dense", form="blocks")
    expected = np.einsum("pqrs,pi->iqrs", integrals, c, optimize=True)
    np.testing.assert_allclose(found.run(from_dense(integrals), from_dense(c)), expected, atol=1e-11)


def test_scalars_complex_numbers_and_maps():
    integrals, c = irreps(4)
    ones = from_coo(c.shape, np.array(np.nonzero(c)))
    assert np.isclose(contract("pq,pq->", from_dense(c), ones), c.sum())
    found = plan("pqrs,pi->iqrs", from_dense(integrals), ones, out="dense", form="blocks")
    np.testing.assert_allclose(found.run(), np.einsum("pqrs,pi->iqrs", integrals, c != 0), atol=1e-11)
    turned = plan("pqrs,pi->iqrs", from_dense(integrals * 1j), from_dense(c), out="dense", form="blocks").run()
    np.testing.assert_allclose(turned, 1j * np.einsum("pqrs,pi->iqrs", integrals, c), atol=1e-11)
    product = plan("pq,rs->pqrs", from_dense(c), from_dense(c), out="dense", form="blocks").run()
    np.testing.assert_allclose(product, np.multiply.outer(c, c), atol=1e-12)
