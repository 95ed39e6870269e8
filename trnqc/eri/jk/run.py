"""One pass over the integrals: the arguments of the drivers (batch.py) for a stack of densities, and their calls."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property, partial
from typing import Any

import numpy as np
from pyscf import gto

from trnqc.eri.classes import PRIMITIVE, QuartetClass
from trnqc.eri.compiled import programs
from trnqc.eri.jk.batch import NUMBERS, REALS, Batch
from trnqc.eri.jk.digest import BLOCKS
from trnqc.eri.jk.exact_sums import Add
from trnqc.eri.jk.layout import MatrixLayout, block_maxima
from trnqc.eri.jk.tasks import QuartetTask
from trnqc.eri.kernels import boys
from trnqc.eri.kernels.parameters import work_size
from trnqc.host.arrays import zeros
from trnqc.jit import Library

_work_size = cache(work_size)


@dataclass(frozen=True, eq=False)
class JKPass:
    """One pass over the integrals: what all its tasks share.

    `pairs` [densities, elements of all pairs] are the densities for J, and `blocks` [densities, nao nao] those for K,
    in the order of the layout. `each_of` returns `each` [densities, shells, shells], the largest element of each
    density by blocks; `maxima` [shells, shells] is the same over the densities of all passes, for the screening.
    `reals` are the values of `batch.REALS`.
    """

    layout: MatrixLayout
    with_j: bool
    with_k: bool
    pairs: np.ndarray
    blocks: np.ndarray
    each_of: Callable[[], np.ndarray]
    maxima: np.ndarray
    reals: np.ndarray

    @classmethod
    def of(
        cls,
        mol: gto.Mole,
        layout: MatrixLayout,
        dm: np.ndarray,
        pairs: np.ndarray,
        *,
        with_j: bool,
        with_k: bool,
        cutoff: float,
        omega: float,
        maxima: np.ndarray | None = None,
    ) -> JKPass:
        """Prepare a pass for densities dm [densities, nao, nao], each symmetric or antisymmetric.

        pairs: their elements by pairs. omega: at least 0, in 1/Bohr. maxima: by default those of `dm`; all passes over
        parts of one stack share them, so that the number of passes does not change the result.
        """
        maxima = block_maxima(mol, dm) if maxima is None else maxima
        largest = min(1.0, 4.0 * float(maxima.max(initial=0)))
        reals = {"cutoff": cutoff, "primitive": PRIMITIVE * cutoff, "omega": omega, "largest": largest}
        in_order = np.array([reals[name] for name in REALS])
        each_of = partial(_maxima_of_each, mol, dm)
        return cls(layout, with_j, with_k, np.ascontiguousarray(pairs), layout.blocked(dm), each_of, maxima, in_order)

    @cached_property
    def each(self) -> np.ndarray:
        """The largest element of each density by blocks, [densities, shells, shells], which GPUs do not need."""
        return self.each_of()

    @property
    def count(self) -> int:
        """The number of densities."""
        return len(self.pairs)

    def bounds(self, q: np.ndarray, sizes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Return by density what no element of the sums for J and K exceeds, even if all terms had one sign.

        q [shells, shells]: Schwarz bounds q_ab = sqrt((ab|ab)). sizes: functions of each shell. By Schwarz's inequality
        J_ab <= q_ab sum_cd q_cd |D_cd| and K_ac <= sum_bd q_ab |D_bd| q_cd. The factor 8 is there because a quartet
        stands for up to eight integrals.
        """
        weighted, most = self.each * np.outer(sizes, sizes), q.max(axis=0, initial=0)
        j = most.max(initial=0) * (q * weighted).sum(axis=(1, 2))
        k = (most[:, None] * weighted * most).sum(axis=(1, 2))
        return 8 * j, 8 * k

    def worker(self, libraries: Mapping[QuartetClass, Library]) -> Add[list[QuartetTask]]:
        """Return a function for one thread that adds a group of tasks to J and K, whichever are wanted."""
        scratch, unused = ThreadBuffers(), np.zeros(1)

        def add(group: list[QuartetTask], arrays: tuple[np.ndarray, ...]) -> None:
            wanted = iter(arrays)
            vj, vk = (next(wanted) if asked else unused for asked in (self.with_j, self.with_k))
            for task in group:
                driver = getattr(libraries[task.cls], Batch(task.cls, self.with_j, self.with_k).name)
                driver(**self.arguments(task, scratch, vj, vk), groups_begin=task.begin, groups_end=task.end)

        return add

    def arguments(
        self, task: QuartetTask, scratch: ThreadBuffers, vj: np.ndarray, vk: np.ndarray
    ) -> dict[str, np.ndarray]:
        """Return the arguments of a driver; see `Batch.arrays`."""
        bra, ket, cls, width = task.bra, task.ket, task.cls, programs.lanes()
        n_ab, n_cd = bra.pairs.contractions, ket.pairs.contractions
        a, b, c, d = cls.extents
        ket_records = ket.records_for(cls)
        _, rows, wide = ket_records.shape
        return {
            "numbers": self.numbers(task, width),
            "reals": self.reals,
            "bra": bra.records_for(cls),
            "bra_places": bra.places,
            "bra_measures": bra.measures,
            "ket": ket_records,
            "ket_places": ket.places,
            "ket_measures": ket.measures,
            "ket_bounds": ket.bounds,
            "dm_max": self.maxima,
            "dm_pairs": self.pairs,
            "dm": self.blocks,
            "vj": vj,
            "vk": vk,
            "boys": boys.table(cls.order),
            "lane": scratch.lane,
            "queue": scratch("queue", len(ket) + width, np.int64),
            "weight": scratch("weight", len(ket) + width),
            "lanes_ket": scratch("lanes_ket", rows * wide * width),
            "lanes_centre": scratch("lanes_centre", 6 * width),
            "work": scratch("work", _work_size(cls, n_ab, n_cd) * width),
            "out": scratch("out", n_ab * n_cd * a * b * c * d * width),
            "j_ab": scratch("j_ab", self.count * n_ab * a * b * width),
        }

    def numbers(self, task: QuartetTask, lanes: int) -> np.ndarray:
        """Return the array of `batch.NUMBERS`."""
        bra, ket, layout = task.bra, task.ket, self.layout
        numbers = {
            "ket_pairs": len(ket),
            "bra_rows": bra.records.shape[1],
            "ket_rows": ket.records.shape[1],
            "n_ab": bra.pairs.contractions,
            "n_cd": ket.pairs.contractions,
            "n_b": bra.pairs.ncb,
            "n_d": ket.pairs.ncb,
            "same": bra is ket,
            "densities": self.count,
            "lanes": lanes,
            "shells": len(self.maxima),
            "elements": self.blocks.shape[1],
            "pair_elements": self.pairs.shape[1],
            "bra_at": bra.at,
            "ket_at": ket.at,
        }
        l = dict(zip("abcd", task.cls.shells))
        for block in BLOCKS:
            row, column = (l[shell] for shell in block)
            numbers |= {f"at_{block}": layout.at[row, column], f"row_{block}": layout.shells[column]}
        return np.array([numbers[name] for name in NUMBERS], np.int64)


def _maxima_of_each(mol: gto.Mole, dm: np.ndarray) -> np.ndarray:
    return np.array([block_maxima(mol, one[None]) for one in dm])


class ThreadBuffers:
    """The buffers of one thread, by name. They grow when more is asked for."""

    def __init__(self) -> None:
        self.lane = np.arange(programs.lanes())
        self._buffers: dict[str, np.ndarray] = {}

    def __call__(self, name: str, size: int, dtype: Any = np.float64) -> np.ndarray:
        if name not in self._buffers or self._buffers[name].size < size:
            self._buffers[name] = zeros(size, dtype)
        return self._buffers[name]
