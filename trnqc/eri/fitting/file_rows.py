"""Fitted integrals in a file as rows that threads read when they use them.

`rows[begin:end]` of an open file -> memory of the calling thread, which it keeps for the next rows

J and K take rows of a file as they take rows of an array (jk.py), so that a thread reads while others compute. Rows are
read past HDF5 where they stand in the file one after another, because HDF5 lets one thread read at a time.
"""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any

import h5py
import numpy as np
from pyscf.df import addons

from trnqc.errors import StorageError
from trnqc.host.arrays import empty

# Rows whose squares are added to norms at once.
NEAR = 32


class FileRows:
    """The rows (Q|ij) [naux, pairs] of datasets side by side, each with a range of pairs ij.

    A slice of rows is read into memory of the calling thread, and valid until that thread takes another one. Raises
    StorageError, which names `path`, if rows cannot be read.
    """

    def __init__(self, path: Any, datasets: Sequence[h5py.Dataset]) -> None:
        self._path, self._datasets = path, datasets
        self.shape = (len(datasets[0]), sum(dataset.shape[1] for dataset in datasets))
        self._threads = threading.local()
        self._file = _Consecutive.of(datasets[0]) if len(datasets) == 1 else None

    def __len__(self) -> int:
        return self.shape[0]

    def __getitem__(self, rows: slice) -> np.ndarray:
        first, last, _ = rows.indices(len(self))
        block = self._memory((last - first) * self.shape[1]).reshape(last - first, self.shape[1])
        with _reading(self._path):
            self._read(first, last, block)
        return block

    def _read(self, first: int, last: int, block: np.ndarray) -> None:
        if self._file:
            self._file.read(block, first * self.shape[1])
            return
        end = 0
        for dataset in self._datasets:
            begin, end = end, end + dataset.shape[1]
            if end > begin and last > first:
                dataset.read_direct(block, np.s_[first:last], np.s_[:, begin:end])

    def norms(self) -> np.ndarray:
        """Return sqrt(sum_Q (Q|ij)^2) for all pairs, for which the file is read once."""
        squares = np.zeros(self.shape[1])
        for first in range(0, len(self), NEAR):
            rows = self[first : first + NEAR]
            squares += np.einsum("qp,qp->p", rows, rows)
        return np.sqrt(squares)

    def _memory(self, size: int) -> np.ndarray:
        """Return memory of the calling thread. New memory for each block would take longer than reading it."""
        if getattr(self._threads, "memory", np.empty(0)).size < size:
            self._threads.memory = empty((size,), np.float64)
        memory: np.ndarray = self._threads.memory
        return memory[:size]


class _Consecutive:
    """The elements of a dataset, float64, which stand in a file one after another from the byte `start` on."""

    def __init__(self, path: str, start: int) -> None:
        self._path, self._start = path, start
        self._number = os.open(path, os.O_RDONLY)
        weakref.finalize(self, os.close, self._number)

    @classmethod
    def of(cls, dataset: h5py.Dataset) -> _Consecutive | None:
        """Return the elements of a dataset, or None if they are not consecutive, or may be in memory of HDF5 still."""
        start, file = dataset.id.get_offset(), dataset.file
        plain = start is not None and dataset.dtype == np.float64 and (file.driver, file.mode) == ("sec2", "r")
        return cls(file.filename, start) if plain and hasattr(os, "preadv") else None

    def read(self, out: np.ndarray, first: int) -> None:
        """Read elements from the number `first` on into a contiguous array, and ask for as many after them."""
        place, rest = self._start + 8 * first, out.reshape(-1).data.cast("B")
        if hasattr(os, "posix_fadvise"):
            os.posix_fadvise(self._number, place + len(rest), len(rest), os.POSIX_FADV_WILLNEED)
        while rest:
            count = os.preadv(self._number, [rest], place)
            if not count:
                raise OSError(f"{self._path} ends at byte {place}, where integrals were expected")
            place, rest = place + count, rest[count:]


@contextmanager
def opened(file: Any, name: str) -> Iterator[FileRows]:
    """A context with the rows of a file, or of another object outside of memory that PySCF's DF object has as `_cderi`.

    `name` is that of a dataset in the file, or of a group of datasets, each with a range of pairs. Raises StorageError
    if the file cannot be opened.
    """
    with ExitStack() as stack:
        with _reading(file):
            integrals = stack.enter_context(addons.load(file, name))
            grouped = isinstance(integrals, h5py.Group)
            rows = FileRows(file, [integrals[str(n)] for n in range(len(integrals))] if grouped else [integrals])
        yield rows


@contextmanager
def _reading(file: Any) -> Iterator[None]:
    """A context in which an error of the file system becomes a StorageError that says what to do."""
    try:
        yield
    except OSError as error:
        raise StorageError(
            f"the fitted integrals cannot be read from {file} ({error}): call reset() of the density-fitting "
            "object, which then computes them again"
        ) from error
