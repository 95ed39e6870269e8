"""Data locality: elements that a loop nest loads into a memory of given capacity, and the blocks of least loads.

What a loop touches in all of its turns is loaded once if it fits; if not, every turn loads its own (Cociorva et al.,
LNCS 2552, 237, 2002). Blocks are chosen from the largest level of memory to the smallest, each within the blocks of the
level before. The count is an upper bound for a memory that replaces the least recently used element. It knows neither
cache lines nor associativity.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from math import prod

import numpy as np

from trnqc.contraction.memory.fusion_graph import FusedTree
from trnqc.contraction.memory.loop_nest import FusedNest, nest_of
from trnqc.contraction.memory.nest_items import Compute, Item, TiledLoop
from trnqc.contraction.memory.tiles import Cost, best_tiles, one_by_one
from trnqc.contraction.tree import Tree, TreeNode, union
from trnqc.errors import InputError
from trnqc.expression.operand import Leaf
from trnqc.expression.spaces import Index


@dataclass(frozen=True)
class MemoryLevel:
    """A memory: the elements it holds, and the cost of loading one, in any unit of time."""

    name: str
    capacity: int
    cost: float = 1.0


@dataclass(frozen=True)
class Touch:
    """One iteration of the innermost loop: one element of each array, by name and labels."""

    arrays: tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(frozen=True)
class Repeat:
    """A loop with its number of turns; `renewed` are temporaries without this index, which every turn overwrites."""

    label: str
    turns: int
    body: tuple[Repeat | Touch, ...]
    renewed: frozenset[str] = frozenset()


Body = tuple[Repeat | Touch, ...]


@dataclass(frozen=True)
class Locality:
    """For every level, largest first: the blocks, and the elements loaded into it."""

    rows: tuple[tuple[MemoryLevel, Mapping[str, int], int], ...]

    @property
    def cost(self) -> float:
        """Cost of all loads."""
        return sum(level.cost * loaded for level, _, loaded in self.rows)

    def __str__(self) -> str:
        return "\n".join(
            f"{level.name}: {loaded:.4g} elements loaded into {level.capacity:.4g}, blocks "
            + (", ".join(f"{label}: {n}" for label, n in sorted(blocks.items())) or "none")
            for level, blocks, loaded in self.rows
        )


def plan_blocks(nest: FusedNest, levels: Sequence[MemoryLevel]) -> Locality:
    """Return the blocks of fewest loads that the search finds for every level of memory.

    Raises
    ------
    InputError
        If levels do not go from large to small.
    """
    if any(one.capacity <= two.capacity for one, two in pairwise(levels)):
        raise InputError(f"levels go from large to small; found {', '.join(str(x.capacity) for x in levels)}")
    body = body_of(nest)
    rows = []
    for level in levels:
        lengths = inner_lengths(body)
        best = best_tiles(lengths, _cost(body, lengths, level.capacity))
        assert best is not None
        blocks = best[0]
        body = blocked(body, blocks)
        # Blocks as long as their index need no loop.
        rows.append((level, {x: n for x, n in blocks.items() if n < lengths[x]}, loads(body, level.capacity)))
    return Locality(tuple(rows))


@lru_cache(maxsize=1024)
def matrix_blocks(m: int, n: int, k: int, levels: tuple[MemoryLevel, ...]) -> Locality:
    """Return the blocks of one product of matrices [m, k] [k, n]."""
    left, right = Leaf("left", ("m", "k"), 0), Leaf("right", ("k", "n"), 1)
    indices = {label: Index(label, extent, label) for label, extent in zip("mnk", (m, n, k))}
    return plan_blocks(nest_of(FusedTree(Tree(TreeNode("product", ("m", "n"), (left, right)), indices))), levels)


def _cost(body: Body, lengths: Mapping[str, int], capacity: int) -> Cost:
    """Return the number of elements loaded as a cost.

    Among blocks with equal loads longer ones cost slightly less, because they leave more choice to the levels below.
    """
    if len(body) == 1 and _perfect(body[0]):
        return _perfect_cost(body[0], lengths, capacity)

    def cost(blocks: Mapping[str, int]) -> float:
        turns = sum(n / blocks[label] for label, n in lengths.items())
        return loads(blocked(body, blocks), capacity) + turns / (1 + sum(lengths.values()))

    return one_by_one(tuple(lengths), cost)


def _perfect_cost(part: Repeat | Touch, lengths: Mapping[str, int], capacity: int) -> Cost:
    """Return the cost for one perfect nest, such as a product of matrices, for all trials at once."""
    loops, touch = _perfect_loops(part)
    last = {label: k for k, (label, _) in enumerate(loops)}
    labels = tuple(lengths)

    def cost(trials: np.ndarray) -> np.ndarray:
        sizes = {label: trials[:, k].astype(float) for k, label in enumerate(labels)}
        outer, within = [], []
        for k, (label, turns) in enumerate(loops):
            split = last[label] == k
            outer.append((label, np.ceil(turns / sizes[label]) if split else float(turns)))
            if split:
                within.append((label, sizes[label]))
        covered: list[np.ndarray | float] = [1.0 for _ in touch.arrays]
        count: np.ndarray | float = float(len(covered))
        for label, times in reversed([*outer, *within]):
            covered = [size * times if label in names else size for size, (_, names) in zip(covered, touch.arrays)]
            distinct = sum(covered)
            count = np.where(distinct <= capacity, distinct, times * count)
        turned = sum(n / sizes[label] for label, n in lengths.items())
        return np.broadcast_to(count + turned / (1 + sum(lengths.values())), len(trials))

    return cost


def _perfect_loops(part: Repeat | Touch) -> tuple[list[tuple[str, int]], Touch]:
    """Return the loops of a perfect nest, outermost first, and its innermost iteration."""
    loops = []
    while isinstance(part, Repeat):
        loops.append((part.label, part.turns))
        (part,) = part.body
    return loops, part


def body_of(nest: FusedNest) -> Body:
    """Return the loops of a nest down to single elements."""
    return tuple(_converted(nest, nest.body, ()))


def _converted(nest: FusedNest, items: Sequence[Item], around: tuple[str, ...]) -> Iterator[Repeat | Touch]:
    """Yield items of a nest as loops down to single elements."""
    fusion = nest.fusion
    for item in items:
        if isinstance(item, TiledLoop):
            inside = tuple(_converted(nest, item.body, (*around, item.label)))
            renewed = frozenset(name for name in _names(inside) if item.label in fusion.fused.get(name, ()))
            yield Repeat(item.label, -(-item.extent // item.tile), inside, renewed)
        elif isinstance(item, Compute):
            array = fusion.arrays[item.name]
            operands = () if isinstance(array.source, Leaf) else array.source.operands
            touched = ((array.name, array.indices), *((o.name, union(o.indices)) for o in operands))
            body: Repeat | Touch = Touch(tuple(dict.fromkeys(touched)))
            for label in reversed(array.loops):
                length = fusion.tile(label) if label in around else fusion.tree.extent(label)
                body = Repeat(label, length, (body,))
            yield body


def _names(body: Body) -> Iterator[str]:
    """Yield the names of the arrays in a body."""
    for part in body:
        if isinstance(part, Touch):
            yield from (name for name, _ in part.arrays)
        else:
            yield from _names(part.body)


def inner_lengths(body: Body) -> dict[str, int]:
    """Return the longest innermost loop over each label, which blocks can split."""
    lengths: dict[str, int] = {}
    for part in body:
        if isinstance(part, Repeat):
            inside = inner_lengths(part.body)
            for label, length in inside.items():
                lengths[label] = max(lengths.get(label, 1), length)
            if part.label not in inside and _perfect(part):
                lengths[part.label] = max(lengths.get(part.label, 1), part.turns)
    return lengths


def _perfect(part: Repeat | Touch) -> bool:
    """Return whether each loop contains only one other, down to a single element."""
    while isinstance(part, Repeat):
        if len(part.body) > 1 or part.renewed:
            return False
        (part,) = part.body
    return True


def blocked(body: Body, blocks: Mapping[str, int]) -> Body:
    """Return the body with every innermost perfect nest split into loops over blocks and loops within a block."""
    return tuple(_blocked(part, blocks) for part in body)


def _blocked(part: Repeat | Touch, blocks: Mapping[str, int]) -> Repeat | Touch:
    """Return one item with its innermost perfect nests split."""
    if isinstance(part, Touch):
        return part
    if not _perfect(part):
        return replace(part, body=blocked(part.body, blocks))
    loops, inner = _perfect_loops(part)
    # Several loops over one label are those of blocks of larger levels; the last is split.
    last = {label: k for k, (label, _) in enumerate(loops)}
    outer, within = [], []
    for k, (label, turns) in enumerate(loops):
        if last[label] == k:
            size = min(blocks.get(label, turns), turns)
            outer.append((label, -(-turns // size)))
            within.append((label, size))
        else:
            outer.append((label, turns))
    split_nest: Repeat | Touch = inner
    for label, turns in reversed([*outer, *within]):
        split_nest = Repeat(label, turns, (split_nest,))
    return split_nest


def loads(body: Body, capacity: int) -> int:
    """Return the elements loaded into a memory of this capacity in one run of the loops."""
    return sum(_loads(part, capacity)[0] for part in body)


def _loads(part: Repeat | Touch, capacity: int) -> tuple[int, dict[str, dict[str, int]]]:
    """Return (elements loaded, array -> label -> number of its values that are touched)."""
    if isinstance(part, Touch):
        return len(part.arrays), {name: dict.fromkeys(labels, 1) for name, labels in part.arrays}
    inside = [_loads(child, capacity) for child in part.body]
    covered: dict[str, dict[str, int]] = {}
    for _, spans in inside:
        for name, lengths in spans.items():
            have = covered.setdefault(name, dict.fromkeys(lengths, 1))
            for label, length in lengths.items():
                have[label] = max(have.get(label, 1), length)
    for name, lengths in covered.items():
        if part.label in lengths and name not in part.renewed:
            lengths[part.label] *= part.turns
    distinct = sum(prod(lengths.values()) for lengths in covered.values())
    if distinct <= capacity:
        return distinct, covered
    return part.turns * sum(count for count, _ in inside), covered
