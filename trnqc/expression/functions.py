"""Functions of single elements, such as exp(x[i]), and their derivatives.

A derivative is a sum of products of the argument, the value and other functions of the argument: that of tanh is
1 - tanh tanh. The derivative of abs is sign, which is 0 at 0.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from trnqc.expression.program import Program, TensorStatement
from trnqc.expression.single_assignment import primed
from trnqc.expression.terms import Factor, Term, signed

ARGUMENT, VALUE = "argument", "value"


@dataclass(frozen=True)
class ElementFunction:
    """A function of one element.

    Attributes
    ----------
    is_zero_at_zero : bool
        Whether blocks of zeros stay zero.
    derivative : tuple
        Terms: a coefficient, and (ARGUMENT, VALUE or another function, whether it divides) for each factor.
    """

    is_zero_at_zero: bool
    derivative: tuple[tuple[Fraction, tuple[tuple[str, bool], ...]], ...]


FUNCTIONS = {
    "exp": ElementFunction(False, ((Fraction(1), ((VALUE, False),)),)),
    "log": ElementFunction(False, ((Fraction(1), ((ARGUMENT, True),)),)),
    "sqrt": ElementFunction(True, ((Fraction(1, 2), ((VALUE, True),)),)),
    "abs": ElementFunction(True, ((Fraction(1), (("sign", False),)),)),
    "sign": ElementFunction(True, ()),
    "tanh": ElementFunction(True, ((Fraction(1), ()), (Fraction(-1), ((VALUE, False), (VALUE, False))))),
    "sin": ElementFunction(True, ((Fraction(1), (("cos", False),)),)),
    "cos": ElementFunction(False, ((Fraction(-1), (("sin", False),)),)),
}


def application(name: str, terms: Sequence[Term], taken: set[str]) -> TensorStatement:
    """Return the statement of a function of a sum of terms; its target has a name that is not `taken`.

    The target has every label of the terms, in the order of their appearance.
    """
    labels = tuple(dict.fromkeys(label for term in terms for label in term.labels))
    only = _plain(terms)
    title = _text(terms) if only is None else only.tensor
    return TensorStatement(Factor(primed(f"{name}({title})", taken), labels), tuple(terms), function=name)


def _text(terms: Sequence[Term]) -> str:
    return signed(terms).replace(" ", "").removeprefix("+")


def _plain(terms: Sequence[Term]) -> Factor | None:
    """Return the tensor of a sum that is one tensor at different labels."""
    if len(terms) != 1 or terms[0].coefficient != 1 or len(terms[0].factors) != 1:
        return None
    (factor,) = terms[0].factors
    return None if factor.reciprocal or len(set(factor.labels)) < len(factor.labels) else factor


def with_derivatives(program: Program) -> Program:
    """Return a program of single assignments in which each function can be differentiated.

    The argument of a function is one tensor, and the functions of its derivative are computed too.
    """
    taken = {*(tensor.name for tensor in program.tensors), *program.targets}
    statements: list[TensorStatement] = []
    arguments: dict[tuple[Term, ...], tuple[Term, ...]] = {}
    for statement in program.statements:
        terms = statement.terms
        if statement.function and _plain(terms) is None:
            if terms not in arguments:
                argument = Factor(primed(f"({_text(terms)})", taken), statement.target.labels)
                taken.add(argument.tensor)
                statements.append(TensorStatement(argument, terms))
                arguments[terms] = (Term(Fraction(1), (argument,)),)
            statement = replace(statement, terms=arguments[terms])
        statements.append(statement)
    computed = {(statement.function, statement.terms) for statement in statements}
    result = []
    for statement in statements:
        result.append(statement)
        for other in _others(statement.function):
            if (other, statement.terms) not in computed:
                partner = application(other, statement.terms, taken)
                taken.add(partner.target.tensor)
                computed.add((other, statement.terms))
                result.append(partner)
    return replace(program, statements=tuple(result))


def _others(name: str) -> list[str]:
    """Return the other functions in the derivative of a function; none without a name."""
    if not name:
        return []
    factors = [kind for _, factors in FUNCTIONS[name].derivative for kind, _ in factors]
    return [kind for kind in dict.fromkeys(factors) if kind not in (ARGUMENT, VALUE)]


def chain_rule(program: Program, statement: TensorStatement, outer: Term) -> list[Term]:
    """Return the derivative of a function, of `with_derivatives`, times another term."""
    (argument,) = statement.terms[0].factors
    places = {ARGUMENT: argument, VALUE: statement.target}
    for other in program.statements:
        if other.function and other.terms == statement.terms:
            places.setdefault(other.function, replace(other.target, labels=statement.target.labels))
    return [
        Term(
            outer.coefficient * coefficient,
            (*outer.factors, *(replace(places[kind], reciprocal=divides) for kind, divides in factors)),
        )
        for coefficient, factors in FUNCTIONS[statement.function].derivative
    ]
