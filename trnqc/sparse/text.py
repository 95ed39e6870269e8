"""A nest as people read it: layouts of all tensors, and the loops with what each assignment does inside them.

for K:
    for i:
        w3[n] = 0
        for m:
            for n: w3[n] += t0[K,m,n] * t1[i,m]
        for n:
            for u: result[K,i,u] += w3[n] * t2[n,u]
"""

from __future__ import annotations

from collections.abc import Iterator

from trnqc.sparse.nest import Nest
from trnqc.sparse.network import Indices

INDENT = "    "


def layouts(nest: Nest) -> str:
    """One line a tensor: its name in the listing, its levels, outermost first."""
    names = [*(f"t{t}" for t in range(len(nest.network.inputs))), "result"]
    return "\n".join(f"{name:<8}{layout}" for name, layout in zip(names, nest.formats, strict=True))


def listing(nest: Nest) -> str:
    return "\n".join(_run(nest, 0, len(nest.assignments) - 1, 0))


def _run(nest: Nest, first: int, last: int, depth: int) -> Iterator[str]:
    """Lines of assignments first .. last inside the `depth` loops that they share."""
    n = len(nest.network.inputs)
    for k in range(first, last):
        if nest.reader(n + k) <= last and nest.fused(n + k) == depth:
            kind = nest.workspaces[k].space
            yield f"{INDENT * depth}{_name(nest, n + k)} = 0{'' if kind == 'dense' else f'  ({kind})'}"
    while first <= last:
        end = first
        while end < last and nest.shared[end] > depth:
            end += 1
        if end > first:
            yield f"{INDENT * depth}for {nest.assignments[first].loops[depth]}:"
            yield from _run(nest, first, end, depth + 1)
        else:
            yield from _assignment(nest, first, depth)
        first = end + 1


def _assignment(nest: Nest, k: int, depth: int) -> Iterator[str]:
    assignment = nest.assignments[k]
    loops = assignment.loops[depth:]
    for index in loops[:-1]:
        yield f"{INDENT * depth}for {index}:"
        depth += 1
    product = " * ".join(_name(nest, t) for t in assignment.operands)
    innermost = f"for {loops[-1]}: " if loops else ""
    yield f"{INDENT * depth}{innermost}{_name(nest, assignment.target)} += {product}"


def _name(nest: Nest, t: int) -> str:
    n = len(nest.network.inputs)
    if t < n:
        return f"t{t}{_axes(nest.formats[t].order)}"
    if t == n + len(nest.assignments) - 1:
        return f"result{_axes(nest.formats[-1].order)}"
    return f"w{t}{_axes(nest.workspaces[t - n].order)}"


def _axes(indices: Indices) -> str:
    return f"[{','.join(indices)}]" if indices else ""
