"""Where the elements of an array lie on a grid of processors, and what it takes to move them.

A placement has one entry for each dimension of the grid: a label, whose blocks lie along that dimension; "*", a copy at
every coordinate; "1", all at coordinate 0. Blocks are as torch.chunk makes them: ceil(extent / processors) long, the
last ones shorter or empty.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from math import prod

COPY, FIRST = "*", "1"
Placement = tuple[str, ...]
Grid = tuple[int, ...]
Coordinates = tuple[int, ...]
Box = tuple[tuple[int, int], ...]


def placements(labels: Sequence[str], dimensions: int, symbols: str = COPY + FIRST) -> Iterator[Placement]:
    """All placements of an array with these labels; a label lies along one dimension at most."""
    for entries in product((*labels, *symbols), repeat=dimensions):
        used = [entry for entry in entries if entry not in (COPY, FIRST)]
        if len(set(used)) == len(used):
            yield entries


def processors(grid: Grid) -> Iterator[Coordinates]:
    """Coordinates, last fastest: the order of ranks in a device mesh."""
    return product(*(range(n) for n in grid))


def block(extent: int, parts: int, part: int) -> tuple[int, int]:
    """First and past-the-last element of one block."""
    length = -(-extent // parts)
    return min(part * length, extent), min((part + 1) * length, extent)


def box(labels: Sequence[str], extents: Mapping[str, int], where: Placement, grid: Grid, at: Coordinates) -> Box | None:
    """The intervals of the labels that a processor holds; None if it holds nothing."""
    if any(entry == FIRST and place for entry, place in zip(where, at)):
        return None
    along = {entry: d for d, entry in enumerate(where) if entry not in (COPY, FIRST)}
    found = tuple(block(extents[x], grid[along[x]], at[along[x]]) if x in along else (0, extents[x]) for x in labels)
    return found if all(start < stop for start, stop in found) else None


def elements(found: Box | None) -> int:
    return 0 if found is None else prod(stop - start for start, stop in found)


def common(one: Box | None, two: Box | None) -> Box | None:
    """The box that both hold."""
    if one is None or two is None:
        return None
    found = tuple((max(a, c), min(b, d)) for (a, b), (c, d) in zip(one, two))
    return found if all(start < stop for start, stop in found) else None


def moved(labels: Sequence[str], extents: Mapping[str, int], source: Placement, target: Placement, grid: Grid) -> int:
    """Elements that processors must receive, all together: what they are to hold and do not hold yet."""
    if source == target:
        return 0
    total = 0
    for at in processors(grid):
        wanted = box(labels, extents, target, grid, at)
        total += elements(wanted) - elements(common(wanted, box(labels, extents, source, grid, at)))
    return total


def combined(
    labels: Sequence[str], extents: Mapping[str, int], where: Placement, dimension: int, grid: Grid, copy: bool
) -> int:
    """Elements received in all when partial sums along one grid dimension meet at coordinate 0 and, with copy, the
    total goes back to all. where: the placement, with anything in the entry of that dimension."""
    lines = tuple(n for d, n in enumerate(grid) if d != dimension)
    rest = tuple(entry for d, entry in enumerate(where) if d != dimension)
    held = sum(elements(box(labels, extents, rest, lines, at)) for at in processors(lines))
    return held * (grid[dimension] - 1) * (1 + copy)


def minus(one: Box, two: Box | None) -> list[Box]:
    """Boxes that together are what lies in the one and not in the other."""
    meet = common(one, two)
    if meet is None:
        return [one]
    pieces = []
    rest = list(one)
    for axis, ((start, stop), (first, last)) in enumerate(zip(one, meet)):
        for interval in ((start, first), (last, stop)):
            if interval[0] < interval[1]:
                pieces.append((*rest[:axis], interval, *rest[axis + 1 :]))
        rest[axis] = (first, last)
    return pieces


def transfers(
    labels: Sequence[str], extents: Mapping[str, int], source: Placement, target: Placement, grid: Grid
) -> list[tuple[Coordinates, Coordinates, Box]]:
    """(sender, receiver, box) of all messages of a move, in an order that every processor knows.

    Nobody receives what it holds already, nor anything twice: the boxes have `moved` elements. Of several holders the
    next one after the receiver sends, which spreads the work.
    """
    everybody = list(processors(grid))
    held = {at: box(labels, extents, source, grid, at) for at in everybody}
    found = []
    for number, receiver in enumerate(everybody):
        wanted = box(labels, extents, target, grid, receiver)
        missing = [] if wanted is None else minus(wanted, held[receiver])
        for sender in everybody[number + 1 :] + everybody[:number]:
            left: list[Box] = []
            for piece in missing:
                part = common(piece, held[sender])
                if part is not None:
                    found.append((sender, receiver, part))
                left += minus(piece, held[sender])
            missing = left
    return found
