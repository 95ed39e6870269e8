"""Networks of block tensors against einsum of the dense arrays."""

import doctest
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from trnqc.errors import ExpressionError, InputError, MemoryLimit, OperandError
from trnqc.sparse import BlockTensor, contract, from_dense, plan
from trnqc.sparse.blocks import groups, packing, planner, tensor
from trnqc.sparse.blocks.homes import BlockCopy, plain_homes
from trnqc.sparse.blocks.pair import BlockPair

# A few roundings of sums of some hundred terms of size one.
TOLERANCE = 1e-11

NETWORKS = (
    *("ab,bc->ac", "ab,bc->ca", "abc,cd->abd", "abcd,cbe->aed", "ab,ab->", "abc,abd->acd", "ab,cd->dacb", "a,a->a"),
    *("ab->ba", "abc->ca", "ab->", "a->a", "abc,c->b", "ab,b", "abc,cd,de->abe", "ab,bc,ca->", "abc,bd,ce->ade"),
    *("ab,ac,ad->bcd", "ab,cd,e->eca", "ab,bc,cd,de,ea->"),
)


WAYS = ("by result", "by contracted block", "by row", "by column", "by component", "whole")


def random_blocks(rng, sizes, fill, dtype=float):
    """Return a tensor with about this fraction of its blocks."""
    blocks = {}
    for at in itertools.product(*(range(len(mode)) for mode in sizes)):
        if rng.random() < fill:
            shape = [mode[n] for n, mode in zip(at, sizes)]
            block = rng.standard_normal(shape)
            blocks[at] = (block + 1j * rng.standard_normal(shape) if np.issubdtype(dtype, complex) else block).astype(
                dtype
            )
    return BlockTensor.from_blocks(blocks, sizes)


def operands_of(subscripts, rng, grid, fill, dtype=float):
    return [
        random_blocks(rng, [grid[x] for x in labels], fill, dtype) for labels in subscripts.split("->")[0].split(",")
    ]


def random_grid(rng, extent=5, count=4):
    return {x: tuple(map(int, rng.integers(1, extent + 1, rng.integers(1, count + 1)))) for x in "abcde"}


def expected(subscripts, operands):
    return np.einsum(subscripts, *(x.to_dense() for x in operands), optimize=True)


def check(result, reference, grid=None):
    assert result.shape == reference.shape and result.dtype == reference.dtype
    np.testing.assert_allclose(result.to_dense(), reference, rtol=0, atol=TOLERANCE)


@settings(max_examples=60, deadline=None)
@given(some.sampled_from(NETWORKS), some.integers(0, 2**32 - 1), some.sampled_from((0.1, 0.4, 0.8, 1.0)))
def test_networks(subscripts, seed, fill):
    rng = np.random.default_rng(seed)
    grid = random_grid(rng)
    operands = operands_of(subscripts, rng, grid, fill)
    result = contract(subscripts, *operands)
    reference = expected(subscripts, operands)
    check(result, reference)
    if "->" in subscripts:
        assert result.sizes == tuple(grid[x] for x in subscripts.split("->")[1])
    # Blocks are stored where a product of stored blocks contributes, and nowhere else.
    counts = [BlockTensor(x.pattern, np.ones(x.nnz)) for x in operands]
    stored = contract(subscripts, *counts)
    assert stored.pattern == result.pattern and np.count_nonzero(stored.values) == stored.nnz
    assert stored.nnz == np.count_nonzero(expected(subscripts, counts) > 0.5)


@settings(max_examples=25, deadline=None)
@given(some.sampled_from([n for n in NETWORKS if "," in n]), some.integers(0, 2**32 - 1))
def test_arrays_have_all_blocks(subscripts, seed):
    rng = np.random.default_rng(seed)
    operands = operands_of(subscripts, rng, random_grid(rng), 0.5)
    mixed = [operands[0], *(np.asfortranarray(x.to_dense()) for x in operands[1:])]
    check(contract(subscripts, *mixed), expected(subscripts, operands))
    dense = contract(subscripts, *mixed, out="dense")
    assert isinstance(dense, np.ndarray)
    np.testing.assert_allclose(dense, expected(subscripts, operands), rtol=0, atol=TOLERANCE)


