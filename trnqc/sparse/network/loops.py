"""The loops of a nest as a tree, and the nest that computes a sparse result in the order in which it is stored.

Consecutive assignments share loops if one computes an intermediate that the other reads. Otherwise sharing would gain
nothing, and one of them might skip iterations that the other needs. The body of a shared loop is therefore a chain of
products: if one factor is zero, everything that the iteration would add is zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from trnqc.errors import MemoryLimit
from trnqc.sparse.network.nest import Assignment, Format, Nest, Space, Workspace
from trnqc.sparse.network.network import Indices

# Elements of the largest array for the part of a sparse result that is computed out of order. Beyond it, a hash table
# is used.
LARGEST_LISTED = 2**22
# Most elements that the 64-bit keys of a hash table can number.
LARGEST_NUMBER = 2**62


@dataclass(frozen=True)
class NestLeaf:
    """An assignment inside all of its loops."""

    member: int

    @property
    def members(self) -> tuple[int, ...]:
        return (self.member,)


@dataclass(frozen=True)
class NestLoop:
    """One loop of the tree, with `depth` loops around it and the loops and assignments directly inside, in order."""

    index: str
    depth: int
    members: tuple[int, ...]
    body: tuple[Node, ...]


Node = NestLeaf | NestLoop


def loops(nest: Nest) -> tuple[Node, ...]:
    """Return the outermost loops of a nest, in order."""
    return _nodes(nest, tuple(range(len(nest.assignments))), 0)


def ordered(nest: Nest) -> Nest:
    """Return the nest, with a copy at its end if its loops do not compute a sparse result in the stored order.

    The workspace of the copy holds the elements that are computed out of order. Raises MemoryLimit if a workspace has
    more elements than 64 bits can number.
    """
    last, wanted = nest.assignments[-1], nest.formats[-1]
    if wanted.sparse and last.loops != wanted.order:
        depth = in_order(wanted.order, last.loops)
        rest = wanted.order[depth:]
        nest = replace(
            nest,
            assignments=(*nest.assignments, Assignment(last.target + 1, (last.target,), wanted.order)),
            shared=(*nest.shared, depth),
            workspaces=(*nest.workspaces, Workspace(rest, _space(nest, rest))),
        ).check()
    for workspace in nest.workspaces:
        if (size := math.prod(nest.network.shape(workspace.order))) > LARGEST_NUMBER:
            raise MemoryLimit(
                f"a workspace of {nest.network} over {workspace.order} has {size} elements, more than 64-bit numbers "
                "count: choose a nest that shares more loops"
            )
    return nest


def scattered(formats: Iterable[Format], workspaces: Iterable[Workspace] = ()) -> frozenset[str]:
    """Return the indices that an operand stores compressed or a workspace lists, so that some values may not occur."""
    stored = {x for f in formats for x, kind in zip(f.order, f.kinds) if kind == "compressed"}
    return frozenset(stored | {x for w in workspaces if w.space != "dense" for x in w.order})


def _space(nest: Nest, rest: Indices) -> Space:
    """Return the kind of workspace for the unordered part of a sparse result.

    It needs no list if all elements are computed, or many of them.
    """
    if math.prod(nest.network.shape(rest)) > LARGEST_LISTED:
        return "hashed"
    if nest.crowded and rest:
        return "dense"
    return "listed" if not rest or scattered(nest.formats[:-1], nest.workspaces) & set(rest) else "dense"


def in_order(order: Indices, loops: Indices) -> int:
    """Return the number of outermost levels of a stored order that are also the outermost loops, in the same order."""
    return next((depth for depth, (a, b) in enumerate(zip(order, loops)) if a != b), min(len(order), len(loops)))


def stored(nest: Nest) -> Format:
    """Return the format in which a sparse result is appended: only outermost levels are dense."""
    wanted = nest.formats[-1]
    first = wanted.kinds.index("compressed") if wanted.sparse else len(wanted.kinds)
    kinds = tuple("dense" if level < first else "compressed" for level in range(len(wanted.kinds)))
    return Format(wanted.order, kinds)  # type: ignore[arg-type]


def _nodes(nest: Nest, members: Sequence[int], depth: int) -> tuple[Node, ...]:
    nodes: list[Node] = []
    for group in _groups(nest, members, depth):
        if len(group) == 1 and len(nest.assignments[group[0]].loops) == depth:
            nodes.append(NestLeaf(group[0]))
            continue
        for chain in _chains(nest, group):
            index = nest.assignments[chain[0]].loops[depth]
            nodes.append(NestLoop(index, depth, chain, _nodes(nest, chain, depth + 1)))
    return tuple(nodes)


def _groups(nest: Nest, members: Sequence[int], depth: int) -> list[list[int]]:
    """Return groups of consecutive assignments that share more than `depth` loops."""
    groups: list[list[int]] = []
    for k in members:
        if groups and min(nest.shared[groups[-1][-1] : k]) > depth:
            groups[-1].append(k)
        else:
            groups.append([k])
    return groups


def _chains(nest: Nest, group: Sequence[int]) -> list[tuple[int, ...]]:
    """Divide a group into chains of assignments that are connected by intermediates."""
    n = len(nest.network.inputs)
    chains: list[tuple[int, ...]] = []
    for k in group:
        makers = {t - n for t in nest.assignments[k].operands if t >= n}
        joined = [c for c in chains if makers & set(c)]
        chains = [c for c in chains if c not in joined] + [tuple(sorted({k, *(m for c in joined for m in c)}))]
    return sorted(chains)
