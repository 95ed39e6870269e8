"""Shell pairs packed into SIMD lanes: vectors of ket records as a kernel reads them."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from trnqc.eri.classes import BOUND
from trnqc.eri.shells.pairs import ShellPairs


@dataclass(frozen=True, eq=False)
class PackedPairs:
    """Pairs of one class as vectors with one pair on each lane. The last vector is filled up with its last pair.

    Parameters
    ----------
    members [vectors, lanes]
        The position of each pair in its class.
    records [vectors, K, W, lanes]
        The records.
    bounds [vectors, K + 1]
        The largest BOUND over the lanes of each primitive pair, falling, and a zero.
    count [vectors]
        The primitive pairs that are not padding on some lane.
    centre [vectors, 6, lanes]
        A and A - B.
    bound [vectors]
        The largest bound of a pair over the lanes.
    """

    members: np.ndarray
    records: np.ndarray
    bounds: np.ndarray
    count: np.ndarray
    centre: np.ndarray
    bound: np.ndarray

    def __len__(self) -> int:
        return len(self.members)


def packed(pairs: ShellPairs, lanes: int) -> PackedPairs:
    """Put every pair of a class on a lane, beside pairs with as many primitives."""
    order = np.argsort(-pairs.count, kind="stable")
    order = np.append(order, np.repeat(order[-1:], -len(order) % lanes))
    members = order.reshape(-1, lanes)
    records = np.ascontiguousarray(pairs.records[members].transpose(0, 2, 3, 1))
    bounds = np.zeros((len(members), records.shape[1] + 1))
    bounds[:, :-1] = records[:, :, BOUND].max(axis=-1)
    return PackedPairs(
        members,
        records,
        bounds,
        count=pairs.count[members].max(axis=1).astype(np.int64),
        centre=np.ascontiguousarray(pairs.centre[members].transpose(0, 2, 1)),
        bound=pairs.bound[members].max(axis=1),
    )
