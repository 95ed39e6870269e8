"""Orders of fused loops as blocks: the loops of a block may be nested in any order inside those of earlier blocks.

Sets of indices are bit masks, since the search of `fusion` compares many thousands of them.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import inf

# One bit mask for each block, outermost first.
Blocks = tuple[int, ...]


def merge(orders: list[Blocks]) -> Blocks | None:
    """Return the blocks of loops around a step from the blocks of its inputs; None if chains would overlap."""
    if len(orders) < 2:
        return orders[0] if orders else ()
    one, two = (list(blocks) for blocks in orders)
    merged = []
    while one and two:
        # The outermost loops of the one must be among the outermost of the other.
        both = one[0] & two[0]
        if not both:
            return None
        merged.append(both)
        one[0] &= ~both
        two[0] &= ~both
        if one[0] and two[0]:
            return None
        one, two = ([block for block in blocks if block] for blocks in (one, two))
    return (*merged, *one, *two)


def upward(merged: Blocks, allowed: int, needed: int = 0) -> Iterator[Blocks]:
    """Yield the ways to extend loops to the consumer: an outer part of them, or all of them and further loops.

    Every way has the loops `needed`, which are among those of `merged`.
    """
    for depth, block in enumerate(merged):
        if not needed & ~(block & allowed):
            for part in subsets(block & allowed & ~needed):
                outer = part | needed
                if outer != block:
                    yield (*merged[:depth], outer) if outer else merged[:depth]
        if block & ~allowed:
            return
        needed &= ~block
    for extra in subsets(allowed & ~sum(merged)):
        yield (*merged, extra) if extra else merged


def subsets(mask: int) -> Iterator[int]:
    """Yield all subsets of a bit mask, the empty one first."""
    part = 0
    while True:
        yield part
        if part == mask:
            return
        part = (part - mask) & mask


class Nestings:
    """The least work by nesting: a tree with a level for each block of loops, outermost first."""

    __slots__ = ("inner", "work")

    def __init__(self) -> None:
        self.inner: dict[int, Nestings] = {}
        self.work: float = inf

    def add(self, nesting: Blocks, work: int) -> None:
        """Add a solution."""
        node = self
        for block in nesting:
            if block not in node.inner:
                node.inner[block] = Nestings()
            node = node.inner[block]
        node.work = min(node.work, work)

    def dominates(self, nesting: Blocks, work: int) -> bool:
        """Return whether a solution takes no more work and requires no nesting that this one does not require.

        Such a solution has the same blocks, or some that stand side by side are one block.
        """
        if not nesting:
            return self.work <= work
        outer = 0
        for depth, block in enumerate(nesting, 1):
            outer |= block
            inner = self.inner.get(outer)
            if inner is not None and inner.dominates(nesting[depth:], work):
                return True
        return False