@settings(max_examples=25, deadline=None)
@given(some.sampled_from(["abc,cd,be->ade", "ab,bc->ca"]), some.integers(0, 2**32 - 1), some.floats(-3, 3))
def test_linear_in_each_operand(subscripts, seed, factor):
    rng = np.random.default_rng(seed)
    first, *others = operands_of(subscripts, rng, random_grid(rng), 0.5)
    other = BlockTensor(first.pattern, rng.standard_normal(first.nnz))
    planned = plan(subscripts, first, *others)
    combined = planned.run(BlockTensor(first.pattern, first.values + factor * other.values), *others)
    separate = planned.run().values + factor * planned.run(other, *others).values
    np.testing.assert_allclose(combined.values, separate, rtol=0, atol=TOLERANCE)


@pytest.mark.parametrize("way", [*WAYS, "added"])
@pytest.mark.parametrize("fill", [0.0, 0.3, 0.7, 1.0])
@pytest.mark.parametrize(
    ("inputs", "output"), [("ab,bc", "ca"), ("abc,bcd", "bad"), ("abcd,dbe", "ace"), ("ab,cd", "acbd")]
)
def test_every_way_to_join_blocks(way, fill, inputs, output):
    rng = np.random.default_rng(len(inputs) + int(10 * fill))
    left, right = operands = operands_of(inputs, rng, random_grid(rng, count=5), fill)
    a, b = map(tuple, inputs.split(","))
    pair = BlockPair((a, left.pattern), (b, right.pattern), tuple(output))
    meetings = groups.Meetings.of(pair)
    homes_of = plain_homes(left.pattern), plain_homes(right.pattern)
    if way == "added":
        product = packing.added(pair, meetings, *homes_of)
    else:
        joined = groups.groupings(pair, meetings)[way]
        product = packing.stacked(pair, way, joined, *homes_of)
    values = product.run(product.left.run(left.values), product.right.run(right.values))
    values = BlockCopy(product.result, plain_homes(pair.result), pair.result.size).run(values)
    reference = expected(f"{inputs}->{output}", operands)
    np.testing.assert_allclose(BlockTensor(pair.result, values).to_dense(), reference, rtol=0, atol=TOLERANCE)


def test_the_way_follows_the_blocks():
    """Small blocks are joined; large ones without a pattern are multiplied one by one; a diagonal is one stack."""
    rng = np.random.default_rng(5)
    assert contract_plan(rng, (8,) * 30, 0.1).steps[0].product.way in ("by result", "by contracted block")
    assert contract_plan(rng, (4,) * 30, 0.9).steps[0].product.way in ("by component", "whole")
    assert contract_plan(rng, (96,) * 8, 0.5).steps[0].product.way == "added"
    diagonal = BlockTensor.from_blocks({(n, n): rng.random((5, 5)) for n in range(20)})
    assert plan("ab,bc->ac", diagonal, diagonal).steps[0].product.products.stacks == ((20, 5, 5, 5),)


def contract_plan(rng, mode, fill):
    return plan("ab,bc->ac", *(random_blocks(rng, [mode, mode], fill) for _ in range(2)))


def test_flops_are_those_of_stored_blocks():
    left = BlockTensor.from_blocks({(0, 0): np.ones((2, 3)), (1, 0): np.ones((5, 3)), (0, 1): np.ones((2, 4))})
    right = BlockTensor.from_blocks({(0, 0): np.ones((3, 7))}, sizes=[(3, 4), (7,)])
    planned = plan("ab,bc->ac", left, right)
    assert planned.flops == 2 * (2 + 5) * 3 * 7
    text = str(planned)
    assert "294 flops" in text and "2 of 2 blocks, 49 elements" in text and f"{planned.bytes:.3g} B" in text


