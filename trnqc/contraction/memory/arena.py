"""Positions of temporaries in one arena: arrays that never live at the same time may overlap."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np


def arena_offsets(sizes: Mapping[str, int], lives: Mapping[str, tuple[int, int]]) -> dict[str, int]:
    """Return the first element of each array in a common arena; `lives` has the first and last moment of each."""
    offsets, _ = _packed(np.array([[*sizes.values()]], float), together([lives[name] for name in sizes]))
    return dict(zip(sizes, offsets[0].astype(int).tolist()))


def arenas(sizes: np.ndarray, meet: np.ndarray) -> np.ndarray:
    """Return the sizes of arenas in elements, [trials], for sizes of arrays [trials, arrays].

    `meet` says which arrays live at the same time, as of `together`.
    """
    return _packed(sizes, meet)[1]


def together(lives: Sequence[tuple[int, int]]) -> np.ndarray:
    """Return which arrays live at the same time, [arrays, arrays]."""
    first, last = np.array(lives, int).reshape(-1, 2).T
    return (first[:, None] <= last) & (first <= last[:, None])


def _packed(sizes: np.ndarray, meet: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return offsets [trials, arrays] and arena sizes [trials] of the better of two orders: large first, as created."""
    as_created = np.broadcast_to(np.arange(sizes.shape[1]), sizes.shape)
    tries = [_in_order(order, sizes, meet) for order in (np.argsort(-sizes, axis=1, kind="stable"), as_created)]
    ends = [np.max(offsets + sizes, axis=1, initial=0) for offsets in tries]
    return np.where((ends[0] <= ends[1])[:, None], *tries), np.minimum(*ends)


def _in_order(order: np.ndarray, sizes: np.ndarray, meet: np.ndarray) -> np.ndarray:
    """Return the offsets where each array in turn takes the lowest range that is free as long as it lives."""
    rows = np.arange(len(sizes))
    offsets = np.zeros(sizes.shape)
    for k in range(sizes.shape[1]):
        mine, before = order[:, k], order[:, :k]
        taken = meet[mine[:, None], before]
        starts = offsets[rows[:, None], before]
        stops = starts + sizes[rows[:, None], before]
        # A free range begins at zero or at the end of another array.
        trials = np.concatenate([np.zeros((len(sizes), 1)), np.where(taken, stops, np.inf)], axis=1)[:, :, None]
        size = sizes[rows, mine][:, None, None]
        clash = taken[:, None] & (trials < stops[:, None]) & (starts[:, None] < trials + size)
        offsets[rows, mine] = np.where(clash.any(axis=2), np.inf, trials[:, :, 0]).min(axis=1)
    return offsets
