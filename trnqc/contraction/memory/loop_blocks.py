"""Orders of fused loops as blocks: the loops of a block may be nested in any order inside those of earlier blocks.

Sets of indices are bit masks, since the search of `fusion` compares many thousands of them.
"""

from __future__ import annotations

from collections.abc import Iterator

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


def upward(merged: Blocks, allowed: int) -> Iterator[Blocks]:
    """Yield the ways to extend loops to the consumer: an outer part of them, or all of them and further loops."""
    for depth, block in enumerate(merged):
        for part in subsets(block & allowed):
            if part != block:
                yield (*merged[:depth], part) if part else merged[:depth]
        if block & ~allowed:
            return
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
