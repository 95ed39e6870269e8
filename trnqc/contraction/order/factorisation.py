"""The distributive law: terms with a common factor become that factor times a sum, where this saves work.

    1/2 x[k,l,i,j] t[a,b,k,l] + 1/4 g[k,l,c,d] t[c,d,i,j] t[a,b,k,l]  ->  t[a,b,k,l] W1[k,l,i,j]

The sum becomes a statement of its own before the one that uses it. Sums that are equal up to names of labels are
computed once. Permuted copies of terms, as P(i,j) generates them, are factorised together or not at all: equal terms
are computed once anyway (see `sharing`), so work is counted once for terms that are equal up to names of labels.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from itertools import combinations

from trnqc.contraction.order.canonical import Item, Key, canonical, variants
from trnqc.contraction.order.network import LabelNetwork
from trnqc.contraction.order.operations import best_splits
from trnqc.contraction.time_limit import SHARING, out_of_time
from trnqc.expression.program import Program, TensorStatement
from trnqc.expression.spaces import fresh_label
from trnqc.expression.symmetry import Symmetry
from trnqc.expression.terms import Factor, Term

# Signatures are equal for factors that can be taken out together.
Signature = tuple[object, ...]


@dataclass(frozen=True)
class Member:
    """Term `number` of a statement without the common factor; the labels of `rest` are those of the group."""

    number: int
    rest: Term


@dataclass(frozen=True)
class TermGroup:
    """Terms that share a factor up to names of summed labels. `kept` are the labels of the sum of the other factors."""

    factor: Factor
    kept: tuple[str, ...]
    members: tuple[Member, ...]

    @property
    def numbers(self) -> set[int]:
        """Numbers of the terms."""
        return {member.number for member in self.members}


@dataclass(frozen=True)
class CanonicalSum:
    """A canonical form of a group's sum: `sign` times the sum that `key` describes, with the labels in the key's order.

    Keys are equal for sums that are equal up to names of labels.
    """

    key: tuple[tuple[Key, Fraction], ...]
    labels: tuple[str, ...]
    sign: int


def factorised(program: Program) -> Program:
    """Return the program with common factors taken out; all extents must be known."""
    return _Factoring(program).result()


# Name of this search in the plan's list of what was not searched.
COMMON = "common factors of terms"


class _Factoring:
    """Factorises statement by statement; new labels, sums and statements are collected in its attributes."""

    def __init__(self, program: Program) -> None:
        self.program = program
        self.labels = dict(program.labels)
        self.extents = {label: index.extent for label, index in program.indices().items()}
        self.symmetries: dict[str, tuple[Symmetry, ...]] = {t.name: t.symmetries for t in program.tensors}
        self.versions: dict[str, int] = {}
        self.sums: dict[tuple[tuple[Key, Fraction], ...], str] = {}
        self.costs: dict[object, int] = {}
        self.keys: dict[tuple[tuple[Factor, ...], frozenset[str]], Key] = {}
        self.temporary: dict[tuple[tuple[Key, Fraction], ...], str] = {}
        self.statements: list[TensorStatement] = []

    def result(self) -> Program:
        """Return the factorised program."""
        for statement in self.program.statements:
            self._statement(statement)
            name = statement.target.tensor
            self.versions[name] = self.versions.get(name, 0) + 1
            self.keys.clear()
            self.symmetries.pop(name, None)
        return replace(self.program, labels=tuple(self.labels.items()), statements=tuple(self.statements))

    def _statement(self, statement: TensorStatement) -> None:
        """Append a factorised statement behind the statements of the sums that it uses."""
        while not out_of_time(COMMON, SHARING):
            work = self._work(statement.terms, statement.target.labels)
            trials = []
            for orbit in self._orbits(statement).values():
                trials.append(self._trial(statement, orbit))
                if out_of_time(COMMON, SHARING):
                    break
            if not trials or min(cost for cost, _ in trials) >= work:
                break
            _, groups = min(trials, key=lambda trial: trial[0])
            statement = self._applied(statement, groups)
        self.statements.append(statement)

    def _orbits(self, statement: TensorStatement) -> dict[Key, list[TermGroup]]:
        """Return the groups of a statement; groups that are equal up to names of labels are together."""
        target = frozenset(statement.target.labels)
        orbits: dict[Key, list[TermGroup]] = {}
        for group in self._groups(statement, target):
            if out_of_time(COMMON, SHARING):
                break
            form = self._form(group)
            name = self.temporary.setdefault(form.key, f"sum {len(self.temporary)}")
            items = (*self._items(Term(Fraction(1), (group.factor,))), Item(name, form.labels))
            orbits.setdefault(canonical(items, target, self.symmetries).key, []).append(group)
        return orbits

    def _trial(self, statement: TensorStatement, orbit: list[TermGroup]) -> tuple[int, list[TermGroup]]:
        """Return the work after factorising the groups of an orbit that have no term in common, and these groups."""
        chosen: list[TermGroup] = []
        gone: set[int] = set()
        for group in orbit:
            if not gone & group.numbers:
                chosen.append(group)
                gone |= group.numbers
        left = tuple(term for number, term in enumerate(statement.terms) if number not in gone)
        group = chosen[0]
        applied = self._cost((group.factor, Factor("", group.kept)), statement.target.labels)
        forming = 0
        if self._form(group).key not in self.sums:
            forming = self._work(tuple(member.rest for member in group.members), group.kept)
        return self._work(left, statement.target.labels) + applied + forming, chosen

    def _applied(self, statement: TensorStatement, groups: list[TermGroup]) -> TensorStatement:
        """Return the statement with the groups factorised."""
        gone = {number for group in groups for number in group.numbers}
        terms = [term for number, term in enumerate(statement.terms) if number not in gone]
        for group in groups:
            name, labels, sign = self._sum(group)
            terms.append(Term(Fraction(sign), (group.factor, Factor(name, labels))))
        return replace(statement, terms=tuple(terms))

    def _groups(self, statement: TensorStatement, target: frozenset[str]) -> Iterator[TermGroup]:
        """Yield pairs of terms with a common factor, and all terms that have it."""
        groups: dict[Signature, list[tuple[int, int, Factor, int]]] = {}
        for number, term in enumerate(statement.terms):
            for place, factor in enumerate(term.factors):
                if len(term.factors) > 1 and len(set(factor.labels)) == len(factor.labels):
                    signature, turned, sign = self._signature(term, place, target)
                    groups.setdefault(signature, []).append((number, place, turned, sign))
        for entries in groups.values():
            for pair in combinations(entries, 2):
                if pair[0][0] != pair[1][0]:
                    yield self._group(statement, pair, target)
            numbers = [number for number, *_ in entries]
            if len(set(numbers)) > 2:
                once = tuple(entry for k, entry in enumerate(entries) if entry[0] not in numbers[:k])
                yield self._group(statement, once, target)

    def _signature(self, term: Term, place: int, target: frozenset[str]) -> tuple[Signature, Factor, int]:
        """Return the signature of a factor, the factor with its axes in the order of the signature, and its sign."""
        factor = term.factors[place]
        rest = {x for k, other in enumerate(term.factors) if k != place for x in other.labels}
        best: tuple[tuple[str, ...], tuple[str, ...], int] | None = None
        for labels, sign in variants(factor.labels, self.symmetries.get(factor.tensor, ())):
            written = tuple(x if x in target else f"#{axis}" for axis, x in enumerate(labels))
            if best is None or written < best[0]:
                best = written, labels, sign
        assert best is not None
        written, labels, sign = best
        # Labels of the sum are identified by axis if they are summed labels of the factor, otherwise by name.
        kept = frozenset(f"#{axis}" for axis, x in enumerate(labels) if x in rest and x not in target)
        signature = (factor.tensor, factor.reciprocal, written, kept, frozenset(rest & target))
        return signature, replace(factor, labels=labels), sign

    def _group(
        self, statement: TensorStatement, entries: tuple[tuple[int, int, Factor, int], ...], target: frozenset[str]
    ) -> TermGroup:
        """Return the group of these (number of a term, position of the factor, factor, sign)."""
        factor = entries[0][2]
        taken = target | set(factor.labels)
        members = []
        for number, place, mine, sign in entries:
            term = statement.terms[number]
            rest = Term(term.coefficient * sign, term.factors[:place] + term.factors[place + 1 :])
            names = self._names(rest, dict(zip(mine.labels, factor.labels)), taken)
            members.append(Member(number, rest.renamed(names)))
        kept = tuple(label for label in members[0].rest.labels if label in taken)
        return TermGroup(factor, kept, tuple(members))

    def _names(self, inner: Term, fixed: Mapping[str, str], taken: set[str] | frozenset[str]) -> dict[str, str]:
        """Return new names for the labels of a term without its factor.

        Labels of the factor are named as in the group, and all others differ from them.
        """
        names = {old: new for old, new in fixed.items() if old in inner.labels}
        used = set(taken) | set(names.values()) | set(inner.labels)
        for label in inner.labels:
            if label in names or label not in taken:
                continue
            if label in fixed.values():
                names[label] = fresh_label(self.labels, label, used)
                self.extents[names[label]] = self.extents[label]
                used.add(names[label])
        return names

    def _work(self, terms: tuple[Term, ...], kept: tuple[str, ...]) -> int:
        """Return the work of terms in their best orders, counted once for terms equal up to names of labels."""
        costs: dict[Key, int] = {}
        for term in terms:
            product = (term.factors, frozenset(kept))
            if product not in self.keys:
                self.keys[product] = canonical(self._items(term), frozenset(kept), self.symmetries).key
            costs[self.keys[product]] = self._cost(term.factors, kept)
        return sum(costs.values())

    def _cost(self, factors: tuple[Factor, ...], kept: tuple[str, ...]) -> int:
        """Return the work of the best order of a product, or of the addition of a single factor."""
        key = tuple(factor.labels for factor in factors), kept
        if key not in self.costs:
            network = LabelNetwork.of([factor.labels for factor in factors], kept, self.extents)
            single = network.size(network.operands[0])
            self.costs[key] = network.cost(best_splits(network), network.everything) if len(factors) > 1 else single
        return self.costs[key]

    def _form(self, group: TermGroup) -> CanonicalSum:
        """Return the canonical form of a group's sum."""
        kept = frozenset(group.kept)
        products = [self._items(member.rest) for member in group.members]
        forms = [canonical(items, kept, self.symmetries) for items in products]
        anchor = min(range(len(forms)), key=lambda k: (forms[k].key, forms[k].labels))
        sign = forms[anchor].sign * (1 if group.members[anchor].rest.coefficient > 0 else -1)
        terms = []
        for items, member in zip(products, group.members):
            form = canonical(items, kept, self.symmetries, forms[anchor].labels)
            terms.append((form.key, sign * form.sign * member.rest.coefficient))
        return CanonicalSum(tuple(sorted(terms)), forms[anchor].labels, sign)

    def _sum(self, group: TermGroup) -> tuple[str, tuple[str, ...], int]:
        """Return (name, labels, sign) of a group's sum, for which a statement is added if there is none."""
        form = self._form(group)
        if form.key not in self.sums:
            self.sums[form.key] = self._free_name()
            terms = tuple(replace(m.rest, coefficient=form.sign * m.rest.coefficient) for m in group.members)
            self._statement(TensorStatement(Factor(self.sums[form.key], form.labels), terms))
        return self.sums[form.key], form.labels, form.sign

    def _items(self, term: Term) -> tuple[Item, ...]:
        """Return the factors of a term; a tensor that a statement has changed is another one."""

        def name(factor: Factor) -> str:
            version = self.versions.get(factor.tensor, 0)
            return f"{factor.tensor}@{version}" if version else factor.tensor

        return tuple(Item(name(factor), factor.labels, factor.reciprocal) for factor in term.factors)

    @cached_property
    def _taken(self) -> set[str]:
        return {tensor.name for tensor in self.program.tensors} | set(self.program.targets)

    def _free_name(self) -> str:
        """Return a name for a sum that no tensor has."""
        number = len(self.sums)
        while f"W{number}" in self._taken or not number:
            number += 1
        self._taken.add(f"W{number}")
        return f"W{number}"