def test_the_order_depends_on_the_blocks():
    """Dense arrays of these shapes would be multiplied from the left; the blocks of the last two hardly meet."""
    mode = (4,) * 10
    rng = np.random.default_rng(2)
    full = random_blocks(rng, [mode, mode], 1.0)
    few = BlockTensor.from_blocks({(0, 0): np.ones((4, 4))}, [mode, mode])
    first = plan("ab,bc,cd->ad", few, full, full)
    last = plan("ab,bc,cd->ad", full, full, few)
    assert (first.tree, last.tree) == (((0, 1), 2), (0, (1, 2)))
    check(last.run(), expected("ab,bc,cd->ad", [full, full, few]))
    chosen = plan("ab,bc,cd->ad", full, full, few, tree=((0, 1), 2))
    assert chosen.tree == ((0, 1), 2) and chosen.flops > last.flops
    check(chosen.run(), last.run().to_dense())


def test_the_exact_search_finds_the_least_work():
    rng = np.random.default_rng(7)
    for subscripts in ("ab,bc,cd,de->ae", "abc,bd,ce,de->a"):
        operands = operands_of(subscripts, rng, random_grid(rng), 0.5)
        best = plan(subscripts, *operands)
        orders = [(((0, 1), 2), 3), ((0, 1), (2, 3)), (0, (1, (2, 3))), ((0, (1, 2)), 3), (0, ((1, 2), 3))]
        assert best.flops <= min(plan(subscripts, *operands, tree=tree).flops for tree in orders)


def test_many_operands():
    """More operands than the exact search takes: the overlap of two matrix product states."""
    rng = np.random.default_rng(3)
    bonds = [(1,), (1, 2), (2, 2, 1), (3, 1), (1,)]
    names, operands = [], []
    for site in range(4):
        for top in (True, False):
            a, b = (chr(ord("a" if top else "A") + n) for n in (site, site + 1))
            names.append(f"{a}{'pqrs'[site]}{b}")
            operands.append(random_blocks(rng, [bonds[site], (1, 1), bonds[site + 1]], 0.7))
    subscripts = ",".join(names) + "->"
    check(contract(subscripts, *operands), expected(subscripts, operands))


def test_types():
    rng = np.random.default_rng(4)
    grid = random_grid(rng)
    for dtypes in ((complex, complex), (float, complex), (np.float32, np.float32)):
        operands = [operands_of(x, rng, grid, 0.6, dtype)[0] for x, dtype in zip(("ab", "bc"), dtypes)]
        result = contract("ab,bc->ac", *operands)
        assert result.dtype == np.result_type(*dtypes)
        wide = [x.to_dense().astype(np.result_type(x.dtype, float)) for x in operands]
        np.testing.assert_allclose(
            result.to_dense(), wide[0] @ wide[1], rtol=1e-6 if dtypes[0] == np.float32 else 1e-12
        )
    assert BlockTensor.from_blocks({(0,): np.arange(3)}).dtype == np.float64
    conjugate = operands_of("ab", rng, grid, 0.6, complex)[0]
    np.testing.assert_array_equal(conjugate.conj().to_dense(), conjugate.to_dense().conj())


def test_run_again_and_refusals():
    rng = np.random.default_rng(6)
    left, right = operands_of("ab,bc", rng, {"a": (2, 3), "b": (1, 4), "c": (5,)}, 1.0)
    planned = plan("ab,bc->ac", left, right.to_dense())
    other = BlockTensor(left.pattern, rng.standard_normal(left.nnz))
    check(planned.run(other, 2 * right.to_dense(), threads=2), 2 * other.to_dense() @ right.to_dense())
    check(planned.run(left, 3 * right.to_dense()), 3 * left.to_dense() @ right.to_dense())
    check(planned.run(left, 1j * right.to_dense()), 1j * left.to_dense() @ right.to_dense())
    check(planned.run(), left.to_dense() @ right.to_dense())
    fewer = BlockTensor.from_blocks({(0, 0): np.ones((2, 1))}, left.sizes)
    with pytest.raises(OperandError, match="operand 0 of the plan has 4 of 4 blocks"):
        planned.run(fewer, right)
    with pytest.raises(OperandError, match=r"operand 1 .* found an array \(5, 6\)"):
        planned.run(left, np.ones((5, 6)))
    with pytest.raises(OperandError, match="takes 2 operands; found 1"):
        planned.run(left)
    with pytest.raises(InputError, match="threads is a number"):
        planned.run(threads=0)
    with pytest.raises(
        OperandError, match=r"index b has blocks of the sizes \(1, 4\) in operand 0 and \(5,\) in operand 1"
    ):
        contract("ab,bc->ac", left, BlockTensor.from_dense(np.ones((5, 2)), [(5,), (2,)]))
    with pytest.raises(OperandError, match="operand 1 is a SparseTensor"):
        contract("ab,bc->ac", left, from_dense(right.to_dense()))
    with pytest.raises(ExpressionError, match="index b has extent"):
        contract("ab,bc->ac", left, np.ones((4, 2)))
    with pytest.raises(ExpressionError, match="a tree must contain each"):
        plan("ab,bc->ac", left, right, tree=(0, 0))
    with pytest.raises(InputError, match="form must be 'auto' for block tensors"):
        contract("ab,bc->ac", left, right, form="fused")
    with pytest.raises(MemoryLimit, match="the limit is 10 B"):
        plan("ab,bc->ac", left, right, memory_limit=10)


