"""Exact arithmetic on sets of time intervals, each a float64 [n, 2] array of half-open intervals [start, end), in ns.

A *union* is such an array in normal form: sorted, disjoint, not adjacent and without empty intervals. All functions
except ``union`` take and return unions. Every figure is a sum of differences of endpoints and is therefore exact for
whole numbers below 2^53.
"""

from __future__ import annotations

import numpy as np

# The union of no intervals.
EMPTY = np.empty((0, 2))


def union(intervals: np.ndarray) -> np.ndarray:
    """Return the normal form of intervals [n, 2]. Empty and reversed intervals are dropped."""
    kept = intervals[intervals[:, 1] > intervals[:, 0]]
    if not len(kept):
        return EMPTY
    kept = kept[np.argsort(kept[:, 0], kind="stable")]
    reach = np.maximum.accumulate(kept[:, 1])
    opens = np.concatenate([[True], kept[1:, 0] > reach[:-1]])
    first = np.flatnonzero(opens)
    last = np.append(first[1:], len(kept)) - 1
    return np.column_stack([kept[first, 0], reach[last]])


def merge(*unions: np.ndarray) -> np.ndarray:
    """Return the time that lies in at least one of the unions."""
    return union(np.concatenate(unions)) if unions else EMPTY


def total(a: np.ndarray) -> float:
    """Return the total length in ns."""
    return float(np.sum(a[:, 1] - a[:, 0]))


def intersection(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Return the time that lies in both unions."""
    first = np.searchsorted(b[:, 1], a[:, 0], side="right")
    after = np.searchsorted(b[:, 0], a[:, 1], side="left")
    count = np.maximum(after - first, 0)
    row = np.repeat(np.arange(len(a)), count)
    start_of_row = np.repeat(np.cumsum(count) - count, count)
    other = np.repeat(first, count) + np.arange(len(row)) - start_of_row
    return np.column_stack([np.maximum(a[row, 0], b[other, 0]), np.minimum(a[row, 1], b[other, 1])])


def complement(a: np.ndarray, start: float, end: float) -> np.ndarray:
    """Return the part of [start, end) that does not lie in ``a``."""
    edges = np.column_stack([np.append(start, a[:, 1]), np.append(a[:, 0], end)])
    return union(np.clip(edges, start, end))


def coverage(a: np.ndarray, edges: np.ndarray) -> np.ndarray:
    """Return the length in ns of ``a`` within each bin [edges[k], edges[k+1])."""
    if not len(a):
        return np.zeros(len(edges) - 1)
    before = np.concatenate([[0.0], np.cumsum(a[:, 1] - a[:, 0])])
    index = np.searchsorted(a[:, 0], edges, side="right")
    inside = np.where(index > 0, np.maximum(a[np.maximum(index - 1, 0), 1] - edges, 0.0), 0.0)
    return np.diff(before[index] - inside)
