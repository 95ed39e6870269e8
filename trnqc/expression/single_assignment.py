"""Programs in which every tensor has one value: a statement that changes a tensor assigns another one instead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from fractions import Fraction

from trnqc.expression.program import Program, TensorStatement
from trnqc.expression.terms import Factor, Term


def single_assignment(program: Program) -> tuple[Program, dict[str, str]]:
    """Return the program with one statement for each target, and the last name of every tensor.

    An addition (``+=``) becomes part of the statement before it, or of a new tensor if the old value has been read in
    between. Values that are replaced later get primes: X' and X. Of an input that changes, the later values get them.
    """
    labels = dict(program.labels)
    statements, versions = _versions(program, labels)
    read = {factor.tensor for s in statements for term in s.terms for factor in term.factors}
    replaced = {name for name, number in versions.items() if number and f"{name}@0" not in read}
    # A declared tensor that is assigned before anything reads it is no input.
    tensors = tuple(tensor for tensor in program.tensors if tensor.name not in replaced)
    inputs = {tensor.name for tensor in tensors}
    names: dict[str, str] = {}
    taken = inputs | set(versions)
    for name, last in versions.items():
        kept = 0 if name in inputs else last
        names[f"{name}@{kept}"] = name
        for number in range(0 if name in inputs else 1, last + 1):
            if number != kept:
                names[f"{name}@{number}"] = primed(name, taken)
                taken.add(names[f"{name}@{number}"])
    renamed = tuple(_renamed(statement, names) for statement in statements)
    result = replace(program, labels=tuple(labels.items()), tensors=tensors, statements=renamed)
    return result, {name: names[f"{name}@{last}"] for name, last in versions.items()}


def without_unread(program: Program, outputs: Iterable[str]) -> Program:
    """Return the program of single assignments with the statements that `outputs` depend on."""
    needed, statements = set(outputs), []
    for statement in reversed(program.statements):
        if statement.target.tensor in needed:
            statements.append(statement)
            needed |= {factor.tensor for term in statement.terms for factor in term.factors}
    return replace(program, statements=tuple(reversed(statements)))


def primed(name: str, taken: set[str]) -> str:
    """Return the name with as many primes as make it a new one."""
    while name in taken:
        name += "'"
    return name


def _versions(program: Program, labels: dict[str, str]) -> tuple[list[TensorStatement], dict[str, int]]:
    """Return statements over the names X@0 (an input), X@1 ... of the values of X, and the last number of each.

    New labels are added to `labels`.
    """
    versions = dict.fromkeys((tensor.name for tensor in program.tensors), 0)
    statements: dict[str, TensorStatement] = {}
    read: set[str] = set()
    for statement in program.statements:
        target = statement.target
        before = f"{target.tensor}@{versions.get(target.tensor, 0)}"
        statement = _renamed(statement, {name: f"{name}@{number}" for name, number in versions.items()})
        read |= {factor.tensor for term in statement.terms for factor in term.factors}
        terms = statement.terms
        if statement.accumulate and before in statements and before not in read:
            # Its value is complete here only.
            first = statements.pop(before)
            here = replace(statement, target=target)
            terms = first.terms + here.terms_at(first.target.labels, labels)
            statements[before] = replace(first, terms=terms)
            continue
        if statement.accumulate:
            terms = (Term(Fraction(1), (replace(target, tensor=before),)), *terms)
            read.add(before)
        versions[target.tensor] = versions.get(target.tensor, 0) + 1
        name = f"{target.tensor}@{versions[target.tensor]}"
        statements[name] = TensorStatement(replace(target, tensor=name), terms, function=statement.function)
    return list(statements.values()), versions


def _renamed(statement: TensorStatement, names: Mapping[str, str]) -> TensorStatement:
    """Return the statement with tensors renamed."""

    def named(factor: Factor) -> Factor:
        return replace(factor, tensor=names.get(factor.tensor, factor.tensor))

    terms = tuple(replace(term, factors=tuple(map(named, term.factors))) for term in statement.terms)
    return replace(statement, target=named(statement.target), terms=terms)
