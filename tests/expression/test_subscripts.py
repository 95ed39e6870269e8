"""Subscripts as NumPy reads them, and errors that point at the index."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import opt_einsum
import pytest

import trnqc
from trnqc.errors import ExpressionError, InputError
from trnqc.expression.subscripts import interleaved, parse_subscripts

# text, shapes -> the shape of NumPy's result.
READ = [
    ("ab,bc->ac", [(2, 3), (3, 4)]),
    ("ab,bc", [(2, 3), (3, 4)]),
    ("ba,ac", [(2, 3), (3, 4)]),
    ("ii", [(3, 3)]),
    ("ij->ji", [(2, 3)]),
    (" a b , b c -> c a ", [(2, 3), (3, 4)]),
    ("...a,b...a->...b", [(2, 3, 4), (5, 3, 4)]),
    ("...,...", [(2, 3), (3,)]),
    ("a...a->a...", [(2, 3, 2)]),
    ("...a,a", [(2, 3), (3,)]),
    ("...,", [(2, 3), ()]),
    ("ij,ij->j", [(10, 2), (1, 2)]),
    ("...,...->...", [(4, 1, 3), (2, 1)]),
    (",->", [(), ()]),
]


@pytest.mark.parametrize(("text", "shapes"), READ)
def test_shapes_are_those_of_numpy(text, shapes):
    parsed = parse_subscripts(text, shapes)
    result = np.einsum(text, *(np.ones(shape) for shape in shapes))
    assert tuple(parsed.extents[label] for label in parsed.output) == result.shape
    for labels, dropped, shape in zip(parsed.inputs, parsed.squeezed, shapes):
        assert [parsed.extents[x] for x in labels] == [n for axis, n in enumerate(shape) if axis not in dropped]


WRONG = [
    ("ab,bc->ad", [(2, 3), (3, 4)], "index d of the result occurs in no operand", "d"),
    ("ab,bc->aa", [(2, 3), (3, 4)], "occurs twice in the result", "a"),
    ("ab,bc->ac", [(2, 3), (5, 4)], "index b has extent 5 in operand 1, and 3 in operand 0", "bc->"),
    ("abc,bc->ac", [(2, 3), (5, 4)], "the subscripts name 3 axes; operand 0 has 2", "abc,"),
    ("ab,b?->ac", [(2, 3), (5, 4)], "an index is a letter; found '?'", "?"),
    ("aa->a", [(2, 3)], "on another axis", "aa->a"),
    ("...a->a", [(2, 3)], "the result needs one too", "a"),
    ("...a...->a", [(2, 3)], "one ellipsis", "...->"),
    ("ab->a->b", [(2, 3)], "found another", "->b"),
]


@pytest.mark.parametrize(("text", "shapes", "words", "place"), WRONG)
def test_errors_point_at_the_place(text, shapes, words, place):
    with pytest.raises(ExpressionError) as caught:
        parse_subscripts(text, shapes)
    message, shown, caret = str(caught.value).split("\n")
    assert words in message and shown == f"  {text}"
    assert text[len(caret) - 3 :].startswith(place)


STRICT = [
    ("aab,b->a", [(2, 2, 3), (3,)], "index a occurs twice in operand 0; take the diagonal first", "aab"),
    ("ab,...b->a", [(2, 3), (3,)], "operand 1 has an ellipsis", "...b"),
    ("ab,b->a", [(2, 3), (1,)], "index b has extent 1 in operand 1, and 3 in operand 0", "b->"),
    ("ab,b->a", [(2, 1), (3,)], "index b has extent 3 in operand 1, and 1 in operand 0", "b->"),
]


@pytest.mark.parametrize(("text", "shapes", "words", "place"), STRICT)
def test_what_sparse_operands_cannot_have(text, shapes, words, place):
    with pytest.raises(ExpressionError) as caught:
        parse_subscripts(text, shapes, strict=True)
    message, shown, caret = str(caught.value).split("\n")
    assert words in message and shown == f"  {text}"
    assert text[len(caret) - 3 :].startswith(place)


def test_strict_subscripts():
    symbols = [opt_einsum.get_symbol(k) for k in (0, 60, 139)]
    text = f"{symbols[0]}{symbols[2]}, {symbols[2]}{symbols[1]}"
    parsed = parse_subscripts(text, [(1, 4), (4, 2)], strict=True)
    assert parsed.output == tuple(sorted(symbols[:2])) and not any(parsed.squeezed)
    assert list(parsed.extents.items()) == [(symbols[0], 1), (symbols[2], 4), (symbols[1], 2)]


def test_numbers_of_operands_agree():
    with pytest.raises(ExpressionError, match="the subscripts are for 2 operands; found 1"):
        parse_subscripts("ab,b", [(2, 3)])


def test_the_interleaved_form():
    assert interleaved(["x", [7, 3], "y", [3, 5], [5, 7]]) == ("ca,ab->bc", ["x", "y"])
    assert interleaved(["x", [..., "p"], "y", ["p"]]) == ("...a,a", ["x", "y"])
    with pytest.raises(ExpressionError, match="index 9 of the result"):
        interleaved(["x", [0, 1], [9]])


def test_symbols_stand_for_extents():
    equal = parse_subscripts("ab,bc->ac", [(4, 4), (4, 4)]).indices()
    assert {index.symbol for index in equal.values()} == {"N"}
    mixed = parse_subscripts("ab,bc->ac", [(2, 3), (3, 2)]).indices()
    assert [mixed[x].symbol for x in "abc"] == ["a", "b", "a"]


@pytest.mark.parametrize("first", [0, 26, 50, 67, 139, 1000, 5618, 8100, 55152, 60000])
def test_every_symbol_of_opt_einsum_is_an_index(first):
    """Letters of any alphabet, signs and even spaces of other alphabets; implicit results are in the same order."""
    a, b = np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(3, 4)
    i, j, k = (opt_einsum.get_symbol(first + n) for n in range(3))
    np.testing.assert_allclose(trnqc.einsum(f"{i}{j},{j}{k}->{k}{i}", a, b), (a @ b).T)
    text = f"{k}{j},{j}{i}"
    np.testing.assert_allclose(trnqc.einsum(text, a, b), opt_einsum.contract(text, a, b))


def test_more_indices_than_letters():
    rng = np.random.default_rng(8)
    matrices = [rng.standard_normal((3, 3)) for _ in range(80)]
    expected = np.linalg.multi_dot(matrices)
    symbols = [opt_einsum.get_symbol(k) for k in range(81)]
    text = ",".join(map("".join, pairwise(symbols))) + f"->{symbols[0]}{symbols[80]}"
    np.testing.assert_allclose(trnqc.einsum(text, *matrices), expected)
    for label in (int, str, lambda k: ("bond", k)):
        terms = [x for k, matrix in enumerate(matrices) for x in (matrix, (label(k), label(k + 1)))]
        np.testing.assert_allclose(trnqc.einsum(*terms, (label(0), label(80))), expected)
    assert trnqc.einsum_plan(*terms, (label(0), label(80))).multiply_adds == 79 * 27


def test_labels_of_several_types():
    a, b = np.arange(6.0).reshape(2, 3), np.arange(12.0).reshape(3, 4)
    np.testing.assert_allclose(trnqc.einsum(a, ["left", 0], b, [0, ("right",)], ["left", ("right",)]), a @ b)
    np.testing.assert_allclose(trnqc.einsum(a, [..., 1], b, [1, 0], [..., 0]), a @ b)
    with pytest.raises(TypeError, match="must be hashable, such as a number or a text; found"):
        trnqc.einsum(a, [..., {}], [...])
    with pytest.raises(TypeError, match="followed by the list of its indices; found int"):
        trnqc.einsum(0, 0)


def test_axes_of_extent_one_are_spread_and_diagonals_are_not():
    cases = [("ij,ij->j", (10, 2), (1, 2)), ("ab,bc", (2, 1), (5, 3)), ("iij,jk->ik", (3, 3, 2), (2, 4))]
    for text, *shapes in cases:
        arrays = [np.random.default_rng(1).standard_normal(shape) for shape in shapes]
        np.testing.assert_allclose(trnqc.einsum(text, *arrays), np.einsum(text, *arrays))
    with pytest.raises(ExpressionError, match="index i has extent 1 in operand 0, and 3 on another axis"):
        trnqc.einsum("ii->i", np.ones((1, 3)))
    many = np.arange(4.0).reshape((2, 2) + (1,) * 30)
    labels = [0, 0, *range(1, 31)]
    np.testing.assert_allclose(trnqc.einsum(many, labels, [0]), [0, 3])


PATHS = [[(0, 1), (0, 1)], ["einsum_path", (1, 2), (0, 1)], ((0, 1, 2),), opt_einsum.RandomGreedy(max_repeats=2)]


@pytest.mark.parametrize("optimize", [True, False, None, "greedy", "optimal", *PATHS])
def test_what_numpy_and_opt_einsum_take_as_optimize(optimize):
    arrays = [np.random.default_rng(k).standard_normal(shape) for k, shape in enumerate(((3, 4), (4, 5), (5, 2)))]
    expected = np.linalg.multi_dot(arrays)
    np.testing.assert_allclose(trnqc.einsum("ab,bc,cd->ad", *arrays, optimize=optimize), expected)


def test_a_path_is_followed():
    arrays = [np.ones((2, 30)), np.ones((30, 4)), np.ones((4, 30))]
    products = []

    def gemm(a_t, b):
        products.append((a_t.shape[1:], b.shape[1:]))
        return a_t.swapaxes(1, 2) @ b

    for path in (True, [(0, 1), (0, 1)], [(1, 2), (0, 1)]):
        result = trnqc.contraction.einsum("ab,bc,cd->ad", *arrays, gemm=gemm, optimize=path)
        np.testing.assert_allclose(result, np.full((2, 30), 120.0))
    assert products[:2] == products[2:4]
    inner = [left[0] for left, _ in products]
    assert inner == [30, 4, 30, 4, 4, 30]


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"optimize": 3}, "optimize is a path, a contraction tree, a planner of these"),
        ({"optimize": [(0, 1)]}, "2 are left after"),
        ({"optimize": [(0, 7), (0, 1)]}, "of the 3 operands left; found"),
        ({"order": "F"}, "no argument 'order': copy the result"),
        ({"dtype": "f4"}, "no argument 'dtype': convert the operands"),
        ({"bad_arg": 0}, "no argument 'bad_arg'"),
    ],
)
def test_arguments_that_are_refused(options, words):
    with pytest.raises(InputError, match=words) as caught:
        trnqc.einsum("ab,bc,cd->ad", *[np.ones((2, 2))] * 3, **options)
    assert isinstance(caught.value, TypeError) == ("optimize" not in options or options["optimize"] == 3)
