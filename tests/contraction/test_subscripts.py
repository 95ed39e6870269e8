"""Subscripts as NumPy reads them, and errors that point at the index."""

from __future__ import annotations

import numpy as np
import pytest

from trnqc.contraction.subscripts import interleaved, parse_subscripts
from trnqc.errors import ExpressionError

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
    found = parse_subscripts(text, shapes)
    result = np.einsum(text, *(np.ones(shape) for shape in shapes))
    assert tuple(found.extents[label] for label in found.output) == result.shape
    for labels, dropped, shape in zip(found.inputs, found.squeezed, shapes):
        assert [found.extents[x] for x in labels] == [n for axis, n in enumerate(shape) if axis not in dropped]


WRONG = [
    ("ab,bc->ad", [(2, 3), (3, 4)], "index d of the result stands in no operand", "d"),
    ("ab,bc->aa", [(2, 3), (3, 4)], "stands twice in the result", "a"),
    ("ab,bc->ac", [(2, 3), (5, 4)], "index b has extent 5 in operand 1, and 3 in operand 0", "bc->"),
    ("abc,bc->ac", [(2, 3), (5, 4)], "subscripts of 3 axes; the operand has 2", "abc,"),
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


def test_numbers_of_operands_agree():
    with pytest.raises(ExpressionError, match="subscripts for 2 operands; found 1"):
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