def test_nothing_stored():
    empty = BlockTensor.from_blocks({}, [(2, 3), (4,)])
    full = BlockTensor.from_dense(np.ones((4, 2)), [(4,), (1, 1)])
    result = contract("ab,bc->ac", empty, full)
    assert not result.blocks and result.shape == (5, 2) and result.nnz == 0
    assert contract("ab,bc->", empty, full).to_dense() == 0
    first = BlockTensor.from_blocks({(0, 0): np.ones((2, 1))}, [(2,), (1, 1)])
    second = BlockTensor.from_blocks({(1, 0): np.ones((1, 3))}, [(1, 1), (3,)])
    assert not contract("ab,bc->ac", first, second).blocks


@settings(max_examples=40, deadline=None)
@given(some.integers(0, 2**32 - 1), some.integers(0, 4), some.floats(0, 2))
def test_dense_and_back(seed, ndim, threshold):
    rng = np.random.default_rng(seed)
    sizes = [tuple(map(int, rng.integers(1, 5, rng.integers(1, 4)))) for _ in range(ndim)]
    array = rng.standard_normal([sum(mode) for mode in sizes])
    made = BlockTensor.from_dense(array, sizes, threshold)
    dense, kept = made.to_dense(), 0
    for at in itertools.product(*(range(len(mode)) for mode in sizes)):
        place = tuple(slice(sum(mode[:n]), sum(mode[: n + 1])) for n, mode in zip(at, sizes))
        if np.abs(array[place]).max() > threshold:
            kept += 1
            np.testing.assert_array_equal(made.blocks[at], array[place])
            np.testing.assert_array_equal(dense[place], array[place])
        else:
            assert at not in made.blocks and not dense[place].any()
    assert len(made.blocks) == kept
    again = BlockTensor.from_blocks(made.blocks, sizes)
    assert again.pattern == made.pattern and (again.values == made.values).all()


def test_values_cannot_be_changed():
    source = np.ones((2, 3))
    made = BlockTensor.from_blocks({(0, 0): source})
    source[:] = 5
    assert made.to_dense().max() == 1
    with pytest.raises(ValueError, match="read-only"):
        made.blocks[0, 0][0, 0] = 2
    with pytest.raises(TypeError):
        made.blocks[0, 0] = source


def test_sizes_are_inferred():
    made = BlockTensor.from_blocks([((1, 0), np.ones((2, 3))), ((0, 1), np.ones((4, 5)))])
    assert made.sizes == ((4, 2), (3, 5)) and made.shape == (6, 8)
    assert BlockTensor.from_blocks({(0, 1): np.ones((4, 5))}, [None, (3, 5)]).sizes == ((4,), (3, 5))
    assert BlockTensor.from_blocks({3: np.ones(2)}, [(2,) * 4]).shape == (8,)


