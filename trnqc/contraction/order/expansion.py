"""Programs with their intermediates written out, so that a plan may choose other intermediates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from trnqc.expression.program import Program, TensorStatement
from trnqc.expression.terms import Term


def expanded(program: Program, outputs: Sequence[str]) -> Program:
    """Return the program in which every intermediate is replaced by its sum of products; `outputs` are kept.

    An intermediate that is assigned more than once, is a function, divides, or depends on a tensor that changes is kept
    too. Plans of the result may need less work than those of the program, since `plan_program` takes out common factors
    again, but take longer to find: products of sums become many terms.
    """
    return _Expander(program, frozenset(outputs)).result()


class _Expander:
    """Replaces intermediates statement by statement; new labels are added to `labels`."""

    def __init__(self, program: Program, outputs: frozenset[str]) -> None:
        self.program = program
        self.labels = dict(program.labels)
        times = Counter(statement.target.tensor for statement in program.statements)
        declared = {tensor.name for tensor in program.tensors}
        changing = {name for name, count in times.items() if count > 1 or name in declared}
        factors = [factor for s in program.statements for term in s.terms for factor in term.factors]
        below = {factor.tensor for factor in factors if factor.reciprocal}
        self.replaced = {
            s.target.tensor
            for s in program.statements
            if s.target.tensor not in outputs | changing | below
            and not s.function
            and not changing & {factor.tensor for term in s.terms for factor in term.factors}
        }
        self.meaning: dict[str, TensorStatement] = {}

    def result(self) -> Program:
        """Return the expanded program."""
        statements = []
        for statement in self.program.statements:
            terms = tuple(new for term in statement.terms for new in self._terms(term, statement.target.labels))
            statement = replace(statement, terms=terms)
            if statement.target.tensor in self.replaced:
                self.meaning[statement.target.tensor] = statement
            else:
                statements.append(statement)
        return replace(self.program, labels=tuple(self.labels.items()), statements=tuple(statements))

    def _terms(self, term: Term, kept: tuple[str, ...]) -> list[Term]:
        """Return a term with its intermediates multiplied out; the labels that these sum over are renamed."""
        terms = [Term(term.coefficient, ())]
        for factor in term.factors:
            if factor.tensor not in self.meaning:
                terms = [replace(t, factors=(*t.factors, factor)) for t in terms]
                continue
            meaning = self.meaning[factor.tensor]
            terms = [
                Term(t.coefficient * inner.coefficient, t.factors + inner.factors)
                for t in terms
                for inner in meaning.terms_at(factor.labels, self.labels, {*kept, *term.labels, *t.labels})
            ]
        return terms
