"""Quantum numbers: which blocks may be stored, and what contractions need of them."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from trnqc.errors import OperandError
from trnqc.sparse import BlockCharges, BlockTensor, contract


def allowed_blocks(rng, charges, sizes):
    """Return the tensor of all blocks that the charges allow."""
    at = np.array(list(itertools.product(*(range(len(mode)) for mode in sizes))))
    blocks = {
        tuple(block): rng.standard_normal([m[n] for n, m in zip(block, sizes)]) for block in at[charges.allowed(at)]
    }
    return BlockTensor.from_blocks(blocks, sizes, charges)


@settings(max_examples=40, deadline=None)
@given(some.integers(0, 2**32 - 1), some.sampled_from([None, 2, 3, (None, 2)]))
def test_products_keep_the_rule(seed, modulus):
    """The charges of a result are those of its blocks, so that it can be constructed again with them."""
    rng = np.random.default_rng(seed)
    several = isinstance(modulus, tuple)

    def charge():
        numbers = tuple(map(int, rng.integers(-2, 3, 2 if several else 1)))
        return numbers if several else numbers[0]

    modes = {x: tuple(charge() for _ in range(rng.integers(1, 5))) for x in "abcd"}
    sizes = {x: tuple(map(int, rng.integers(1, 4, len(modes[x])))) for x in "abcd"}
    signs = {x: int(rng.choice([-1, 1])) for x in "abcd"}
    first = BlockCharges(tuple(modes[x] for x in "abc"), tuple(signs[x] for x in "abc"), charge(), modulus)
    second_signs = (-signs["c"], signs["d"], -signs["b"])
    second = BlockCharges(tuple(modes[x] for x in "cdb"), second_signs, charge(), modulus)
    operands = [
        allowed_blocks(rng, first, [sizes[x] for x in "abc"]),
        allowed_blocks(rng, second, [sizes[x] for x in "cdb"]),
    ]
    result = contract("abc,cdb->da", *operands)
    reference = np.einsum("abc,cdb->da", *(x.to_dense() for x in operands))
    np.testing.assert_allclose(result.to_dense(), reference, rtol=0, atol=1e-12)
    assert result.charges.directions == (signs["d"], signs["a"])
    again = BlockTensor.from_dense(reference, result.sizes, 1e-12, result.charges)
    assert set(again.blocks) <= set(result.blocks)


def test_norm():
    charges = BlockCharges(((0, 1), (0, 1), (0, 1, 2)), (1, 1, -1))
    state = allowed_blocks(np.random.default_rng(1), charges, [(2, 3), (1, 1), (2, 5, 4)])
    assert sorted(state.blocks) == [(0, 0, 0), (0, 1, 1), (1, 0, 1), (1, 1, 2)]
    norm = contract("lsr,lsr->", state, state.conj())
    assert norm.charges.total == 0
    np.testing.assert_allclose(norm.to_dense(), (state.values**2).sum(), rtol=1e-13)
    assert "charges (++-), total 0" in repr(state) and "charges" not in repr(state.without_charges())


def test_charges_modulo_n():
    charges = BlockCharges(((0, 3), (1, -1)), (1, -1), total=5, modulus=3)
    assert charges.modes == ((0, 0), (1, 2)) and charges.total == 2
    assert charges.allowed(np.array([[0, 0], [1, 0], [0, 1]])).tolist() == [True, True, False]
    assert charges.conj().total == 1 and str(charges) == "charges (+-), total 2, modulo 3"
    assert charges == BlockCharges(((3, 0), (4, 2)), (1, -1), total=-1, modulus=3)


ONE = BlockCharges(((0, 1), (0, 1)), (1, -1))
OTHER = BlockCharges(((0, 2), (0, 1)), (1, -1))
SAME_WAY = BlockCharges(((0, 1), (0, 1)), (-1, -1))


def square(charges):
    return BlockTensor.from_blocks({(0, 0): np.ones((2, 2))}, [(2, 1), (2, 1)], charges)


@pytest.mark.parametrize(
    ("subscripts", "charges", "message"),
    [
        (
            "ab,bc->ac",
            [ONE, OTHER],
            r"index b has the charges \(0, 1\) in operand 0 and",
        ),
        (
            "ab,bc->ac",
            [ONE, SAME_WAY],
            "opposite directions in operands 0 and 1; found -1",
        ),
        ("ab,bc->ac", [ONE, None], "operand 1 has no quantum numbers, but others have"),
        ("ab,bc->ac", [ONE, BlockCharges(((0, 1), (0, 1)), (1, -1), 0, 2)], "different moduli"),
        ("ab,bc->abc", [ONE, ONE], "index b is in 2 and kept"),
        ("ab,bc->c", [ONE, ONE], "index a is in 1 and summed"),
    ],
)
def test_charges_that_do_not_match(subscripts, charges, message):
    with pytest.raises(OperandError, match=message):
        contract(subscripts, *map(square, charges))


def test_an_array_has_no_charges():
    with pytest.raises(OperandError, match="operand 1 has no quantum numbers"):
        contract("ab,bc->ac", square(ONE), np.ones((3, 2)))
    assert contract("ab,bc->ac", square(ONE).without_charges(), np.ones((3, 2))).shape == (3, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((((0, 1), (0, 1)), (1,)), r"\+1 or -1 for each of 2 modes"),
        ((((0, 1),), (2,)), r"\+1 or -1 for each of 1 modes"),
        ((((0, 1),), (1,), (0, 0)), "a charge is a tuple of 2 integers"),
        ((((0, 0.5),), (1,)), "a charge is an integer"),
        ((((0, 1),), (1,), 0, 1), "modulus is None or an integer of at least 2"),
        (((((0, 1),),), (1,), (0, 0), (2,)), "modulus is None or an integer of at least 2, for each of 2"),
    ],
)
def test_charges_that_mean_nothing(arguments, message):
    with pytest.raises(OperandError, match=message):
        BlockCharges(*arguments)


def test_blocks_that_break_the_rule():
    with pytest.raises(OperandError, match=r"must sum to 0; those of block \(0, 1\) sum to -1"):
        BlockTensor.from_blocks({(0, 1): np.ones((2, 1))}, [(2, 1), (2, 1)], ONE)
    with pytest.raises(OperandError, match=r"must sum to \(1, 0\); those of block \(0,\) sum to \(1, 1\)"):
        BlockTensor.from_blocks({(0,): np.ones(2)}, charges=BlockCharges((((1, 1),),), (1,), (1, 0)))
    with pytest.raises(OperandError, match=r"those of block \(0, 1\) sum to -1"):
        BlockTensor.from_dense(np.ones((3, 3)), [(2, 1), (2, 1)], charges=ONE)
    with pytest.raises(OperandError, match=r"expected \[3, 2\] charges; found \[2, 2\]"):
        BlockTensor.from_blocks({}, [(2, 1, 1), (2, 1)], ONE)