@pytest.mark.parametrize(
    ("blocks", "sizes", "message"),
    [
        (
            [((0, 0), np.ones((1, 1))), ((0, 0), np.ones((1, 1)))],
            None,
            r"must not overlap; found two blocks at \(0, 0\)",
        ),
        ({(0, 0): np.ones((2, 2))}, [(2,), (3,)], r"block \(0, 0\) must have the shape \(2, 3\); found \(2, 2\)"),
        ({(0, 1): np.ones((2, 2))}, [(2,), (2,)], r"at coordinates below \(1, 1\); found \(0, 1\)"),
        ({(0,): np.ones(2)}, [(2,), (2,)], r"at coordinates below \(1, 1\); found \(0,\)"),
        ({(-1,): np.ones(2)}, [(2,)], r"at coordinates below \(1,\); found \(-1,\)"),
        ({(1,): np.ones(2)}, None, "the size of block 0 of mode 0 cannot be inferred"),
        ({(0, 0): np.ones((1, 2)), (0, 1): np.ones((2, 2))}, None, r"blocks of mode 0 at 0 have the extents 1 and 2"),
        ({(0, 0): np.ones(2)}, None, r"mode 1 of block \(0, 0\) is missing"),
        ({}, None, "cannot be inferred: pass sizes"),
        ({"a": np.ones(2)}, None, "coordinates of a block are a tuple of integers; found 'a'"),
        ({(0,): np.ones(2)}, [(2, 0)], "sizes of blocks must be at least 1"),
        ({(0,): np.array(["x"])}, None, "real or complex numbers"),
    ],
)
def test_blocks_that_do_not_fit(blocks, sizes, message):
    with pytest.raises(OperandError, match=message):
        BlockTensor.from_blocks(blocks, sizes)


def test_sizes_of_an_array():
    with pytest.raises(OperandError, match=r"must add up to the shape \(3, 4\); those given add up to \(3, 5\)"):
        BlockTensor.from_dense(np.ones((3, 4)), [(1, 2), (5,)])


def test_examples():
    result = doctest.testmod(tensor)
    assert result.attempted and not result.failed


def test_small_plans_are_remembered(monkeypatch):
    """`contract` plans equal patterns once, and does not keep the places of many elements."""
    rng = np.random.default_rng(8)
    left, right = operands_of("ab,bc", rng, {"a": (2, 3), "b": (1, 4), "c": (5, 2)}, 0.9)
    monkeypatch.setattr(planner, "_chosen", {})
    first = plan("ab,bc->ac", left, right)
    again = plan("ab,bc->ac", BlockTensor(left.pattern, 2 * left.values), right)
    assert first.steps is again.steps and first.packed is not again.packed
    check(again.run(), 2 * first.run().to_dense())
    monkeypatch.setattr(planner, "_chosen", {})
    monkeypatch.setattr(planner, "SMALL", 0)
    assert plan("ab,bc->ac", left, right).steps is not plan("ab,bc->ac", left, right).steps
    with pytest.raises(ExpressionError, match="the subscripts are for 2"):
        plan("ab,bc->ac", left)


def test_the_callers_array_stays_writable():
    pattern, values = BlockTensor.from_dense(np.ones((2, 3)), [(2,), (1, 2)]).pattern, np.ones(6)
    tensor = BlockTensor(pattern, values)
    assert values.flags.writeable and not tensor.values.flags.writeable


def test_a_remembered_plan_takes_new_values():
    """Packed copies belong to the operands of one plan, not to all operands of the same pattern."""
    draw = np.random.default_rng(3)
    sizes = [(3, 2, 4, 1), (5, 1, 3, 2)]
    where = [(0, 0), (0, 2), (1, 1), (2, 0), (2, 3), (3, 1), (3, 2)]
    for out in ("auto", "dense", "auto"):
        blocks = {at: draw.random((sizes[0][at[0]], sizes[1][at[1]])) for at in where}
        x = BlockTensor.from_blocks(blocks, sizes)
        found = plan("ij,kj->ik", x, x, out=out)
        result = found.run()
        assert found.packed
        dense = result if isinstance(result, np.ndarray) else result.to_dense()
        assert np.allclose(dense, x.to_dense() @ x.to_dense().T)
