"""Grid points in compact blocks, each with the functions that are not negligible there.

points, weights -> blocks of near points (bisection of space) -> significant contractions -> tasks of the AO programs
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
from pyscf import gto

from trnqc.eri.seminumerical.grid import bisected
from trnqc.ranks import Ranks, balanced
from trnqc.xc.programs.ao_program import TASK
from trnqc.xc.shells import Contractions

# Points of a block. Larger blocks have faster matrix products and less work of the interpreter, for which threads wait;
# smaller blocks have fewer significant functions.
POINTS = 768
# Numbers of points are multiples of this, the number of f32 in the widest vector.
MULTIPLE = 16
# An atomic orbital, or a derivative of one, is neglected in a block if its product with the square root of the largest
# weight of the block is smaller than this, in Bohr^(3/2) times its unit. That changes the energy of ten water molecules
# (PBE, def2-SVP) by 4e-12 Ha and their potential by 4e-11 Ha; with 1e-10 it would be 1.4e-11 and 1.1e-10 Ha.
CUTOFF = 3e-11
# Points with smaller weights, in Bohr^3, are left out of integrals. The partition of space gives one point in fourteen
# such a weight.
NO_WEIGHT = 1e-16


@dataclass(frozen=True, eq=False)
class PointBlock:
    """A block of points: the first and the number of points in the order of `Blocks`, the significant atomic orbitals
    [N] in rising order, and the range of tasks for each class of shells.
    """

    number: int
    begin: int
    points: int
    functions: np.ndarray
    tasks: tuple[tuple[int, int], ...]

    @property
    def span(self) -> slice:
        """The points of the block, as a slice."""
        return slice(self.begin, self.begin + self.points)


@dataclass(frozen=True, eq=False)
class Blocks:
    """Points of a grid in blocks. Each block is padded by points with weight 0 to a multiple of 16 points.

    `points` [3, n] are in Bohr, `weights` [n] in Bohr^3, and `order` is the highest derivative of functions that is
    screened. `index` [n] is the number of each point in the grid; that of padding is the number of another point of its
    block. `tasks` [tasks, 7] are those of each class of shells, in the order of blocks.
    """

    contractions: Contractions
    order: int
    points: np.ndarray
    weights: np.ndarray
    index: np.ndarray
    blocks: tuple[PointBlock, ...]
    tasks: tuple[np.ndarray, ...]

    @classmethod
    def of(
        cls,
        mol: gto.Mole,
        points: np.ndarray,
        weights: np.ndarray | None = None,
        order: int = 0,
        *,
        size: int = POINTS,
        cutoff: float = CUTOFF,
    ) -> Blocks:
        """Divide points into blocks.

        Parameters
        ----------
        mol : pyscf.gto.Mole
            The molecule with the basis.
        points : ndarray [n, 3]
            The coordinates, in Bohr.
        weights : ndarray [n], optional
            The weights, in Bohr^3. Points with negligible weights are left out. Without weights all points stay, and
            functions are screened as if all weights were 1.
        order : int
            The highest derivative of functions that will be evaluated.
        size : int
            The points of a block, a multiple of 16.
        cutoff : float
            See CUTOFF.
        """
        contractions = Contractions.of(mol)
        points = np.asarray(points, float).reshape(-1, 3)
        kept = np.arange(len(points)) if weights is None else np.flatnonzero(np.abs(weights) > NO_WEIGHT)
        # Points with negative weights, of which some angular grids have a few, get blocks of their own: the potential
        # of a block takes twice as many operations if its points differ in sign.
        negative = np.zeros(len(kept), bool) if weights is None else np.asarray(weights)[kept] < 0
        parts = [of[part] for of in (kept[~negative], kept[negative]) for part in bisected(points[of], size)]
        index = np.concatenate([np.pad(part, (0, -len(part) % MULTIPLE), mode="edge") for part in parts] or [kept])
        ends = np.cumsum([len(part) + -len(part) % MULTIPLE for part in parts], dtype=np.int64)
        scaled = np.ones(len(index)) if weights is None else np.asarray(weights, float)[index]
        for part, end in zip(parts, ends):
            scaled[end - (-len(part) % MULTIPLE) : end] = 0.0
        coordinates = np.ascontiguousarray(points[index].T)
        counts = _primitives(contractions, coordinates, scaled, ends, order, cutoff)
        blocks, tasks = _tasks(contractions, counts, ends)
        return cls(contractions, order, coordinates, scaled, index, blocks, tasks)

    def share(self, ranks: Ranks) -> Blocks:
        """Return the blocks of a rank, with numbers of their own, and all points. The ranks have shares of about equal
        cost.
        """
        costs = [block.points * float(len(block.functions)) ** 2 for block in self.blocks]
        owners = balanced(costs, ranks.size)
        own = [block for block, owner in zip(self.blocks, owners) if owner == ranks.rank]
        return replace(self, blocks=tuple(replace(block, number=n) for n, block in enumerate(own)))

    @property
    def largest(self) -> int:
        """The largest product of functions and points of a block."""
        return max((len(block.functions) * block.points for block in self.blocks), default=0)


def _primitives(
    contractions: Contractions, points: np.ndarray, weights: np.ndarray, ends: np.ndarray, order: int, cutoff: float
) -> np.ndarray:
    """Return how many primitives of each contraction matter in each block; [blocks, contractions]."""
    begins = np.concatenate([[0], ends])[: len(ends)]
    if not len(ends):
        return np.zeros((0, len(contractions.first)), np.int64)
    lower, upper, largest = (
        np.minimum.reduceat(points, begins, axis=1).T,
        np.maximum.reduceat(points, begins, axis=1).T,
        np.maximum.reduceat(np.abs(weights), begins),
    )
    return contractions.to_sum(lower, upper, cutoff / np.sqrt(np.maximum(largest, NO_WEIGHT)), order)


def _tasks(
    contractions: Contractions, counts: np.ndarray, ends: np.ndarray
) -> tuple[tuple[PointBlock, ...], tuple[np.ndarray, ...]]:
    """Return the blocks, and the tasks of each class."""
    points = np.diff(ends, prepend=0)
    width = np.where(counts > 0, contractions.functions, 0)
    offset, functions = np.cumsum(width, axis=1) - width, width.sum(axis=1)
    block, which = np.nonzero(counts)
    columns = {
        "point": (ends - points)[block],
        "points": points[block],
        "record": contractions.places[which],
        "primitives": counts[block, which],
        "place": offset[block, which] * points[block],
        "row": points[block],
        "component": (functions * points)[block],
    }
    table = np.stack([columns[word] for word in TASK], axis=1).astype(np.int64)
    of_class = [np.flatnonzero(contractions.kind[which] == n) for n in range(len(contractions.classes))]
    ranges = [np.searchsorted(block[rows], np.arange(len(ends) + 1)) for rows in of_class]
    # The contraction of each function. Contractions are in the order of their functions.
    owner = np.repeat(np.arange(len(contractions.first)), contractions.functions)
    blocks = []
    for n, (end, size) in enumerate(zip(ends.tolist(), points.tolist())):
        numbers = np.flatnonzero((counts[n] > 0)[owner])
        blocks.append(PointBlock(n, end - size, size, numbers, tuple((int(r[n]), int(r[n + 1])) for r in ranges)))
    return tuple(blocks), tuple(np.ascontiguousarray(table[rows]) for rows in of_class)


# Divisions that are kept: those of two grids for two orders of derivatives, and those of their coarse grids.
KEPT = 6


@dataclass(frozen=True, eq=False)
class _Entry:
    """Blocks, and the settings and copies of all arrays from which they were made."""

    settings: tuple[int, float]
    arrays: tuple[np.ndarray | None, ...]
    blocks: Blocks


class BlocksCache:
    """The blocks of the last grids that were asked for."""

    def __init__(self) -> None:
        self._entries: list[_Entry] = []

    def get(
        self, mol: gto.Mole, points: np.ndarray, weights: np.ndarray | None, order: int, cutoff: float = CUTOFF
    ) -> Blocks:
        """Return the blocks of a grid; see `Blocks.of`.

        Arrays are compared by their values, so that changes in place are seen.
        """
        # The slots before PTR_ENV_START hold settings, and no shells.
        arrays = (points, weights, mol._atm, mol._bas, mol._env[gto.PTR_ENV_START :], np.array([mol.cart]))
        for entry in self._entries:
            if entry.settings == (order, cutoff) and all(map(_same, entry.arrays, arrays)):
                return entry.blocks
        blocks = Blocks.of(mol, points, weights, order, cutoff=cutoff)
        copies = tuple(None if a is None else np.array(a) for a in arrays)
        self._entries = [_Entry((order, cutoff), copies, blocks), *self._entries[: KEPT - 1]]
        return blocks


def _same(a: np.ndarray | None, b: np.ndarray | None) -> bool:
    return a is b if a is None or b is None else np.array_equal(a, b)
