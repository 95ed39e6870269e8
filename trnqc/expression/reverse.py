"""Reverse mode: the statements of derivatives of a scalar, from the last tensor of a program to its inputs."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from trnqc.errors import ExpressionError
from trnqc.expression.functions import chain_rule
from trnqc.expression.program import Program, TensorStatement
from trnqc.expression.single_assignment import primed
from trnqc.expression.symmetry import signed_orders
from trnqc.expression.terms import Factor, Term


class Reverse:
    """Collects the statements of derivatives of a scalar `of`; `prefix` and a tensor's name make the derivative's.

    `parts` has what each tensor contributes to the scalar through later statements: the terms of its derivative, at the
    labels where it stands. A scalar may have a number besides, since a term of a program has at least one tensor.
    """

    def __init__(self, program: Program, of: str, prefix: str, wanted: Sequence[str]) -> None:
        self.program, self.of, self.prefix = program, of, prefix
        self.labels = dict(program.labels)
        self.statements: list[TensorStatement] = []
        self.parts: dict[str, list[TensorStatement]] = {}
        self.numbers: dict[str, Fraction] = {of: Fraction(1)}
        self.active = set(wanted)
        for statement in program.statements:
            if any(factor.tensor in self.active for term in statement.terms for factor in term.factors):
                self.active.add(statement.target.tensor)

    def target(self, target: Factor) -> None:
        """Append the statement of the derivative with respect to a target, if the scalar depends on it."""
        if target.tensor in self.parts:
            self._derivative(self.prefix + target.tensor, target.labels, self.parts[target.tensor])

    def factors(self, statement: TensorStatement) -> None:
        """Add what a statement contributes to the derivatives with respect to its factors."""
        target = statement.target
        above = [Term(Fraction(1), (replace(target, tensor=self.prefix + target.tensor),))]
        above = above if target.tensor in self.parts else []
        if self.numbers.get(target.tensor):
            above.append(Term(self.numbers[target.tensor], ()))
        for term in statement.terms:
            for place, factor in enumerate(term.factors):
                if factor.tensor in self.active:
                    for outer in above:
                        changes = [] if statement.function else [product_rule(term, place, outer)]
                        for change in chain_rule(self.program, statement, outer) if statement.function else changes:
                            self._add(factor, change, statement)

    def input(self, name: str) -> None:
        """Append the statements of the derivative with respect to an input, with the symmetry of the input."""
        if self.numbers.get(name):
            raise ExpressionError(
                f"the derivative with respect to {name} has a constant, {self.numbers[name]}, and a term of a program "
                f"has at least one tensor: multiply {name} by a tensor that is 1"
            )
        if name not in self.parts:
            raise ExpressionError(f"{self.of} does not depend on {name}")
        tensor = self.program.tensor(name)
        assert tensor is not None
        orders = signed_orders(tensor.every_exchange, tensor.rank)
        labels, derivative = self.parts[name][0].target.labels, self.prefix + name
        others = {self.prefix + other for other in (*self.program.targets, *self.program.inputs)}
        raw = primed(derivative, others) if len(orders) > 1 else derivative
        self._derivative(raw, labels, self.parts[name])
        if len(orders) > 1:
            mean = tuple(
                Term(Fraction(sign, len(orders)), (Factor(raw, tuple(labels[axis] for axis in order)),))
                for order, sign in orders.items()
            )
            self.statements.append(TensorStatement(Factor(derivative, labels), mean))

    def _add(self, factor: Factor, term: Term, statement: TensorStatement) -> None:
        """Add a term to the derivative with respect to the tensor of a factor of a statement."""
        if len(set(factor.labels)) < len(factor.labels):
            raise ExpressionError(
                f"the derivative with respect to the diagonal {factor} in {statement} is no sum of products: multiply "
                f"{factor.tensor}, with different labels, by delta(..) of these labels"
            )
        if alone := [label for label in factor.labels if label not in term.labels]:
            raise ExpressionError(
                f"index {alone[0]} of {factor} stands in no other tensor of its term in {statement}, so that the "
                f"derivative has no label {alone[0]}: multiply {factor.tensor} by a tensor of ones"
            )
        if term.factors:
            part = TensorStatement(replace(factor, reciprocal=False), (term,))
            self.parts.setdefault(factor.tensor, []).append(part)
        else:
            self.numbers[factor.tensor] = self.numbers.get(factor.tensor, Fraction(0)) + term.coefficient

    def _derivative(self, name: str, labels: tuple[str, ...], parts: Sequence[TensorStatement]) -> None:
        """Append the statement that assigns the sum of terms, of which equal ones are added."""
        terms: dict[frozenset[tuple[Factor, int]], Term] = {}
        for term in (term for part in parts for term in part.terms_at(labels, self.labels)):
            key = frozenset(Counter(term.factors).items())
            before = terms[key].coefficient if key in terms else Fraction(0)
            terms[key] = replace(terms.get(key, term), coefficient=before + term.coefficient)
        self.statements.append(TensorStatement(Factor(name, labels), tuple(terms.values())))


def product_rule(term: Term, place: int, outer: Term) -> Term:
    """Return the derivative of a term with respect to one of its factors, times another term.

    That of 1/x is -1/x^2.
    """
    factor = term.factors[place]
    factors = (*term.factors[:place], *outer.factors, *term.factors[place + 1 :])
    if not factor.reciprocal:
        return Term(term.coefficient * outer.coefficient, factors)
    return Term(-term.coefficient * outer.coefficient, (*factors, factor, factor))
