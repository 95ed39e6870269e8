"""The text form of programs: what it is parsed to, and where its errors point."""

from __future__ import annotations

from fractions import Fraction

import numpy as np
import pytest

from trnqc.errors import ExpressionError
from trnqc.expression.program import Program, TensorStatement
from trnqc.expression.spaces import Space
from trnqc.expression.symmetry import Symmetry
from trnqc.expression.terms import Factor, Tensor, Term
from trnqc.expression.text import parse

HEAD = """
space o = 2 + 3    # alpha and beta
space v
index i j k l : o
index a b c d : v
tensor t[v,v,o,o] antisymmetric(0,1) antisymmetric(2,3)
tensor w[o,v,v,o]
tensor s[o,o] conserving(0|1)
tensor u[o,o] blocks(01 11) symmetric(0,1)
tensor z
function g[v,v,v,v] cost 1000
"""


def program(*lines: str) -> Program:
    return parse(HEAD + "\n".join(lines))


def test_declarations():
    p = program("E = z")
    assert p.spaces == (Space("o", 5, (2, 3)), Space("v"))
    t, g = p.tensor("t"), p.tensor("g")
    assert t.symmetries == (Symmetry((0, 1), -1), Symmetry((2, 3), -1)) and t.cost == 0
    assert g.cost == 1000 and g.rank == 4
    assert p.tensor("s").allowed == ((0, 0), (1, 1)) and p.tensor("s").elements == 4 + 9
    assert p.tensor("u").blocks == {(0, 1), (1, 1)} and p.tensor("u").elements == 6 + 9
    assert p.inputs == ("z",) and p.targets == ("E",)


def test_terms_and_signs():
    p = program(
        "R[a,b,i,j] = 1/2 * g[a,b,c,d] * t[c,d,i,j]", "  - 0.25 * z * t[a,b,i,j] / 2", "R[a,b,i,j] -= t[b,a,i,j]"
    )
    first, second = p.statements
    assert first.terms == (
        Term(Fraction(1, 2), (Factor("g", tuple("abcd")), Factor("t", tuple("cdij")))),
        Term(Fraction(-1, 8), (Factor("z", ()), Factor("t", tuple("abij")))),
    )
    assert second == TensorStatement(
        Factor("R", tuple("abij")), (Term(Fraction(-1), (Factor("t", tuple("baij")),)),), True
    )
    assert str(first) == "R[a,b,i,j] = 1/2 * g[a,b,c,d] * t[c,d,i,j] - 1/8 * z * t[a,b,i,j]"
    assert parse(HEAD + str(first)).statements == (first,)


def test_parentheses_distribute():
    p = program(
        "R[a,i] = 2 * (w[i,a,b,j] - w[j,a,b,i]) * (w[j,b,c,k] + w[k,b,c,j]) * w[k,c,d,d1]".replace("d,d1", "b,l")
    )
    assert [term.coefficient for term in p.statements[0].terms] == [2, 2, -2, -2]


def test_exchanges_carry_their_sign():
    (statement,) = program("R[a,b,i,j] = P(i,j) * P(a,b) * 3 * w[i,a,b,j]").statements
    result = {(term.factors[0].labels, term.coefficient) for term in statement.terms}
    assert result == {(tuple(x), c) for x, c in (("iabj", 3), ("jabi", -3), ("ibaj", -3), ("jbai", 3))}


def test_division_is_by_elements():
    (statement,) = program("R[a,b,i,j] = t[a,b,i,j] / (2 * t[b,a,j,i])").statements
    (term,) = statement.terms
    assert term.coefficient == Fraction(1, 2) and [f.reciprocal for f in term.factors] == [False, True]
    assert str(term) == "1/2 * t[a,b,i,j] / t[b,a,j,i]"


def test_objects_say_the_same():
    o, v = Space("o", 5, (2, 3)), Space("v")
    t = Tensor("t", (v, v, o, o), (Symmetry((0, 1), -1), Symmetry((2, 3), -1)))
    w = Tensor("w", (o, v, v, o))
    built = Program.of(
        {"ijkl": o, "abcd": v},
        ("R", "abij", Fraction(1, 2) * t["acik"] * w["kbcj"] - t["a", "b", "i", "j"]),
        ("R", "abij", t["abij"] / t["a,b,j,i"]),
    )
    text = program("R[a,b,i,j] = 1/2*t[a,c,i,k]*w[k,b,c,j] - t[a,b,i,j]", "R[a,b,i,j] += t[a,b,i,j] / t[a,b,j,i]")
    assert built.statements == text.statements
    assert built.sized(v=7).indices()["a"].extent == 7


