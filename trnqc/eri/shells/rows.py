"""Pairs side by side in SIMD lanes: the rows of ket records that a kernel reads, packed once with NumPy."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trnqc.eri.classes import BOUND
from trnqc.eri.shells.pairs import ShellPairs


@dataclass(frozen=True, eq=False)
class Rows:
    """Pairs of one class, one a lane; the last row is filled up with repetitions of its last pair.

    members [rows, lanes]: positions in the class. records [rows, K, W, lanes], bounds [rows, K + 1]: of records, over
    the lanes, descending, with a zero at the end. count [rows]: records in use. centre [rows, 6, lanes]. bound [rows].
    """

    members: np.ndarray
    records: np.ndarray
    bounds: np.ndarray
    count: np.ndarray
    centre: np.ndarray
    bound: np.ndarray

    def __len__(self) -> int:
        return len(self.members)


def rows_of(pairs: ShellPairs, lanes: int) -> Rows:
    """Every pair of a class in one lane; pairs with as many primitives stand together."""
    order = np.argsort(-pairs.count, kind="stable")
    order = np.append(order, np.repeat(order[-1:], -len(order) % lanes))
    members = order.reshape(-1, lanes)
    records = np.ascontiguousarray(pairs.records[members].transpose(0, 2, 3, 1))
    bounds = np.zeros((len(members), records.shape[1] + 1))
    bounds[:, :-1] = records[:, :, BOUND].max(axis=-1)
    return Rows(
        members,
        records,
        bounds,
        count=pairs.count[members].max(axis=1).astype(np.int64),
        centre=np.ascontiguousarray(pairs.centre[members].transpose(0, 2, 1)),
        bound=pairs.bound[members].max(axis=1),
    )
