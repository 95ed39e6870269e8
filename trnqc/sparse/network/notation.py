"""Concrete index notation of a nest.

`forall(i, s)` is a loop; in `where(consumer, producer)` the producer makes what the consumer reads in the same turn.
Two producers of one consumer are nested on its left, ``where(where(consumer, second), first)``.
"""

from __future__ import annotations

from dataclasses import dataclass

from trnqc.sparse.network.loops import Leaf, Node, loops, ordered
from trnqc.sparse.network.nest import Nest


@dataclass(frozen=True)
class Assign:
    """target += or = product of operands, all with their indices in the order in which they are stored."""

    target: str
    operands: tuple[str, ...]
    adds: bool

    def __str__(self) -> str:
        return f"{self.target} {'+=' if self.adds else '='} {' * '.join(self.operands)}"


@dataclass(frozen=True)
class Forall:
    index: str
    body: Statement

    def __str__(self) -> str:
        return f"forall({self.index}, {self.body})"


@dataclass(frozen=True)
class Where:
    consumer: Statement
    producer: Statement

    def __str__(self) -> str:
        return f"where({self.consumer}, {self.producer})"


@dataclass(frozen=True)
class Sequence:
    """Statements that follow one another, each of which needs all that those before it have made."""

    statements: tuple[Statement, ...]

    def __str__(self) -> str:
        return f"sequence({', '.join(map(str, self.statements))})"


Statement = Assign | Forall | Where | Sequence


def notation(nest: Nest) -> Statement:
    """The statement of a nest, a copy that orders a sparse result included.

    Operands are called A, B, ... (T26 and so on from the 27th on), intermediates X with their number, the result R.
    """
    nest = ordered(nest)
    statements = _statements(nest, loops(nest), 0)
    return statements[0] if len(statements) == 1 else Sequence(tuple(statements))


def _statements(nest: Nest, nodes: tuple[Node, ...], depth: int) -> list[Statement]:
    return [
        _assign(nest, node.member)
        if isinstance(node, Leaf)
        else Forall(node.index, _joined(nest, node.body, depth + 1))
        for node in nodes
    ]


def _joined(nest: Nest, nodes: tuple[Node, ...], depth: int) -> Statement:
    """The last consumes what the others make in the same turn: the first producer stands outermost."""
    *producers, whole = _statements(nest, nodes, depth)
    for producer in reversed(producers):
        whole = Where(whole, producer)
    return whole


def _assign(nest: Nest, member: int) -> Assign:
    n = len(nest.network.inputs)
    a = nest.assignments[member]
    target = _named(nest, a.target)
    kept = nest.formats[-1].order if a.target == n + len(nest.assignments) - 1 else nest.workspaces[member].order
    outer = a.loops[: nest.fused(a.target)] if member < len(nest.workspaces) else ()
    summed = set(a.loops) - set(kept) - set(outer)
    return Assign(target, tuple(_named(nest, t) for t in a.operands), bool(summed))


def name(nest: Nest, tensor: int) -> str:
    n = len(nest.network.inputs)
    if tensor < n:
        return chr(ord("A") + tensor) if tensor < 26 else f"T{tensor}"
    return "R" if tensor == n + len(nest.assignments) - 1 else f"X{tensor - n}"


def _named(nest: Nest, tensor: int) -> str:
    n = len(nest.network.inputs)
    inside = n <= tensor < n + len(nest.assignments) - 1
    order = nest.workspaces[tensor - n].order if inside else nest.formats[min(tensor, n)].order
    return f"{name(nest, tensor)}({','.join(order)})"
