"""Neighbour lists of periodic structures, with a skin so that a list serves several steps of molecular dynamics.

positions, cell -> vesin -> pairs closer than cutoff + skin -> vectors of these pairs at other positions
"""

from __future__ import annotations

import importlib
from dataclasses import dataclass

import numpy as np

from trnqc.errors import BackendUnavailable, InputError

# Number of pairs whose vectors are computed at a time, so that intermediate arrays are small.
TOGETHER = 10_000


@dataclass(frozen=True, eq=False)
class Neighbours:
    """All ordered pairs of atoms and periodic images closer than cutoff + skin, sorted by receiver.

    Receivers and senders are int64 [pairs], lengths in Angstrom. The list was made for positions [N, 3] and cell
    vectors [3, 3]. `images`, int32 [pairs, 3], is the number of times that each cell vector is added to the position of
    the sender.
    """

    cutoff: float
    skin: float
    positions: np.ndarray
    cell: np.ndarray
    periodic: tuple[bool, ...]
    senders: np.ndarray
    receivers: np.ndarray
    images: np.ndarray

    def holds(self, positions: np.ndarray, cell: np.ndarray, periodic: tuple[bool, ...]) -> bool:
        """Whether the list contains all pairs of another structure: no atom has moved by more than half the skin."""
        same = positions.shape == self.positions.shape and tuple(periodic) == self.periodic
        if not same or not np.array_equal(cell, self.cell) or not np.isfinite(positions).all():
            return False
        moved = positions - self.positions
        return bool(np.einsum("nk,nk->n", moved, moved).max(initial=0) <= (self.skin / 2) ** 2)

    def vectors(self, positions: np.ndarray) -> np.ndarray:
        """Return the position of the receiver minus that of the sender of each pair, float64 [pairs, 3] in Angstrom.

        The list must hold for the positions, float64 [N, 3] in Angstrom.
        """
        vectors = np.empty((len(self.senders), 3))
        for begin in range(0, len(vectors), TOGETHER):
            part = slice(begin, begin + TOGETHER)
            np.subtract(positions[self.receivers[part]], positions[self.senders[part]], out=vectors[part])
            vectors[part] -= self.images[part] @ self.cell
        return vectors


def neighbours(
    positions: np.ndarray, cell: np.ndarray, periodic: tuple[bool, ...], cutoff: float, skin: float = 0.0
) -> Neighbours:
    """Find all pairs of atoms and images closer than cutoff + skin; cells may be smaller than that.

    Positions are float64 [N, 3] and cell vectors the rows of [3, 3], in Angstrom; vectors of directions without
    periodicity may be zero. Raises InputError if positions or cell are not finite, or the vectors of periodic
    directions are linearly dependent, and BackendUnavailable if vesin is not installed.
    """
    positions, cell = np.array(positions, np.float64).reshape(-1, 3), np.array(cell, np.float64).reshape(3, 3)
    flags = tuple(bool(p) for p in periodic)
    if not (np.isfinite(positions).all() and np.isfinite(cell).all()):
        raise InputError("positions and cell vectors must be finite numbers; found NaN or infinity")
    vectors = cell[list(flags)]
    if len(vectors) and np.linalg.matrix_rank(vectors) < len(vectors):
        raise InputError(
            f"the cell vectors of periodic directions must be linearly independent; found {vectors.tolist()}"
        )
    receivers, senders, images = _pairs(positions, _completed(cell, flags), flags, cutoff + skin)
    return Neighbours(cutoff, skin, positions, cell, flags, senders, receivers, images)


def _completed(cell: np.ndarray, periodic: tuple[bool, ...]) -> np.ndarray:
    """The cell with unit vectors, perpendicular to the periodic ones, in the directions that are not periodic."""
    box = cell.copy()
    for n in (n for n in range(3) if not periodic[n]):
        box[n] = 0
        box[n] = np.linalg.svd(box)[2][-1]
    return box


def _pairs(
    positions: np.ndarray, box: np.ndarray, periodic: tuple[bool, ...], cutoff: float
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Receivers, senders and images of the senders."""
    if not len(positions):
        return np.zeros(0, np.int64), np.zeros(0, np.int64), np.zeros((0, 3), np.int32)
    try:
        vesin = importlib.import_module("vesin")
    except ImportError as error:
        raise BackendUnavailable(
            "neighbour lists need vesin, which is not installed: pip install 'trnqc[mace]', or pip install vesin"
        ) from error
    search = vesin.NeighborList(cutoff=cutoff, full_list=True, sorted=True)
    i, j, images = search.compute(points=positions, box=box, periodic=list(periodic), quantities="ijS")
    return i.astype(np.int64), j.astype(np.int64), images.astype(np.int32)
