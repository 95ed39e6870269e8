"""Fitted integrals in a file of PySCF, read in blocks of rows while the block before is used.

The blocks are read into two arrays in turns. New arrays for each block would take longer to be faulted in than to be
read from the system's cache of files.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

import h5py
import numpy as np
from pyscf.df import addons

from trnqc.errors import StorageError
from trnqc.host.arrays import empty


class FileRows:
    """The rows (Q|ij) [naux, pairs] of a file.

    Parameters
    ----------
    file
        Its name, or what else PySCF's DF object has as `_cderi` if the integrals are not in memory.
    name
        The name of the integrals in the file: a dataset, or a group of datasets, each with a range of pairs ij.
    """

    def __init__(self, file: Any, name: str) -> None:
        self._file, self._name = file, name

    @property
    def naux(self) -> int:
        """Number of rows. Raises StorageError."""
        with self._datasets() as datasets:
            return len(datasets[0])

    def blocks(self, rows: int) -> Iterator[np.ndarray]:
        """Yield blocks of at most `rows` rows in order. A block is valid until the next one is asked for.

        Raises
        ------
        StorageError
            If the file cannot be read.
        """
        with self._datasets() as datasets:
            yield from _read_ahead(datasets, rows)

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


def _read_ahead(datasets: Sequence[h5py.Dataset], rows: int) -> Iterator[np.ndarray]:
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

    last = -(-count // rows) - 1
    with ThreadPoolExecutor(1) as reader:
        coming = reader.submit(read, 0)
        for number in range(last + 1):
            block = coming.result()
            if number < last:
                coming = reader.submit(read, number + 1)
            yield block
