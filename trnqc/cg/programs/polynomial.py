"""One channel of a symmetric contraction, B[M] = sum_t C[t] m_t(x), and its derivatives.

`value` computes the derivative of B along n directions h, and `gradient` the derivatives of <gB, that> with respect to
x and C. Without directions these are B and its gradients. Each component of B is a polynomial in Horner's form, so a
node of it is t = C + sum of x[i] u_i over its children u_i. Its derivative along a set S of the directions is

    t_S = sum_i x[i] u_i,S + sum_i sum_(d in S) h_d[i] u_i,S\\d.

A gradient first computes these from the leaves to the root, and then the adjoints a_S of the t_S from the root to the
leaves:

    a_S(u_i) = x[i] a_S + sum_(d not in S) h_d[i] a_(S+d),    gx[i] += sum_S a_S u_i,S,    gC += a_0.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from trnqc.cg.problem.polynomials import Monomial, Node
from trnqc.gen import Value
from trnqc.gen.build import Builder, dot
from trnqc.gen.values import fma

# Sets of directions as the bits of a number.
Directions = int


@dataclass(frozen=True)
class Channel:
    """A channel in a program.

    Parameters
    ----------
    b : Builder
        The program.
    x : sequence of Value
        The components of x.
    along : sequence of sequences of Value
        The components of each direction h.
    coefficient : callable
        Returns the coefficient C of a component of B and a monomial.
    """

    b: Builder
    x: Sequence[Value]
    along: Sequence[Sequence[Value]]
    coefficient: Callable[[int, Monomial], Value]
    _nodes: dict[int, dict[Directions, Value]] = field(default_factory=dict)

    @property
    def all(self) -> Directions:
        """All directions."""
        return (1 << len(self.along)) - 1

    def value(self, component: int, node: Node) -> Value | None:
        """Return the derivative of a component of B along all directions; None if it is zero."""
        return self._derivatives(component, node, {self.all}).get(self.all)

    def gradient(
        self,
        component: int,
        node: Node,
        gb: Value,
        gx: Sequence[Value],
        add: Callable[[int, Monomial, Value], None] | None,
    ) -> None:
        """Add the derivatives of gb times the value to gx, and those with respect to each coefficient by `add`."""
        self._derivatives(component, node, {self.all})
        self._backward(component, node, {self.all: gb}, gx, add)
        self._nodes.clear()

    def _derivatives(self, component: int, node: Node, wanted: set[Directions]) -> Mapping[Directions, Value]:
        """Compute t_S of a node and of those below it for the sets S in `wanted`; those that are zero are absent."""
        below = {part for s in wanted for part in (s, *self._less_one(s))}
        children = [(i, self._derivatives(component, child, below)) for i, child in node.children]
        sums = {s: self._sum(component, node, children, s) for s in sorted(wanted)}
        values = {s: self.b.let("t", t) if node.children else t for s, t in sums.items() if t is not None}
        self._nodes[id(node)] = values
        return values

    def _sum(
        self, component: int, node: Node, children: list[tuple[int, Mapping[Directions, Value]]], s: Directions
    ) -> Value | None:
        constant = self.coefficient(component, node.monomial) if node.monomial is not None and not s else None
        terms = [(self.x[i], u[s]) for i, u in children if s in u]
        for d, h in enumerate(self.along):
            terms += [(h[i], u[s ^ 1 << d]) for i, u in children if s >> d & 1 and s ^ 1 << d in u]
        return dot(terms, constant) if terms else constant

    def _less_one(self, s: Directions) -> list[Directions]:
        return [s ^ 1 << d for d in range(len(self.along)) if s >> d & 1]

    def _backward(
        self,
        component: int,
        node: Node,
        adjoints: Mapping[Directions, Value],
        gx: Sequence[Value],
        add: Callable[[int, Monomial, Value], None] | None,
    ) -> None:
        """Add the contributions of a node and of the nodes below it, from the adjoints a_S of the node."""
        if node.monomial is not None and add is not None and 0 in adjoints:
            add(component, node.monomial, adjoints[0])
        for i, child in node.children:
            for s, t in self._nodes[id(child)].items():
                if s in adjoints:
                    self.b.assign(gx[i], fma(adjoints[s], t, gx[i]))
            if child.children or add is not None:
                self._backward(component, child, self._adjoints(i, child, adjoints), gx, add)

    def _adjoints(self, i: int, child: Node, adjoints: Mapping[Directions, Value]) -> dict[Directions, Value]:
        """Return the adjoints of the child that belongs to x[i], for sets of no more directions than its degree."""
        sets = {part for s in adjoints for part in (s, *self._less_one(s)) if part.bit_count() <= child.degree}
        result = {}
        for s in sorted(sets):
            terms = [(self.x[i], adjoints[s])] if s in adjoints else []
            terms += [
                (h[i], adjoints[s | 1 << d])
                for d, h in enumerate(self.along)
                if s | 1 << d in adjoints and not s >> d & 1
            ]
            result[s] = self.b.let("a", dot(terms))
        return result
