"""Neighbour lists against all images of all pairs."""

from __future__ import annotations

import numpy as np
import pytest

from trnqc.errors import InputError
from trnqc.mace.edges.neighbours import Neighbours, neighbours

pytest.importorskip("vesin")

CUTOFF = 4.0
SKEWED = np.array([[3.1, 0, 0], [0.7, 2.9, 0], [-0.4, 0.5, 3.3]])
STRUCTURES = {
    "molecule": (12, np.zeros((3, 3)), (False, False, False), 6.0),
    "cell below the cutoff": (3, SKEWED, (True, True, True), 3.0),
    "slab": (9, np.diag([5.0, 6.0, 0.0]), (True, True, False), 5.0),
    "wire with a cell that is not used": (4, np.diag([9.0, 3.0, 9.0]), (False, True, False), 3.0),
    "isolated atom": (1, np.zeros((3, 3)), (False, False, False), 1.0),
    "isolated periodic atom": (1, np.diag([9.0] * 3), (True, True, True), 1.0),
    "no atom": (0, np.zeros((3, 3)), (False, False, False), 1.0),
}


def structure(name: str) -> tuple[np.ndarray, np.ndarray, tuple[bool, ...]]:
    count, cell, periodic, size = STRUCTURES[name]
    # Some atoms are outside the cell.
    return np.random.default_rng(4).uniform(-size / 2, size, (count, 3)), cell, periodic


def all_vectors(positions: np.ndarray, cell: np.ndarray, periodic: tuple[bool, ...]) -> list[tuple[float, ...]]:
    """(receiver, sender, vector) of all pairs closer than the cutoff, in order."""
    images = [np.arange(-5, 6) if p else np.zeros(1) for p in periodic]
    shifts = np.stack(np.meshgrid(*images, indexing="ij"), axis=-1).reshape(-1, 3) @ cell
    pairs = []
    for i, j in np.ndindex(len(positions), len(positions)):
        vectors = positions[i] - positions[j] - shifts
        lengths = np.linalg.norm(vectors, axis=1)
        keep = (lengths < CUTOFF) & (lengths > 0)
        pairs += [(i, j, *np.round(v, 8)) for v in vectors[keep]]
    return sorted(pairs)


def as_list(listed: Neighbours, positions: np.ndarray) -> list[tuple[float, ...]]:
    vectors = listed.vectors(positions)
    assert (np.diff(listed.receivers) >= 0).all()
    near = np.linalg.norm(vectors, axis=1) < CUTOFF
    rows = zip(listed.receivers[near].tolist(), listed.senders[near].tolist(), vectors[near])
    return sorted((i, j, *np.round(v, 8)) for i, j, v in rows)


@pytest.mark.parametrize("name", STRUCTURES)
@pytest.mark.parametrize("skin", [0.0, 0.6])
def test_all_pairs(name, skin):
    positions, cell, periodic = structure(name)
    listed = neighbours(positions, cell, periodic, CUTOFF, skin)
    assert np.allclose(as_list(listed, positions), all_vectors(positions, cell, periodic), atol=1e-7)


def test_a_list_holds_within_its_skin():
    positions, cell, periodic = structure("slab")
    listed = neighbours(positions, cell, periodic, CUTOFF, 0.6)
    moves = np.random.default_rng(5).normal(size=positions.shape)
    moves *= 0.299 / np.linalg.norm(moves, axis=1)[:, None]
    moved = positions + moves
    assert listed.holds(moved, cell, periodic)
    assert np.allclose(as_list(listed, moved), all_vectors(moved, cell, periodic), atol=1e-7)
    assert not listed.holds(positions + 1.01 * moves, cell, periodic)
    assert not listed.holds(positions, 1.001 * cell, periodic)
    assert not listed.holds(positions[1:], cell, periodic)
    assert not listed.holds(positions, cell, (True, True, True))
    assert not listed.holds(np.full_like(positions, np.nan), cell, periodic)


def test_errors():
    positions, cell, periodic = structure("slab")
    with pytest.raises(InputError, match="finite"):
        neighbours(np.where(positions == positions[0, 0], np.nan, positions), cell, periodic, CUTOFF)
    with pytest.raises(InputError, match="linearly independent"):
        neighbours(positions, np.ones((3, 3)), periodic, CUTOFF)
