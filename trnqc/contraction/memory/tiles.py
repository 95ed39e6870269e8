"""Tile sizes: doubling search, then refinement.

Few and short indices are searched whole. Else a search over the powers of two finds the right region, since costs
change slowly with a tile; neighbouring sizes are then tried in steps that shrink. Trials are rows of a table, one
column for each index, and are judged many at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from math import isqrt, prod

import numpy as np

from trnqc.contraction.time_limit import out_of_time

Tiles = dict[str, int]
# [trials, labels] sizes -> cost of each row, infinite where the sizes are not allowed.
Cost = Callable[[np.ndarray], np.ndarray]
# One row, and its cost.
Best = tuple[np.ndarray, float]

# Grids up to this many points are searched whole; larger ones two labels at a time.
WHOLE = 1500
# Sizes that are judged before the time is looked at again.
ROWS = 2**13
# How many lengths are tried at most for all tiles alike: every even one for extents up to a million.
ALIKE = 2000


def doublings(extent: int) -> list[int]:
    """1, 2, 4 ... and the extent itself."""
    return [*(2**k for k in range(max(extent - 1, 0).bit_length()) if 2**k < extent), extent]


def even_sizes(extent: int) -> list[int]:
    """The shortest tile for each number of turns: nothing between two of them saves a turn."""
    # A tile shorter than the root is that of some number of turns in any case.
    root = isqrt(extent)
    return sorted({-(-extent // turns) for turns in range(1, root + 2)} | set(range(1, root + 1)) if extent else set())


def one_by_one(labels: Sequence[str], cost: Callable[[Tiles], float | None]) -> Cost:
    """The Cost of a function of one choice of tiles, None where they are not allowed; no choice is judged twice."""
    known: dict[tuple[int, ...], float] = {}

    def judged(row: tuple[int, ...]) -> float:
        if row not in known:
            value = cost(dict(zip(labels, row)))
            known[row] = np.inf if value is None else value
        return known[row]

    return lambda trials: np.array([judged(tuple(row)) for row in trials.tolist()])


def best_tiles(extents: Mapping[str, int], cost: Cost) -> tuple[Tiles, float] | None:
    """The sizes of least cost that are found, and the cost; None if not even tiles of one element are allowed.

    Tiles of one element must need the least memory of all.
    """
    longest = np.array([*extents.values()], int)
    ones = np.ones_like(longest)
    least = (ones, float(cost(ones[None])[0]))
    if np.isinf(least[1]):
        return None
    found = min((refined(longest, start, cost) for start in _starts(longest, least, cost)), key=lambda best: best[1])
    return dict(zip(extents, found[0].tolist())), found[1]


def refined(longest: np.ndarray, start: Best, cost: Cost) -> Best:
    """Where steps to better neighbours lead."""
    return _climb(start, lambda sizes: _neighbours(sizes, longest), cost)


def _starts(longest: np.ndarray, least: Best, cost: Cost) -> list[Best]:
    if out_of_time("lengths of tiles"):
        return [_grown(longest, least, cost)]
    # There are at least as many even sizes as the root of an extent.
    few = prod(map(isqrt, longest.tolist())) <= WHOLE
    for sizes_of in (even_sizes, doublings) if few else (doublings,):
        grids = [sizes_of(extent) for extent in longest.tolist()]
        if prod(map(len, grids)) <= WHOLE:
            return [_better(least, _grid(grids), cost)]
    # Two starts: tiles of equal length where longer tiles help, and powers of two reached from tiles of one element.
    twos = cost(np.minimum(1 + np.eye(len(longest), dtype=int), longest))
    helping = np.isinf(twos) | (twos < least[1])
    lengths = np.array(_lengths(int(longest.max())))
    alike = _better(least, np.minimum(lengths[:, None], np.where(helping, longest, 1)), cost)
    return [alike, _climb(least, lambda sizes: _two_at_a_time(sizes, grids), cost)]


def _lengths(extent: int) -> list[int]:
    """Even sizes; of a very long index those of numbers of turns in equal ratios."""
    if extent <= (ALIKE // 2) ** 2:
        return even_sizes(extent)
    return sorted({-(-extent // int(turns)) for turns in np.geomspace(1, extent, ALIKE)})


def _grown(longest: np.ndarray, least: Best, cost: Cost) -> Best:
    """Quickly: one index after the other is not cut at all, that one first which helps most."""
    best = least
    for _ in longest:
        next_best = _better(best, np.where(np.eye(len(longest), dtype=bool), longest, best[0]), cost)
        if next_best is best:
            break
        best = next_best
    return best


def _better(best: Best, trials: np.ndarray, cost: Cost) -> Best:
    """The first of the trials that cost least, if that is less; of those that there is time for, some at once."""
    rows = max(1, ROWS // max(1, trials.shape[1]))
    for start in range(0, len(trials), rows):
        if start and out_of_time("lengths of tiles"):
            break
        some = trials[start : start + rows]
        values = cost(some)
        first = int(np.argmin(values))
        if values[first] < best[1]:
            best = some[first], float(values[first])
    return best


def _climb(best: Best, around: Callable[[np.ndarray], np.ndarray], cost: Cost) -> Best:
    while not out_of_time("lengths of tiles"):
        next_best = _better(best, around(best[0]), cost)
        if next_best is best:
            return best
        best = next_best
    return best


def _grid(grids: Sequence[Sequence[int]]) -> np.ndarray:
    """All choices of one of each."""
    lengths = [*map(len, grids)]
    found = np.empty((prod(lengths), len(grids)), int)
    for k, grid in enumerate(grids):
        found[:, k] = np.tile(np.repeat(grid, prod(lengths[k + 1 :])), prod(lengths[:k]))
    return found


def _with(sizes: np.ndarray, columns: Sequence[int], choices: np.ndarray) -> np.ndarray:
    """The sizes with those of some columns taken from each row of the choices."""
    trials = np.repeat(sizes[None], len(choices), axis=0)
    trials[:, columns] = choices
    return trials


def _two_at_a_time(sizes: np.ndarray, grids: Sequence[Sequence[int]]) -> np.ndarray:
    pairs = combinations(range(len(sizes)), 2)
    return np.concatenate([_with(sizes, pair, _grid([grids[k] for k in pair])) for pair in pairs] or [sizes[None]])


def _neighbours(sizes: np.ndarray, longest: np.ndarray) -> np.ndarray:
    """One tile changed, or one lengthened while another is shortened, by steps from half the tile down to one."""
    changes = [_steps(size, extent) for size, extent in zip(sizes.tolist(), longest.tolist())]
    trials = [_with(sizes, [k], np.array(found, int)[:, None]) for k, found in enumerate(changes)]
    for one, two in combinations(range(len(sizes)), 2):
        both = _grid([changes[one], changes[two]])
        trials.append(_with(sizes, [one, two], both[(both[:, 0] > sizes[one]) != (both[:, 1] > sizes[two])]))
    return np.concatenate(trials or [sizes[None]])


def _steps(size: int, extent: int) -> list[int]:
    steps = {size // 2**k for k in range(1, size.bit_length())} | {1}
    # As few turns as possible with tiles of equal length: no ragged end wastes a turn.
    turns = -(-extent // size)
    even = {-(-extent // n) for n in (turns - 1, turns, turns + 1) if n >= 1}
    sizes = {size + step for step in steps} | {size - step for step in steps} | even
    return sorted(s for s in sizes if 1 <= s <= extent and s != size)
