"""One rank's share of a part: the same tree with one label running over a range of it.

Operands are whole on every rank, or a rank holds a range along one axis. A part that is divided over a label of its
result yields a range of the result. Divided over a summed label it yields an array that has to be added over ranks.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from trnqc.contraction.computation import Part
from trnqc.contraction.ladder.tiles import ladder_loops
from trnqc.contraction.memory.schedule import ElementLimit
from trnqc.contraction.planning.limit import fitted_part
from trnqc.contraction.tree import Pair, Tree, TreeNode
from trnqc.expression.operand import Leaf
from trnqc.expression.spaces import Index

# In place of a label: a ladder is divided over pairs of its tiles.
TILES = "tiles"


def cut(extent: int, ranks: int, rank: int) -> slice:
    """Return the range of a rank; lengths differ by at most one, and the last rank has the longest."""
    return slice(rank * extent // ranks, (rank + 1) * extent // ranks)


@dataclass(frozen=True)
class LocalRead:
    """An operand of a local part: `name` of the array, with a range of `extent` along `axes`, is called `local`."""

    local: str
    name: str
    axes: tuple[int, ...] = ()
    extent: int = 0


@dataclass(frozen=True)
class LocalPart:
    """A part as one rank runs it.

    Attributes
    ----------
    part : Part
        The tree with the extents of this rank.
    reads : tuple of LocalRead
        Where its operands come from.
    axis : int or None
        The axis of the result that is divided.
    partial : bool
        Whether results of all ranks have to be added.
    """

    part: Part
    reads: tuple[LocalRead, ...]
    axis: int | None = None
    partial: bool = False


def labels_of(part: Part, ranks: int) -> tuple[str, ...]:
    """Return the labels over which a part can be divided, so that every rank has a share."""
    if ranks == 1:
        return ()
    if part.loops:
        return (TILES,)
    used = dict.fromkeys(label for node in part.tree.nodes for label in node.loops)
    return tuple(label for label in used if part.tree.extent(label) >= ranks)


def local_part(part: Part, label: str | None, ranks: int, rank: int) -> LocalPart:
    """Return the share of a rank; all of the part without a label. Loops for a memory limit are left out of a share."""
    if label is None or label == TILES:
        reads = tuple(LocalRead(name, name) for name in part.names)
        if label is None:
            return LocalPart(part, reads)
        assert part.loops is not None
        return LocalPart(replace(part, loops=replace(part.loops, share=(rank, ranks))), reads, partial=True)
    found: dict[str, LocalRead] = {}
    nodes: dict[str, TreeNode] = {}
    for node in part.tree.nodes:
        operands: list[Leaf | TreeNode] = []
        for operand in node.operands:
            if isinstance(operand, TreeNode):
                operands.append(nodes[operand.name])
                continue
            axes = tuple(axis for axis, own in enumerate(operand.indices) if own == label)
            name = f"{operand.name}<{','.join(map(str, axes))}>" if axes else operand.name
            found[name] = LocalRead(name, operand.name, axes, part.tree.extent(label))
            operands.append(replace(operand, name=name))
        nodes[node.name] = replace(node, operands=tuple(operands))
    root = part.tree.root
    tree = Tree(nodes[root.name], _shortened(part.tree, label, ranks, rank), _pairs_without(part.tree, label))
    axis = root.indices.index(label) if label in root.indices else None
    return LocalPart(Part(part.coefficient, tree), tuple(found.values()), axis, axis is None)


def within(part: Part, label: str | None, is_output: bool, others: int, limit: int | None) -> Part:
    """Return a rank's share of a part within a limit of elements, of which other arrays hold `others`.

    Raises ElementLimit if it does not fit.
    """
    if limit is None or label != TILES:
        return fitted_part(part, is_output, others, limit)
    assert part.loops is not None and part.ladder is not None
    held = others + part.tree.size(part.tree.root.indices)
    if held + part.loops.memory <= limit:
        return part
    # All ranks find the same tiles, of which each has its share.
    loops = ladder_loops(part.ladder, limit - held)
    if loops is None:
        raise ElementLimit(part.tree.root.name, held + part.loops.memory, limit, held)
    return replace(part, loops=replace(loops, share=part.loops.share), tree=loops.ladder.tree)


def _shortened(tree: Tree, label: str, ranks: int, rank: int) -> dict[str, Index]:
    """Return the indices with the extent of one label shortened to the range of the rank."""
    index = tree.indices[label]
    own = cut(index.extent, ranks, rank)
    return {**tree.indices, label: replace(index, extent=own.stop - own.start)}


def _pairs_without(tree: Tree, label: str) -> tuple[tuple[str, tuple[Pair, ...]], ...]:
    """Return the pairs over which steps still run once: those without the divided label."""
    left = ((name, tuple(p for p in pairs if label not in (p.first, p.second))) for name, pairs in tree.pairs)
    return tuple((name, pairs) for name, pairs in left if pairs)
