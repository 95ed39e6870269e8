"""Operation trees and symbolic counts: the published closed forms of the four-factor example, the rules of a tree."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as some

from trnqc.contraction.cost.counts import MonomialSum
from trnqc.contraction.tree import Tree, TreeNode
from trnqc.errors import InputError
from trnqc.expression.operand import Leaf
from trnqc.expression.spaces import Index

N = 10
INDICES = {label: Index(label, N, "N") for label in "abcdefijkl"}
A, B, C, D = (
    Leaf(name, tuple(labels), k)
    for k, (name, labels) in enumerate([("A", "acik"), ("B", "befl"), ("C", "dfjk"), ("D", "cdel")])
)
T1 = TreeNode("T1", tuple("bcdf"), (B, D))
T2 = TreeNode("T2", tuple("bcjk"), (T1, C))
S = TreeNode("S", tuple("abij"), (T2, A))


def test_four_factors_cost_6_n_to_the_sixth():
    tree = Tree(S, INDICES)
    assert tree.operations == 6 * MonomialSum.symbol("N", 6)
    assert tree.operations.at({"N": N}) == 6_000_000
    assert tree.multiply_adds == tree.symbolic_multiply_adds.at({"N": N}) == 3_000_000
    assert tree.nodes == (T1, T2, S) and tree.temporaries == (T1, T2)
    assert tree.leaves == (B, D, C, A)
    assert T1.loops == tuple("bcdfel") and T1.summed == tuple("el")
    assert tree.consumer("T1") is T2 and tree.consumer("S") is None
    assert str(T1) == "T1[b,c,d,f] = sum(e,l) B[b,e,f,l] * D[c,d,e,l]"


def test_a_function_is_charged_by_the_element():
    f = Leaf("f", ("a", "b", "b"), 0, cost=7)
    tree = Tree(TreeNode("R", ("a",), (f,)), INDICES)
    assert tree.function_cost == 7 * N * N and tree.multiply_adds == N * N


@pytest.mark.parametrize(
    "root",
    [
        TreeNode("R", ("a", "a"), (A, B)),
        TreeNode("R", ("z",), (A, B)),
        TreeNode("R", ("a",), ()),
        TreeNode("T1", ("a",), (T1, A)),
        TreeNode("R", ("j",), (A, D)),
    ],
)
def test_trees_that_mean_nothing_are_refused(root):
    with pytest.raises(InputError):
        Tree(root, INDICES)


polynomials = some.lists(
    some.tuples(some.lists(some.sampled_from("NVO"), max_size=4), some.integers(-5, 5)), max_size=4
).map(lambda terms: sum((factor * MonomialSum.product(symbols) for symbols, factor in terms), MonomialSum()))
VALUES = {"N": 3, "V": 7, "O": 2}


@given(polynomials, polynomials)
def test_counts_are_a_ring(p, q):
    assert (p + q).at(VALUES) == p.at(VALUES) + q.at(VALUES)
    assert (p * q).at(VALUES) == p.at(VALUES) * q.at(VALUES)
    assert p * q == q * p and p + q == q + p and (p + q) ** 2 == p * p + 2 * p * q + q * q


def test_counts_of_tiles_have_negative_powers():
    tiles = (MonomialSum.symbol("V") * MonomialSum.symbol("B", -1)) ** 2
    assert str(3 * MonomialSum.symbol("C") * tiles) == "3 B^-2 C V^2"
    assert tiles.at({"V": 300, "B": 20}) == 225 and tiles.at({"V": 1, "B": 2}) == Fraction(1, 4)
    with pytest.raises(InputError, match="needs a value for V"):
        tiles.at({"B": 2})
    with pytest.raises(InputError, match="monomial"):
        (tiles + MonomialSum.number(1)) ** -1
