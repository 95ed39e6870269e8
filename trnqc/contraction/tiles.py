"""Tile sizes: doubling search, then refinement.

Few and short indices are searched whole. Else a search over the powers of two finds the right region, since costs
change slowly with a tile; neighbouring sizes are then tried in steps that shrink. The cost is any function; None means
that the sizes are not allowed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from itertools import combinations, product
from math import prod

Tiles = dict[str, int]
Cost = Callable[[Mapping[str, int]], float | None]

# Grids up to this many points are searched whole; larger ones two labels at a time.
WHOLE = 1500


def doublings(extent: int) -> list[int]:
    """1, 2, 4 ... and the extent itself."""
    return [*(2**k for k in range(max(extent - 1, 0).bit_length()) if 2**k < extent), extent]


def even_sizes(extent: int) -> list[int]:
    """The shortest tile for each number of turns: nothing between two of them saves a turn."""
    return sorted({-(-extent // turns) for turns in range(1, extent + 1)})


def best_tiles(extents: Mapping[str, int], cost: Cost) -> tuple[Tiles, float] | None:
    """The sizes of least cost that are found, and the cost; None if not even tiles of one element are allowed.

    Tiles of one element must need the least memory of all.
    """
    least = dict.fromkeys(extents, 1)
    start = cost(least)
    if start is None:
        return None
    for sizes_of in (even_sizes, doublings):
        grids = {label: sizes_of(extent) for label, extent in extents.items()}
        if prod(len(grid) for grid in grids.values()) <= WHOLE:
            best = _better((least, start), (dict(zip(grids, sizes)) for sizes in product(*grids.values())), cost)
            return _climb(best, lambda tiles: _neighbours(tiles, extents), cost)
    # Two starts: tiles of equal length where longer tiles help, and powers of two reached from tiles of one element.
    twos = {x: cost(least | {x: min(n, 2)}) for x, n in extents.items()}
    helping = [x for x, value in twos.items() if value is None or value < start]
    longest = even_sizes(max(extents.values()))
    alike = _better((least, start), (least | {x: min(n, extents[x]) for x in helping} for n in longest), cost)
    powers = _climb((least, start), lambda tiles: _two_at_a_time(tiles, grids), cost)
    ends = [_climb(best, lambda tiles: _neighbours(tiles, extents), cost) for best in (alike, powers)]
    return min(ends, key=lambda end: end[1])


def _better(best: tuple[Tiles, float], trials: Iterator[Tiles], cost: Cost) -> tuple[Tiles, float]:
    for tiles in trials:
        value = cost(tiles)
        if value is not None and value < best[1]:
            best = (tiles, value)
    return best


def _climb(best: tuple[Tiles, float], around: Callable[[Tiles], Iterator[Tiles]], cost: Cost) -> tuple[Tiles, float]:
    while True:
        next_best = _better(best, around(best[0]), cost)
        if next_best == best:
            return best
        best = next_best


def _two_at_a_time(tiles: Tiles, grids: Mapping[str, list[int]]) -> Iterator[Tiles]:
    for one, two in combinations(grids, 2):
        for sizes in product(grids[one], grids[two]):
            yield tiles | dict(zip((one, two), sizes))


def _neighbours(tiles: Tiles, extents: Mapping[str, int]) -> Iterator[Tiles]:
    """One tile changed, or one lengthened while another is shortened, by steps from half the tile down to one."""
    changes = {label: _steps(tiles[label], extents[label]) for label in extents}
    for label, sizes in changes.items():
        for size in sizes:
            yield tiles | {label: size}
    for one, two in combinations(extents, 2):
        for first, second in product(changes[one], changes[two]):
            if (first > tiles[one]) != (second > tiles[two]):
                yield tiles | {one: first, two: second}


def _steps(size: int, extent: int) -> list[int]:
    steps = {size // 2**k for k in range(1, size.bit_length())} | {1}
    # As few turns as possible with tiles of equal length: no ragged end wastes a turn.
    turns = -(-extent // size)
    even = {-(-extent // n) for n in (turns - 1, turns, turns + 1) if n >= 1}
    sizes = {size + step for step in steps} | {size - step for step in steps} | even
    return sorted(s for s in sizes if 1 <= s <= extent and s != size)
