"""Passes over arrays on disk: which temporaries are stored, so that little is read and written in all.

A stored temporary cuts the tree. Each part is a fused loop nest of its own with the whole memory: its operands on disk
are functions whose elements cost what reading costs, and its result is copied out tile by tile. The cut is taken for
which reading, writing and multiplying cost least. For the four-index transformation in little memory this is the
two-pass form, which moves |A| + 2 |T2| + |B| elements.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import combinations
from math import prod

from trnqc.contraction.memory.schedule import SMALL_SCRATCH, TreeSchedule, schedule, schedule_within
from trnqc.contraction.time_limit import out_of_time
from trnqc.contraction.tree import Tree, TreeNode, union
from trnqc.errors import MemoryLimit
from trnqc.expression.operand import Leaf

# Time in which a disk moves one element, in multiply-adds of a large matrix product, for about 1 GB/s.
MOVE_COST = 200
# Largest number of temporaries on disk that the search considers.
MOST_CUTS = 2


@dataclass(frozen=True)
class DiskPass:
    """One loop nest over arrays on disk or in memory; a `stored` target is copied to disk by the last step."""

    target: str
    schedule: TreeSchedule
    stored: bool

    @property
    def in_memory(self) -> str:
        """Name of the array in memory with the same tiles as the target."""
        tree = self.schedule.fusion.tree
        return self.schedule.fusion.arrays[tree.root.name].inputs[0] if self.stored else tree.root.name

    @property
    def indices(self) -> tuple[str, ...]:
        """Labels of the target."""
        return self.schedule.fusion.tree.root.indices

    @property
    def shape(self) -> tuple[int, ...]:
        """Shape of the target."""
        tree = self.schedule.fusion.tree
        return tuple(tree.extent(label) for label in tree.root.indices)

    @property
    def read(self) -> Mapping[str, int]:
        """Elements read of each array on disk."""
        fusion = self.schedule.fusion
        elements: dict[str, int] = {}
        for name, array in fusion.arrays.items():
            if isinstance(array.source, Leaf):
                again = prod(fusion.turns(label) for label in fusion.repeated(name))
                size = fusion.tree.size(array.indices) * again
                elements[array.source.name] = elements.get(array.source.name, 0) + size
        return elements

    @property
    def written(self) -> int:
        """Elements written to disk."""
        tree = self.schedule.fusion.tree
        return tree.size(tree.root.indices) if self.stored else 0

    @property
    def cost(self) -> int:
        """Multiply-adds, with moved elements in multiply-adds."""
        return self.schedule.work + MOVE_COST * self.written

    def tiles(self, name: str) -> tuple[int, ...]:
        """Return the tile in which the pass reads or writes an array on disk, the shortest along each axis."""
        fusion = self.schedule.fusion
        if name == self.target:
            return fusion.shape(self.in_memory)
        shapes = [
            fusion.shape(computed)
            for computed, array in fusion.arrays.items()
            if isinstance(array.source, Leaf) and array.source.name == name
        ]
        return tuple(min(lengths) for lengths in zip(*shapes))


@dataclass(frozen=True)
class DiskPasses:
    """Passes in order; each but the last stores a temporary that a later one reads."""

    passes: tuple[DiskPass, ...]

    @property
    def memory(self) -> int:
        """Largest number of elements held beside operands and result in memory."""
        return max(one.schedule.memory for one in self.passes)

    @property
    def traffic(self) -> int:
        """Elements read from disk and written to it."""
        return sum(sum(one.read.values()) + one.written for one in self.passes)

    @property
    def cost(self) -> int:
        """Multiply-adds of all passes, with moved elements in multiply-adds."""
        return sum(one.cost for one in self.passes)

    def __str__(self) -> str:
        parts = [f"{len(self.passes)} passes, {self.traffic:.4g} elements read and written, {self.memory:.4g} held"]
        for number, one in enumerate(self.passes, 1):
            reads = ", ".join(f"{name}: {count:.4g}" for name, count in one.read.items()) or "none"
            parts.append(
                f"pass {number} computes {one.target}; elements read {reads}; written {one.written:.4g}\n{one.schedule}"
            )
        return "\n\n".join(parts)


def plan_passes(
    tree: Tree, limit: int | None, on_disk: frozenset[str] = frozenset(), stored: bool = True, cut: bool = True
) -> DiskPasses:
    """Return the passes of least cost that hold at most `limit` elements each.

    Parameters
    ----------
    tree : Tree
        The operations.
    limit : int or None
        Elements that each pass may hold; None for no limit.
    on_disk : frozenset of str
        Names of the leaves that are read from disk.
    stored : bool
        Whether the result is stored on disk.
    cut : bool
        Whether temporaries may be stored.

    Raises
    ------
    MemoryLimit
        If no passes fit. The message states what a single pass needs at least.
    """
    known: dict[tuple[str, frozenset[str]], DiskPass | MemoryLimit] = {}

    def one_pass(node: TreeNode, cuts: frozenset[str]) -> DiskPass:
        part = _part(tree, node, on_disk, cuts, stored or node is not tree.root)
        key = (node.name, frozenset(leaf.name for leaf in part.leaves))
        if key not in known:
            known[key] = _fitted(node, part, limit, stored or node is not tree.root)
        fitted = known[key]
        if isinstance(fitted, MemoryLimit):
            raise fitted
        return fitted

    best: DiskPasses | None = None
    failure: MemoryLimit | None = None
    every = sum(tree.size(union(x.indices)) for x in tree.leaves if x.name in on_disk)
    written = tree.size(tree.root.indices) if stored else 0
    least = MOVE_COST * every + (MOVE_COST + 1) * written + tree.multiply_adds
    for cuts in _cuts(tree) if cut else [()]:
        there_and_back = (2 * MOVE_COST + 1) * sum(tree.size(node.indices) for node in cuts)
        if best and (best.cost <= least + there_and_back or out_of_time("temporaries on disk")):
            break
        try:
            names = frozenset(node.name for node in cuts)
            passes = DiskPasses(tuple(one_pass(node, names) for node in (*cuts, tree.root)))
        except MemoryLimit as error:
            failure = failure or error
            continue
        if best is None or passes.cost < best.cost:
            best = passes
    if best is None:
        assert failure is not None
        raise failure
    return best


def _cuts(tree: Tree) -> Iterator[tuple[TreeNode, ...]]:
    """Yield the temporaries to store, producers first; choices with the fewest elements come first."""
    every = [cuts for n in range(MOST_CUTS + 1) for cuts in combinations(tree.temporaries, n)]
    yield from sorted(every, key=lambda cuts: sum(tree.size(node.indices) for node in cuts))


def _fitted(node: TreeNode, part: Tree, limit: int | None, stored: bool) -> DiskPass | MemoryLimit:
    """Return one pass within the limit, or the error."""
    try:
        loops = schedule(part, scratch=SMALL_SCRATCH) if limit is None else schedule_within(part, limit)
    except MemoryLimit as error:
        return error
    return DiskPass(node.name, loops, stored)


def _part(tree: Tree, top: TreeNode, on_disk: frozenset[str], cuts: frozenset[str], stored: bool) -> Tree:
    """Return the tree of one pass: arrays on disk are functions, and a last step copies a stored result."""

    def rebuilt(item: Leaf | TreeNode) -> Leaf | TreeNode:
        if isinstance(item, Leaf):
            return replace(item, cost=MOVE_COST) if item.name in on_disk else item
        if item.name in cuts and item is not top:
            return Leaf(item.name, item.indices, -1, MOVE_COST)
        return replace(item, operands=tuple(rebuilt(o) for o in item.operands))

    root = rebuilt(top)
    assert isinstance(root, TreeNode)
    if stored:
        root = TreeNode(f"{top.name} on disk", top.indices, (root,))
    used = {label for node in Tree(root, tree.indices).nodes for label in node.loops}
    return Tree(root, {label: index for label, index in tree.indices.items() if label in used})
