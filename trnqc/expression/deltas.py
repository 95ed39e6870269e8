"""Kronecker's delta in programs: a summed label is another name of the one that it is equal to.

    R[a,j] = F[a,i] * delta(i,j)       ->  R[a,j] = F[a,j]
    D[i,j] = F[i,j] * delta(i,j)       ->  D[i,j] = F[i,i] * delta(i,j)

A delta of two labels of the target remains, as a factor whose elements are known.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from trnqc.expression.program import Program
from trnqc.expression.terms import Factor, Term, is_identity


def without_summed_deltas(program: Program) -> Program:
    """Return the program, whose extents must be known, in which only deltas of two labels of the target are left.

    Labels that a delta makes equal get one name. A sum over a label that then stands in no tensor is its extent.
    """
    if not any(is_identity(tensor.name) for tensor in program.tensors):
        return program
    extents = {label: index.extent for label, index in program.indices().items()}
    statements = tuple(
        replace(s, terms=tuple(_resolved(term, s.target.labels, extents) for term in s.terms))
        for s in program.statements
    )
    return replace(program, statements=statements)


def _resolved(term: Term, kept: tuple[str, ...], extents: Mapping[str, int]) -> Term:
    """Return a term with the summed labels of deltas renamed; `kept` are the labels of the target."""
    deltas = [factor for factor in term.factors if is_identity(factor.tensor)]
    others = [factor for factor in term.factors if not is_identity(factor.tensor)]
    read = {label for factor in others for label in factor.labels}
    names: dict[str, str] = {}
    factors: list[Factor] = []
    coefficient = term.coefficient
    for tensor, group in _equal_labels(deltas):
        targets = [label for label in group if label in kept]
        first, *further = targets or group
        names |= dict.fromkeys(group, first)
        if targets and further:
            factors += [Factor(tensor, (first, label)) for label in further]
        elif not read & set(group) and (targets or not (others or factors)):
            # Nothing else has the label: the diagonal of the identity, or its trace, so that the term has a tensor.
            factors.append(Factor(tensor, (first, first)))
        elif not read & set(group):
            coefficient *= extents[first]
    return Term(coefficient, (*(factor.renamed(names) for factor in others), *factors))


def _equal_labels(deltas: Sequence[Factor]) -> list[tuple[str, list[str]]]:
    """Return (identity, labels that its deltas make equal), labels in the order in which they are written."""
    groups: list[tuple[str, list[str]]] = []
    for delta in deltas:
        joined = [group for group in groups if set(group[1]) & set(delta.labels)]
        labels = [label for _, group in joined for label in group]
        groups = [group for group in groups if group not in joined]
        groups.append((delta.tensor, list(dict.fromkeys([*labels, *delta.labels]))))
    return groups
