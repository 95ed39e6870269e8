"""One channel of a symmetric contraction, B[M] = sum_t C[t] m_t(x), and its derivatives.

`value` computes the derivative of B along n directions h, and `gradient` the derivatives of <gB, that> with respect to
x and C. Without directions these are B and its gradients. Each component of B is a polynomial in Horner's form, so a
node of it is t = C + sum of x[i] u_i over its children u_i. Its derivative along a set S of the directions is

    t_S = sum_i x[i] u_i,S + sum_i sum_(d in S) h_d[i] u_i,S\\d.

A gradient also needs the adjoints a_S of the t_S,

    a_S(u_i) = x[i] a_S + sum_(d not in S) h_d[i] a_(S+d),    gx[i] += sum_S a_S u_i,S,    gC += a_0.

They do not depend on the t_S, so that one walk through the nodes passes adjoints down and values up. Only what belongs
to the nodes between the root and the present one is kept, which fits in registers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from trnqc.cg.problem.contraction import ContractionProblem
from trnqc.cg.problem.polynomials import HornerNode, Monomial
from trnqc.gen import Value
from trnqc.gen.build import Builder, dot
from trnqc.gen.values import fma

# The kinds of programs: the value, its gradient with respect to x, and its gradients with respect to x and C.
KINDS = ("value", "gradient", "gradients")
# Sets of directions as the bits of a number, and values for some of them.
Directions = int
Derivatives = Mapping[Directions, Value]
# Adds to the gradient of the coefficient of a component of B and a monomial.
Add = Callable[[int, Monomial, Value], None]


def operands(kind: str, directions: int) -> tuple[str, ...]:
    """Return the operands of a program in the order of its parameters; `out` is the value or gx."""
    along = (f"h{n}" for n in range(1, directions + 1))
    return ("c", "x", *along, *["gb"] * (kind != "value"), "out", *["gc"] * (kind == "gradients"))


def parts(problem: ContractionProblem, directions: int, terms: int) -> list[range]:
    """Return ranges of components of B, whose formulas have at most `terms` terms unless it is a single component."""
    sizes = [sum(1 for _ in node.monomials()) << directions for node in problem.components]
    ranges, first, size = [], 0, 0
    for component, own in enumerate(sizes):
        if size and size + own > terms:
            ranges.append(range(first, component))
            first, size = component, 0
        size += own
    return [*ranges, range(first, len(sizes))]


@dataclass(frozen=True)
class PolynomialChannel:
    """A channel in a program: components of x and of the directions h, and C by component of B and monomial."""

    b: Builder
    x: Sequence[Value]
    along: Sequence[Sequence[Value]]
    coefficient: Callable[[int, Monomial], Value]

    @property
    def all(self) -> Directions:
        """All directions."""
        return (1 << len(self.along)) - 1

    def value(self, component: int, node: HornerNode) -> Value | None:
        """Return the derivative of a component of B along all directions; None if it is zero."""
        return _Walk(self, component, (), None).through(node, {self.all}, {}).get(self.all)

    def gradient(self, component: int, node: HornerNode, gb: Value, gx: Sequence[Value], add: Add | None) -> None:
        """Add the derivatives of gb times the value: to gx, and for each coefficient by `add`."""
        _Walk(self, component, gx, add).through(node, set(), {self.all: gb})


@dataclass(frozen=True)
class _Walk:
    """A walk through the polynomial of a component of B."""

    channel: PolynomialChannel
    component: int
    gx: Sequence[Value]
    add: Add | None

    def through(self, node: HornerNode, wanted: set[Directions], adjoints: Derivatives) -> dict[Directions, Value]:
        """Add what a node and those below it contribute to gradients, and return its t_S for the S in `wanted`.

        Those that are zero are absent.
        """
        b, sums = self.channel.b, self._constant(node, wanted, adjoints)
        needed = {part for s in wanted for part in (s, *self._less_one(s))} | adjoints.keys()
        for i, child in node.children:
            below = self._adjoints(i, child, adjoints) if child.children or self.add is not None else {}
            values = self.through(child, needed, below)
            for s in sorted(adjoints.keys() & values.keys()):
                b.assign(self.gx[i], fma(adjoints[s], values[s], self.gx[i]))
            for s in sorted(wanted):
                if terms := self._terms(i, values, s):
                    total = dot(terms, sums.get(s))
                    sums[s] = b.let("t", total) if child.children else total
        return {s: b.let("t", t) if node.children else t for s, t in sums.items()}

    def _constant(self, node: HornerNode, wanted: set[Directions], adjoints: Derivatives) -> dict[Directions, Value]:
        """Return the constant of a node as the first term of t_0, and add its gradient."""
        if node.monomial is None:
            return {}
        if self.add is not None and 0 in adjoints:
            self.add(self.component, node.monomial, adjoints[0])
        return {0: self.channel.coefficient(self.component, node.monomial)} if 0 in wanted else {}

    def _terms(self, i: int, u: Derivatives, s: Directions) -> list[tuple[Value, Value]]:
        """Return the terms that the child u of x[i] contributes to t_S."""
        terms = [(self.channel.x[i], u[s])] if s in u else []
        along = enumerate(self.channel.along)
        return terms + [(h[i], u[s ^ 1 << d]) for d, h in along if s >> d & 1 and s ^ 1 << d in u]

    def _less_one(self, s: Directions) -> list[Directions]:
        return [s ^ 1 << d for d in range(len(self.channel.along)) if s >> d & 1]

    def _adjoints(self, i: int, child: HornerNode, adjoints: Derivatives) -> dict[Directions, Value]:
        """Return the adjoints of the child of x[i], for sets of no more directions than its degree."""
        sets = {part for s in adjoints for part in (s, *self._less_one(s)) if part.bit_count() <= child.degree}
        result = {}
        for s in sorted(sets):
            terms = [(self.channel.x[i], adjoints[s])] if s in adjoints else []
            terms += [
                (h[i], adjoints[s | 1 << d])
                for d, h in enumerate(self.channel.along)
                if s | 1 << d in adjoints and not s >> d & 1
            ]
            result[s] = self.channel.b.let("a", dot(terms))
        return result
