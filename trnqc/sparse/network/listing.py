"""The printed form of a nest: the layouts of all tensors, and its index notation as indented loops.

A       (K:dense m:compressed n:compressed)     for K:
B       (i:dense m:compressed)                      for i:
C       (n:dense u:dense)                               for m:
X0      (n) dense workspace                                 for n: X0(n) += A(K,m,n) * B(i,m)
R       (K:dense i:dense u:dense)                       for n:
                                                            for u: R(K,i,u) += X0(n) * C(n,u)
"""

from __future__ import annotations

from collections.abc import Iterator

from trnqc.sparse.network.loops import ordered
from trnqc.sparse.network.nest import Nest
from trnqc.sparse.network.notation import Assign, Forall, Statement, Where, name, notation

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
    if isinstance(statement, Assign):
        yield str(statement)
    elif isinstance(statement, Forall) and isinstance(statement.body, Assign):
        yield f"for {statement.index}: {statement.body}"
    elif isinstance(statement, Forall):
        yield f"for {statement.index}:"
        yield from (INDENT + line for line in _lines(statement.body))
    else:
        parts = (statement.producer, statement.consumer) if isinstance(statement, Where) else statement.statements
        for part in parts:
            yield from _lines(part)
