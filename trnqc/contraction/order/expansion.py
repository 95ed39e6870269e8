"""Programs without their intermediates: what they stand for is written out, so that a plan may choose others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

from trnqc.expression.program import Program, Statement
from trnqc.expression.spaces import fresh_label
from trnqc.expression.terms import Factor, Term


def expanded(program: Program, outputs: Sequence[str]) -> Program:
    """The program in which every intermediate is replaced by its sum of products; `outputs` stay.

    An intermediate that is assigned more than once, divides, or depends on a tensor that changes stays too. Plans of
    the result may need less work than those of the program (`plan_program` takes common factors out again), but take
    longer to make: products of sums become many terms.
    """
    return _Expander(program, frozenset(outputs)).result()


class _Expander:
    def __init__(self, program: Program, outputs: frozenset[str]) -> None:
        self.program = program
        self.labels = dict(program.labels)
        times = Counter(statement.target.tensor for statement in program.statements)
        given = {tensor.name for tensor in program.tensors}
        changing = {name for name, count in times.items() if count > 1 or name in given}
        factors = [factor for s in program.statements for term in s.terms for factor in term.factors]
        below = {factor.tensor for factor in factors if factor.reciprocal}
        self.replaced = {
            s.target.tensor
            for s in program.statements
            if s.target.tensor not in outputs | changing | below
            and not changing & {factor.tensor for term in s.terms for factor in term.factors}
        }
        self.meaning: dict[str, Statement] = {}

    def result(self) -> Program:
        statements = []
        for statement in self.program.statements:
            terms = tuple(found for term in statement.terms for found in self._terms(term, statement.target.labels))
            statement = replace(statement, terms=terms)
            if statement.target.tensor in self.replaced:
                self.meaning[statement.target.tensor] = statement
            else:
                statements.append(statement)
        return replace(self.program, labels=tuple(self.labels.items()), statements=tuple(statements))

    def _terms(self, term: Term, kept: tuple[str, ...]) -> list[Term]:
        """A term with its intermediates multiplied out; labels that they sum over are new ones."""
        found = [Term(term.coefficient, ())]
        for factor in term.factors:
            if factor.tensor not in self.meaning:
                found = [replace(t, factors=(*t.factors, factor)) for t in found]
                continue
            meaning = self.meaning[factor.tensor]
            found = [
                Term(t.coefficient * inner.coefficient, t.factors + inner.factors)
                for t in found
                for inner in self._placed(meaning, factor, {*kept, *term.labels, *t.labels})
            ]
        return found

    def _placed(self, meaning: Statement, factor: Factor, taken: set[str]) -> list[Term]:
        """The terms of an intermediate at the labels of a factor."""
        placed = []
        for term in meaning.terms:
            names = dict(zip(meaning.target.labels, factor.labels))
            for label in term.labels:
                if label not in names:
                    names[label] = fresh_label(self.labels, label, taken | set(names.values()))
            placed.append(replace(term.renamed(names), coefficient=Fraction(term.coefficient)))
        return placed
