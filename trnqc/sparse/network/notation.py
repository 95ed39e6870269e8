"""The concrete index notation of a nest, and its listing.

`forall(i, s)` is a loop. In `where(consumer, producer)` the producer computes what the consumer reads in the same turn.
Two producers of one consumer are nested: ``where(where(consumer, second), first)``.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from trnqc.sparse.network.loops import NestLeaf, Node, loops, ordered
from trnqc.sparse.network.nest import Nest


@dataclass(frozen=True)
class IndexAssignment:
    """target += or = product of operands, each with its indices in the order in which it is stored."""

    target: str
    operands: tuple[str, ...]
    adds: bool

    def __str__(self) -> str:
        return f"{self.target} {'+=' if self.adds else '='} {' * '.join(self.operands)}"


@dataclass(frozen=True)
class Forall:
    """A loop."""

    index: str
    body: Statement

    def __str__(self) -> str:
        return f"forall({self.index}, {self.body})"


@dataclass(frozen=True)
class Where:
    """A statement that reads the tensor that another statement computes in the same turn."""

    consumer: Statement
    producer: Statement

    def __str__(self) -> str:
        return f"where({self.consumer}, {self.producer})"


@dataclass(frozen=True)
class Sequence:
    """Statements that run one after the other."""

    statements: tuple[Statement, ...]

    def __str__(self) -> str:
        return f"sequence({', '.join(map(str, self.statements))})"


Statement = IndexAssignment | Forall | Where | Sequence


def notation(nest: Nest) -> Statement:
    """Return the statement of a nest, with the copy that orders a sparse result if there is one.

    Operands are called A, B, ... (T26 and so on from the 27th on), intermediates X0, X1, ..., and the result R.
    """
    nest = ordered(nest)
    statements = _statements(nest, loops(nest), 0)
    return statements[0] if len(statements) == 1 else Sequence(tuple(statements))


def _statements(nest: Nest, nodes: tuple[Node, ...], depth: int) -> list[Statement]:
    return [
        _assign(nest, node.member)
        if isinstance(node, NestLeaf)
        else Forall(node.index, _joined(nest, node.body, depth + 1))
        for node in nodes
    ]


def _joined(nest: Nest, nodes: tuple[Node, ...], depth: int) -> Statement:
    """Join statements, of which the last reads the results of the others; the first producer is outermost."""
    *producers, joined = _statements(nest, nodes, depth)
    for producer in reversed(producers):
        joined = Where(joined, producer)
    return joined


def _assign(nest: Nest, member: int) -> IndexAssignment:
    n = len(nest.network.inputs)
    a = nest.assignments[member]
    target = _with_indices(nest, a.target)
    kept = nest.formats[-1].order if a.target == n + len(nest.assignments) - 1 else nest.workspaces[member].order
    outer = a.loops[: nest.fused(a.target)] if member < len(nest.workspaces) else ()
    summed = set(a.loops) - set(kept) - set(outer)
    return IndexAssignment(target, tuple(_with_indices(nest, t) for t in a.operands), bool(summed))


def name(nest: Nest, tensor: int) -> str:
    """Return the printed name of a tensor."""
    n = len(nest.network.inputs)
    if tensor < n:
        return chr(ord("A") + tensor) if tensor < 26 else f"T{tensor}"
    return "R" if tensor == n + len(nest.assignments) - 1 else f"X{tensor - n}"


def _with_indices(nest: Nest, tensor: int) -> str:
    n = len(nest.network.inputs)
    inside = n <= tensor < n + len(nest.assignments) - 1
    order = nest.workspaces[tensor - n].order if inside else nest.formats[min(tensor, n)].order
    return f"{name(nest, tensor)}({','.join(order)})"


INDENT = "    "


def layouts(nest: Nest) -> str:
    """Return one line for each tensor: its name and its levels, outermost first, or the kind of its workspace."""
    nest, n = ordered(nest), len(nest.network.inputs)
    lines = [f"{name(nest, t):<8}{layout}" for t, layout in enumerate(nest.formats[:-1])]
    for t, workspace in enumerate(nest.workspaces, n):
        lines.append(f"{name(nest, t):<8}({' '.join(workspace.order)}) {workspace.space} workspace")
    return "\n".join([*lines, f"{name(nest, n + len(nest.workspaces)):<8}{nest.formats[-1]}"])


def listing(nest: Nest) -> str:
    """Return the loops of a nest, one in each line, indented."""
    return "\n".join(_lines(notation(nest)))


def _lines(statement: Statement) -> Iterator[str]:
    if isinstance(statement, IndexAssignment):
        yield str(statement)
    elif isinstance(statement, Forall) and isinstance(statement.body, IndexAssignment):
        yield f"for {statement.index}: {statement.body}"
    elif isinstance(statement, Forall):
        yield f"for {statement.index}:"
        yield from (INDENT + line for line in _lines(statement.body))
    else:
        parts = (statement.producer, statement.consumer) if isinstance(statement, Where) else statement.statements
        for part in parts:
            yield from _lines(part)
