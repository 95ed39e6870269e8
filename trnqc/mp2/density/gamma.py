"""Γ[i, a, Q] of one spin, in memory or in a file, accumulated by sets of rows i.

pair_sums: borrow, give_back ─► Γ[i, a, Q] ─► to_auxiliary: Γ[i, a, P] in raw auxiliary functions ─► functions: some P
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np

from trnqc.fitted.disk import RowsOnDisk
from trnqc.fitted.metric import MetricFactor
from trnqc.host.thread_pool import single_threaded_pool
from trnqc.mp2.store import JobStore, ScratchStore


class Gamma:
    """The three-index density Γ[i, a, Q] = Σ_jb T̃_ij^ab B[j, b, Q] of one spin.

    Parameters
    ----------
    shape
        nocc, nvir and naux.
    on_disk
        Whether the rows are kept in a file.
    store
        The store of that file; by default it is an unnamed one below TMPDIR.
    name
        Name of the file.
    """

    def __init__(
        self, shape: tuple[int, int, int], on_disk: bool, store: JobStore | None = None, name: str = "gamma"
    ) -> None:
        self.shape, self.on_disk, self._is_kept = shape, on_disk and shape[0] > 0, store is not None
        self._rows: np.ndarray | RowsOnDisk = (
            (store or ScratchStore()).array(RowsOnDisk, name, "Gamma", shape) if self.on_disk else np.zeros(shape)
        )

    @property
    def bytes_in_memory(self) -> int:
        """Bytes of Γ in memory; 0 if Γ is on disk."""
        return 0 if self.on_disk else 8 * math.prod(self.shape)

    def __getitem__(self, rows: slice) -> np.ndarray:
        """Return the rows [n, nvir, naux]."""
        return self._rows[rows]

    def borrow(self, rows: slice) -> np.ndarray:
        """Return a set of rows [n, nvir, naux] to which the caller adds before `give_back`: zeros at first."""
        if isinstance(self._rows, np.ndarray):
            return self._rows[rows]
        numbers = range(*rows.indices(self.shape[0]))
        values = np.zeros((len(numbers), *self.shape[1:]))
        for i, value in zip(numbers, values):
            if i in self._rows.checksums:
                value[...] = self._rows[i]
        return values

    def give_back(self, rows: slice, values: np.ndarray) -> None:
        """Keep the values of a set of rows that was borrowed."""
        if not isinstance(self._rows, np.ndarray):
            for i, value in zip(range(*rows.indices(self.shape[0])), values):
                self._rows.write(i, value)

    def add(self, rows: slice, values: np.ndarray) -> None:
        """Add values [n, nvir, naux] to a set of rows."""
        there = self.borrow(rows)
        there += values
        self.give_back(rows, there)

    def to_auxiliary(self, metric: MetricFactor, threads: int) -> Gamma:
        """Return Γ[i, a, P] = Σ_Q Γ[i, a, Q] M[P, Q] for factors B[Q] = Σ_P (ia|P) M[P, Q].

        A Cholesky metric (M = L^-T) transforms the rows in their own memory, so that this object must not be used
        afterwards. Rows in a caller's store are not changed.
        """
        nocc, nvir, _ = self.shape
        result = self
        if self._is_kept or not metric.is_lower:
            result = Gamma((nocc, nvir, metric.nfit), self.on_disk)

        def transform(i: int) -> None:
            (row,) = self[i : i + 1]
            transformed = metric.expand_rows(row)
            if result is not self or self.on_disk:
                result.put(i, transformed)

        with single_threaded_pool(threads) as pool:
            list(pool.map(transform, range(nocc)))
        return result

    def put(self, i: int, row: np.ndarray) -> None:
        """Replace row i."""
        if isinstance(self._rows, np.ndarray):
            self._rows[i] = row
        else:
            self._rows.write(i, np.ascontiguousarray(row))

    def checksums(self, rows: slice) -> list[int]:
        """Return the checksums of rows on disk."""
        assert isinstance(self._rows, RowsOnDisk), "Γ is on disk"
        return [self._rows.checksums[i] for i in range(self.shape[0])[rows]]

    def recall(self, rows: slice, checksums: Sequence[int]) -> bool:
        """Take rows that are on disk from an earlier run; returns whether their checksums are right."""
        assert isinstance(self._rows, RowsOnDisk), "Γ is on disk"
        numbers = range(self.shape[0])[rows]
        self._rows.checksums.update(zip(numbers, checksums, strict=True))
        sound = all(self._rows.holds(i) for i in numbers)
        if not sound:
            for i in numbers:
                del self._rows.checksums[i]
        return sound

    def functions(self, which: slice) -> np.ndarray:
        """Return Γ[i, a, P] of some auxiliary functions P, a contiguous array [P, i, a]."""
        if isinstance(self._rows, np.ndarray):
            return np.ascontiguousarray(self._rows[:, :, which].transpose(2, 0, 1))
        return np.stack([self._rows[i][:, which].T for i in range(self.shape[0])], axis=1)
