"""The loops of a nest as a tree, and the nest that makes a sparse result in the order in which it is stored.

Neighbouring assignments share loops. Those that make nothing for one another would gain nothing by it, and one might
skip what the other needs, so they get loops of their own. What one turn of a loop does is then a chain of products: if
one factor is zero, all that the turn would add is zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from trnqc.errors import MemoryLimit
from trnqc.sparse.network.nest import Assignment, Format, Nest, Space, Workspace
from trnqc.sparse.network.network import Indices

# Elements of the largest array that holds the unordered part of a sparse result; beyond it a hash table does.
LARGEST_LISTED = 2**22
# Elements that a hash table can number.
LARGEST_NUMBER = 2**62


@dataclass(frozen=True)
class Leaf:
    """An assignment inside all of its loops."""

    member: int

    @property
    def members(self) -> tuple[int, ...]:
        return (self.member,)


@dataclass(frozen=True)
class Loop:
    """One loop, the `depth`-th of all its members (assignments by number), around what stands in its body."""

    index: str
    depth: int
    members: tuple[int, ...]
    body: tuple[Node, ...]


Node = Leaf | Loop


def loops(nest: Nest) -> tuple[Node, ...]:
    """The outermost loops of a nest, in order."""
    return _nodes(nest, tuple(range(len(nest.assignments))), 0)


def ordered(nest: Nest) -> Nest:
    """The nest, with a copy at its end if its loops do not make the elements of a sparse result in the stored order.

    The workspace of the copy holds what comes out of order.

    Raises
    ------
    MemoryLimit
        If a workspace has more elements than 64 bits can number.
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
                f"a workspace of {nest.network} over {workspace.order} has {size} elements, more than 64 bits number: "
                "take loops that share more"
            )
    return nest


def scattered(formats: Iterable[Format], workspaces: Iterable[Workspace] = ()) -> frozenset[str]:
    """Indices of which only some values may occur: an operand stores them compressed, or a workspace lists them."""
    stored = {x for f in formats for x, kind in zip(f.order, f.kinds) if kind == "compressed"}
    return frozenset(stored | {x for w in workspaces if w.space != "dense" for x in w.order})


def _space(nest: Nest, rest: Indices) -> Space:
    """The kind of workspace for the unordered part of a sparse result: no list if all of its elements are computed."""
    if math.prod(nest.network.shape(rest)) > LARGEST_LISTED:
        return "hashed"
    return "listed" if not rest or scattered(nest.formats[:-1], nest.workspaces) & set(rest) else "dense"


def in_order(order: Indices, loops: Indices) -> int:
    """How many of the outermost levels of a stored order are also the outermost loops, in the same order."""
    return next((depth for depth, (a, b) in enumerate(zip(order, loops)) if a != b), min(len(order), len(loops)))


def stored(nest: Nest) -> Format:
    """The format in which a sparse result is appended: only its outermost levels are dense."""
    wanted = nest.formats[-1]
    first = wanted.kinds.index("compressed") if wanted.sparse else len(wanted.kinds)
    kinds = tuple("dense" if level < first else "compressed" for level in range(len(wanted.kinds)))
    return Format(wanted.order, kinds)  # type: ignore[arg-type]


def _nodes(nest: Nest, members: Sequence[int], depth: int) -> tuple[Node, ...]:
    nodes: list[Node] = []
    for group in _groups(nest, members, depth):
        if len(group) == 1 and len(nest.assignments[group[0]].loops) == depth:
            nodes.append(Leaf(group[0]))
            continue
        for chain in _chains(nest, group):
            index = nest.assignments[chain[0]].loops[depth]
            nodes.append(Loop(index, depth, chain, _nodes(nest, chain, depth + 1)))
    return tuple(nodes)


def _groups(nest: Nest, members: Sequence[int], depth: int) -> list[list[int]]:
    """Neighbours that share more than `depth` loops."""
    groups: list[list[int]] = []
    for k in members:
        if groups and min(nest.shared[groups[-1][-1] : k]) > depth:
            groups[-1].append(k)
        else:
            groups.append([k])
    return groups


def _chains(nest: Nest, group: Sequence[int]) -> list[tuple[int, ...]]:
    """The group divided into those that make something for one another, each in order, by their first."""
    n = len(nest.network.inputs)
    chains: list[tuple[int, ...]] = []
    for k in group:
        makers = {t - n for t in nest.assignments[k].operands if t >= n}
        joined = [c for c in chains if makers & set(c)]
        chains = [c for c in chains if c not in joined] + [tuple(sorted({k, *(m for c in joined for m in c)}))]
    return sorted(chains)
