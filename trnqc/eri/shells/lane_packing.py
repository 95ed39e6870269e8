"""Shell pairs packed into SIMD lanes: vectors of ket records as a kernel reads them."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import pairwise
from typing import Any

import numpy as np

from trnqc.eri.classes import BOUND
from trnqc.eri.shells.pairs import ShellPairs, general_records


@dataclass(frozen=True, eq=False)
class PackedPairs:
    """Pairs of one class as vectors with one pair on each lane. The last vector is filled up with its last pair.

    `members` [vectors, lanes] are the positions of the pairs in their class, with records [vectors, K, W, lanes].
    `bounds` [vectors, K + 1] are the largest BOUND over the lanes of each primitive pair, falling, and a zero; `count`
    [vectors] the primitive pairs that are not padding on some lane; `centre` [vectors, 6, lanes] A and A - B; and
    `bound` [vectors] the largest bound of a pair over the lanes.
    """

    members: np.ndarray
    records: np.ndarray
    bounds: np.ndarray
    count: np.ndarray
    centre: np.ndarray
    bound: np.ndarray

    def __len__(self) -> int:
        return len(self.members)

    @cached_property
    def general(self) -> np.ndarray:
        """The records in the form that a general kernel reads."""
        return general_records(self.records)


def packed(pairs: ShellPairs, lanes: int, groups: np.ndarray | None = None) -> PackedPairs:
    """Put every pair of a class on a lane, beside pairs with as many primitives.

    groups [npair]: numbers of groups. Vectors are in the order of the groups, and the last of
    each group is filled up, so that no vector has pairs of two groups.
    """
    groups = np.zeros(len(pairs), np.int64) if groups is None else groups
    order = np.lexsort((-pairs.count, groups))
    edges = np.flatnonzero(np.diff(groups[order], prepend=groups.min() - 1, append=groups.max() + 1))
    parts = [order[begin:end] for begin, end in pairwise(edges)]
    members = np.concatenate([np.append(part, np.repeat(part[-1:], -len(part) % lanes)) for part in parts])
    members = members.reshape(-1, lanes)
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


def row_arguments(general: bool, bra: ShellPairs, ket: ShellPairs, rows: PackedPairs) -> dict[str, Any]:
    """Return the arguments of `kernels.rows` for bra pairs and vectors of ket pairs; `general` is that of the kernel's
    class.
    """
    records, lanes = (general_records(bra.records), rows.general) if general else (bra.records, rows.records)
    return {
        "bra_rows": records.shape[1],
        "ket_rows": lanes.shape[1],
        "n_ab": bra.contractions,
        "n_cd": ket.contractions,
        "bra_count": bra.count,
        "bra": records,
        "bra_centre": bra.centre,
        "bra_bound": bra.bound,
        "ket_count": rows.count,
        "ket": lanes,
        "ket_centre": rows.centre,
        "ket_bound": rows.bounds,
        "row_bound": rows.bound,
    }
