"""Tile sizes: a search over powers of two, then refinement.

Few and short indices are searched completely. Otherwise powers of two find the right region, since costs change slowly
with a tile, and neighbouring sizes are then tried in decreasing steps. Trials are rows of a table with one column per
index, and many are evaluated at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import combinations
from math import isqrt, prod
from operator import itemgetter

import numpy as np

from trnqc.contraction.time_limit import out_of_time

Tiles = dict[str, int]
# Sizes [trials, labels] -> cost of each row, infinite where the sizes are not allowed.
Cost = Callable[[np.ndarray], np.ndarray]
# One row, and its cost.
Best = tuple[np.ndarray, float]

# Grids of up to so many points are searched completely, larger ones two labels at a time.
WHOLE = 1500
# Sizes that are evaluated between two checks of the time limit.
ROWS = 2**13
# Largest number of lengths that are tried for equal tiles; enough for every even size of extents up to 10^6.
ALIKE = 2000


def doublings(extent: int) -> list[int]:
    """Return 1, 2, 4, ... and the extent itself."""
    return [*(2**k for k in range(max(extent - 1, 0).bit_length()) if 2**k < extent), extent]


def even_sizes(extent: int) -> list[int]:
    """Return the shortest tile for each number of turns; no size between two of them saves a turn."""
    # A tile shorter than the root is that of some number of turns in any case.
    root = isqrt(extent)
    return sorted({-(-extent // turns) for turns in range(1, root + 2)} | set(range(1, root + 1)) if extent else set())


def one_by_one(labels: Sequence[str], cost: Callable[[Tiles], float | None]) -> Cost:
    """Return the Cost of a function of one choice of tiles (None if not allowed); results are kept."""
    known: dict[tuple[int, ...], float] = {}

    def judged(row: tuple[int, ...]) -> float:
        if row not in known:
            value = cost(dict(zip(labels, row)))
            known[row] = np.inf if value is None else value
        return known[row]

    return lambda trials: np.array([judged(tuple(row)) for row in trials.tolist()])


def best_tiles(extents: Mapping[str, int], cost: Cost) -> tuple[Tiles, float] | None:
    """Return the sizes of least cost that the search finds, and the cost.

    Tiles of one element must need the least memory of all; if not even they are allowed, the result is None.
    """
    longest = np.array([*extents.values()], int)
    ones = np.ones_like(longest)
    least = (ones, float(cost(ones[None])[0]))
    if np.isinf(least[1]):
        return None
    sizes, value = min((refined(longest, start, cost) for start in _starts(longest, least, cost)), key=itemgetter(1))
    return dict(zip(extents, sizes.tolist())), value


def refined(longest: np.ndarray, start: Best, cost: Cost) -> Best:
    """Return the sizes that are reached by moving to better neighbours."""
    return _climb(start, lambda sizes: _neighbours(sizes, longest), cost)


def _starts(longest: np.ndarray, least: Best, cost: Cost) -> list[Best]:
    """Return the sizes at which refinement starts."""
    if out_of_time("lengths of tiles"):
        return [_grown(longest, least, cost)]
    # An extent has at least as many even sizes as its square root.
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
    """Return even sizes; for a very long index, the sizes of numbers of turns in geometric progression."""
    if extent <= (ALIKE // 2) ** 2:
        return even_sizes(extent)
    return sorted({-(-extent // int(turns)) for turns in np.geomspace(1, extent, ALIKE)})


def _grown(longest: np.ndarray, least: Best, cost: Cost) -> Best:
    """Return sizes found quickly: indices are left whole, one after another, the most helpful first."""
    best = least
    for _ in longest:
        next_best = _better(best, np.where(np.eye(len(longest), dtype=bool), longest, best[0]), cost)
        if next_best is best:
            break
        best = next_best
    return best


def _better(best: Best, trials: np.ndarray, cost: Cost) -> Best:
    """Return the first of the cheapest trials if it is cheaper than `best`; trials after the time limit are skipped."""
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
    """Move to the best of the trials around the current sizes as long as that is better."""
    while not out_of_time("lengths of tiles"):
        next_best = _better(best, around(best[0]), cost)
        if next_best is best:
            return best
        best = next_best
    return best


def _grid(grids: Sequence[Sequence[int]]) -> np.ndarray:
    """Return all combinations of one size from each grid."""
    choices = np.empty((*map(len, grids), len(grids)), int)
    for k, grid in enumerate(grids):
        choices[..., k] = np.array(grid).reshape(-1, *[1] * (len(grids) - 1 - k))
    return choices.reshape(prod(map(len, grids)), len(grids))


def _with(sizes: np.ndarray, columns: Sequence[int], choices: np.ndarray) -> np.ndarray:
    """Return the sizes with some columns replaced by each row of the choices."""
    trials = np.repeat(sizes[None], len(choices), axis=0)
    trials[:, columns] = choices
    return trials


def _two_at_a_time(sizes: np.ndarray, grids: Sequence[Sequence[int]]) -> np.ndarray:
    """Return the sizes with every two sizes replaced by all combinations of their grids."""
    pairs = combinations(range(len(sizes)), 2)
    return np.concatenate([_with(sizes, pair, _grid([grids[k] for k in pair])) for pair in pairs] or [sizes[None]])


def _neighbours(sizes: np.ndarray, longest: np.ndarray) -> np.ndarray:
    """Return trials with one tile changed, or one lengthened and another shortened, by half a tile and less."""
    changes = [_steps(size, extent) for size, extent in zip(sizes.tolist(), longest.tolist())]
    trials = [_with(sizes, [k], np.array(changed, int)[:, None]) for k, changed in enumerate(changes)]
    for one, two in combinations(range(len(sizes)), 2):
        both = _grid([changes[one], changes[two]])
        trials.append(_with(sizes, [one, two], both[(both[:, 0] > sizes[one]) != (both[:, 1] > sizes[two])]))
    return np.concatenate(trials or [sizes[None]])


def _steps(size: int, extent: int) -> list[int]:
    """Return the neighbouring sizes of one tile."""
    steps = {size // 2**k for k in range(1, size.bit_length())} | {1}
    # Tiles of equal length for about as many turns: no short last tile.
    turns = -(-extent // size)
    even = {-(-extent // n) for n in (turns - 1, turns, turns + 1) if n >= 1}
    sizes = {size + step for step in steps} | {size - step for step in steps} | even
    return sorted(s for s in sizes if 1 <= s <= extent and s != size)
