"""J and K from fitted integrals in a file, read in blocks of rows while the block before is used.

The blocks are read into two arrays in turns. New arrays for each block would take longer to be faulted in than to be
read from the system's cache of files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import h5py
import numpy as np
from pyscf.df import addons

from trnqc.eri.fitting import jk
from trnqc.eri.fitting.tagged import fitted_jk
from trnqc.errors import StorageError
from trnqc.fitted.rows import read_ahead
from trnqc.host.arrays import empty

# Blocks in which integrals are read, at least. The first is read before anything is computed.
BLOCKS = 8


class FileRows:
    """The rows (Q|ij) [naux, pairs] of a file, or of another object outside of memory that PySCF's DF object has as
    `_cderi`.

    `name` is that of a dataset in the file, or of a group of datasets, each with a range of pairs ij.
    """

    def __init__(self, file: Any, name: str) -> None:
        self._file, self._name = file, name

    def blocks(self, rows: int) -> Iterator[np.ndarray]:
        """Yield blocks of at most `rows` rows in order, each valid until the next one is asked for. Raises StorageError
        if the file cannot be read.
        """
        with self._datasets() as datasets:
            yield from _blocks(datasets, rows)

    def norms(self, room: float) -> np.ndarray:
        """Return sqrt(sum_Q (Q|ij)^2) for all pairs, for which the file is read once; room as in `get_jk`."""
        squares = (jk.norms_of(block) ** 2 for block in self.blocks(self._rows_within(room)))
        return np.asarray(np.sqrt(sum(squares)))

    def get_jk(self, dm: Any, norms: np.ndarray, with_j: bool, with_k: bool, room: float) -> tuple[Any, Any]:
        """Compute J and K as `fitted_jk` does; two blocks and working arrays take `room` bytes. Raises StorageError."""
        totals = [np.zeros(np.shape(dm)) if wanted else None for wanted in (with_j, with_k)]
        for block in self.blocks(self._rows_within(room)):
            for total, part in zip(totals, fitted_jk(block, dm, norms, with_j, with_k, room / 2)):
                if total is not None:
                    total += part
        return totals[0], totals[1]

    def _rows_within(self, room: float) -> int:
        """Return the rows of a block: whole groups, of which two blocks take half of the room."""
        with self._datasets() as datasets:
            naux, pairs = len(datasets[0]), sum(dataset.shape[1] for dataset in datasets)
        groups = min(-(-naux // (BLOCKS * jk.GROUP)), int(room / 4 / (8 * pairs * jk.GROUP)))
        return jk.GROUP * max(1, groups)

    @contextmanager
    def _datasets(self) -> Iterator[list[h5py.Dataset]]:
        try:
            with addons.load(self._file, self._name) as integrals:
                grouped = isinstance(integrals, h5py.Group)
                yield [integrals[str(n)] for n in range(len(integrals))] if grouped else [integrals]
        except OSError as error:
            raise StorageError(
                f"the fitted integrals cannot be read from {self._file} ({error}): call reset() of the density-fitting "
                "object, which then computes them again"
            ) from error


def _blocks(datasets: Sequence[h5py.Dataset], rows: int) -> Iterator[np.ndarray]:
    """Yield blocks of rows of datasets side by side; one is read while the one before is used."""
    count, width = len(datasets[0]), sum(dataset.shape[1] for dataset in datasets)
    buffers = [empty((min(rows, count), width), np.float64) for _ in range(2)]

    def read(number: int) -> np.ndarray:
        first = number * rows
        block = buffers[number % 2][: min(rows, count - first)]
        end = 0
        for dataset in datasets:
            begin, end = end, end + dataset.shape[1]
            if end > begin:
                dataset.read_direct(block, np.s_[first : first + len(block)], np.s_[:, begin:end])
        return block

    numbers = ((number,) for number in range(-(-count // rows)))
    yield from (block for (block,) in read_ahead(numbers, read, len(buffers)))
