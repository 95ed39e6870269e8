"""Exchanges of axes under which a tensor of a program is (anti)symmetric: declared for inputs, derived for targets.

A target that one statement assigns has an exchange if the exchange maps its sum of products onto itself, up to names of
summed labels, order of factors and known symmetry of these: tau[a,b,i,j] = t[a,b,i,j] + s[a,i] * s[b,j].
"""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction

from trnqc.contraction.order.canonical import Item, Key, canonical
from trnqc.expression.program import Program
from trnqc.expression.symmetry import Exchange

# Largest number of axes of a target for which all exchanges are tried.
RANK = 6


def exchanges_of(program: Program, name: str) -> tuple[Exchange, ...]:
    """Return the exchanges under which the tensor keeps its elements or changes their sign."""
    tensor = program.tensor(name)
    statements = [statement for statement in program.statements if statement.target.tensor == name]
    if tensor and not statements:
        return tensor.every_exchange
    if tensor or len(statements) != 1 or len(statements[0].target.labels) > RANK:
        return ()
    (statement,) = statements
    labels = statement.target.labels
    factors = {factor.tensor for term in statement.terms for factor in term.factors}
    known = {factor: exchanges_of(program, factor) for factor in factors}

    def coefficients(names: dict[str, str]) -> dict[Key, Fraction]:
        """Return the coefficient of each distinct product, with labels of the target renamed."""
        total: dict[Key, Fraction] = {}
        for term in statement.terms:
            items = [Item(f.tensor, f.labels, f.reciprocal) for f in term.renamed(names).factors]
            form = canonical(items, frozenset(labels), known, labels)
            total[form.key] = total.get(form.key, Fraction(0)) + term.coefficient * form.sign
        return {key: value for key, value in total.items() if value}

    before = coefficients({})
    exchanges = []
    for pairs in _exchangeable([program.space(label).name for label in labels], 0):
        after = coefficients({labels[i]: labels[j] for pair in pairs for i, j in (pair, pair[::-1])}) if pairs else {}
        signs = [sign for sign in (1, -1) if pairs and after == {key: sign * value for key, value in before.items()}]
        # A function of an antisymmetric argument may be symmetric, antisymmetric or neither.
        exchanges += [Exchange(pairs, sign) for sign in signs[:1] if sign > 0 or not statement.function]
    return tuple(exchanges)


def _exchangeable(spaces: list[str], first: int) -> Iterator[tuple[tuple[int, int], ...]]:
    """Yield all sets of disjoint pairs of axes over the same space, from axis `first` on."""
    if first >= len(spaces):
        yield ()
        return
    taken = spaces[first]
    yield from _exchangeable(spaces, first + 1)
    for other in range(first + 1, len(spaces)):
        if taken and spaces[other] == taken:
            rest = [*spaces]
            rest[other] = ""
            yield from (((first, other), *pairs) for pairs in _exchangeable(rest, first + 1))