# line -> words of the message, and what stands at the caret.
WRONG = {
    "R[a,b,i,j] = g[a,b,c,d]*t[c,d,i]": ("t has 4 indices; found 3", "t[c,d,i]"),
    "R[a,i] = g[a,i,c,d]": ("axis 1 of g runs over space v; found index i over o", "i,c,d]"),
    "R[a,i] = t[a,a,q,i]": ("index q of t[a,a,q,i] is not declared", "q,i]"),
    "R[a,q] = w[i,a,b,j]": ("index q of the target R[a,q] is missing", "q] ="),
    "R[a,a] = g[a,b,c,d]": ("stands twice in the target", "a] ="),
    "R[a,i] += w[i,a,b,j]": ("added to before it has a value", "R[a,i]"),
    "R[a] = g[a $ b]": ("unexpected character '$'", "$ b"),
    "R[a,i] = w[j,a,b,j]": ("index i of the target R[a,i] is missing in the term", "i] ="),
    "R[a] = P(i,j)*w[i,a,b,j]": ("i is summed", "i,j)"),
    "R[a] = w[i,a,b,j] / (z + z)": ("the divisor must be a product", "/ (z"),
    "R = y": ("neither a declared tensor nor computed before", "y"),
    "R[a,i] = erf(w[i,a,b,j])": ("sin, cos; found erf(..): compute erf of the array before", "erf(w"),
    "R = z - 2 * cbrt(z) / z": ("declare the result as a tensor and pass it as an input", "cbrt(z"),
    "R = z / (z * gamma((z + z)))": ("found gamma(..)", "gamma((z"),
    "R[a,i] = z * w(i,a,b,j)": ("indices of w stand in brackets: w[..]; found w(", "w(i"),
    "R = 3": ("at least one tensor", "R = 3"),
    "R = 3 *": ("expected a name; found 'the end'", ""),
    "R = z z": ("expected the end of the line; found 'z'", "z"),
    "R = z / 0": ("", "/ 0"),
    "tensor q[v,o] symmetric(0,1)": ("run over different spaces", "symmetric"),
    "tensor q[v,o] symmetric(0,2)": ("has 2 axes; its symmetry names axes (0, 2)", "symmetric"),
    "tensor q[o,o] blocks(02)": ("has no block (0, 2)", "blocks"),
    "tensor q[o,o] conserving(0|2)": ("has 2 axes", "conserving"),
    "tensor q[o,o] costly 3": ("found 'costly'", "costly"),
    "tensor q[x]": ("space x is not declared", "x]"),
    "tensor t[o]": ("t is declared twice", "t[o]"),
    "index i : v": ("i is declared twice", "i : v"),
    "index m : x": ("space x is not declared", "x"),
    "space o = 3": ("o is declared twice", "o = 3"),
    "space p = 2.5": ("expected a whole number; found 2.5", "2.5"),
}


@pytest.mark.parametrize("line", WRONG)
def test_errors_point_at_the_place(line):
    words, place = WRONG[line]
    with pytest.raises(ExpressionError) as caught:
        program(line)
    message, shown, caret = str(caught.value).split("\n")
    assert message.startswith(f"line {len(HEAD.splitlines()) + 1}: ") and words in message
    assert shown == f"  {line}"
    assert line[len(caret) - 3 :].startswith(place) and caret.endswith("^")


def test_a_target_keeps_its_shape():
    with pytest.raises(ExpressionError, match="R has 2 indices; found 0"):
        program("R[a,i] = w[i,a,b,j]", "R += z")
    with pytest.raises(ExpressionError, match="axis 0 of R runs over space v; found index i over o"):
        program("R[a,i] = w[i,a,b,j]", "R[i,a] += w[i,a,b,j]")


def test_programs_of_objects_are_checked_too():
    v = Space("v", 3)
    with pytest.raises(ExpressionError, match="index c of x"):
        Program.of({"ab": v}, ("R", "a", Tensor("x", (v, v))["ac"]))
    with pytest.raises(ExpressionError, match="declared twice"):
        Program.of({"aa": v}, ("R", "a", Tensor("x", (v,))["a"]))
    with pytest.raises(ExpressionError, match="sum to 3; found"):
        Space("v", 3, (1, 1))
    with pytest.raises(ExpressionError, match="there is no space w"):
        Program.of({"a": v}, ("R", "a", Tensor("x", (v,))["a"])).sized(w=2)
    with pytest.raises(ExpressionError, match="space v has extent 3; found 4"):
        Program.of({"a": v}, ("R", "a", Tensor("x", (v,))["a"])).sized(v=4)
    with pytest.raises(ExpressionError, match="extent of space v is not known"):
        program("E = z").indices()


@pytest.mark.parametrize(
    ("below", "message"),
    [
        ("(e[i] - f[a])", r"found e\[i\] - f\[a\]: pass a sum as one tensor, or as a function"),
        ("(-e[i] + 2 * f[a])", r"found - e\[i\] \+ 2 \* f\[a\]: pass a sum"),
        ("(e[i] / f[a])", r"found e\[i\] / f\[a\]: multiply by its denominator"),
        ("0", "found zero"),
    ],
)
def test_a_division_says_what_it_was_by(below, message):
    text = "space o = 3\nspace v = 4\nindex i : o\nindex a : v\ntensor x[o,v]\ntensor e[o]\ntensor f[v]\n"
    with pytest.raises(ExpressionError, match=message):
        parse(f"{text}y[i,a] = x[i,a] / {below}")


def test_extents_are_any_integers():
    sized = program("E = z").sized(v=np.int64(7))
    assert type(sized.indices()["a"].extent) is int and sized == program("E = z").sized(v=7)
    assert program("E = z").sized(v=(np.int32(3), 4)).spaces[1] == Space("v", 7, (3, 4))
    for wrong in (7.0, "7", (3, 4.5)):
        with pytest.raises(ExpressionError, match="the extent of space v must be an integer; found"):
            program("E = z").sized(v=wrong)
