"""Arrays of fp64 in HDF5 files: made whole before a number is written, read and written past the HDF5 library.

    create: file beside, its one dataset's space taken, renamed ─► DiskArray ─► Rows: B[i0:i1], checked by row

The library lets one thread in at a time and leaves a file unreadable when it is killed in the middle of a change. Here
nothing of the file changes after it was made but numbers in a contiguous dataset, at a place that is known: threads
read and write it by themselves, and any program that reads HDF5 can open it.
"""

from __future__ import annotations

import os
import zlib
from math import prod
from pathlib import Path
from typing import Self

import h5py
import numpy as np

from trnqc.errors import StorageError
from trnqc.host.files import storage_error


class DiskArray:
    """float64 numbers of a dataset, addressed in their order in memory."""

    dtype = np.dtype(np.float64)

    def __init__(self, path: Path, name: str, shape: tuple[int, ...]) -> None:
        """Open what `create` made; StorageError if it is no such file."""
        self.path, self.shape = path, shape
        try:
            with h5py.File(path, "r") as file:
                dataset = file[name]
                self._start = dataset.id.get_offset()
                found = (tuple(dataset.shape), dataset.dtype)
            self._stream = path.open("r+b", buffering=0)
        except (OSError, KeyError) as error:
            raise StorageError(f"{path}: not a readable HDF5 file with the dataset {name!r}: {error}") from error
        if found != (shape, self.dtype) or self._start is None:
            self.close()
            raise StorageError(f"{path}: {name!r} was expected as float64 {shape}, found {found[1]} {found[0]}")

    @classmethod
    def create(cls, path: Path, name: str, shape: tuple[int, ...]) -> Self:
        """A new file whose space on the disk is taken; StorageError, and no file, where there is not so much."""
        aside = path.with_name(f"{path.name}.new")
        try:
            _take_space(aside, 8 * prod(shape))  # before HDF5 finds out, which then cannot close its file
            with h5py.File(aside, "w") as file:
                plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
                plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
                plist.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
                h5py.h5d.create(file.id, name.encode(), h5py.h5t.NATIVE_DOUBLE, h5py.h5s.create_simple(shape), plist)
            _take_space(aside, aside.stat().st_size)
            aside.replace(path)
        except OSError as error:
            aside.unlink(missing_ok=True)
            raise storage_error(path, error) from error
        return cls(path, name, shape)

    @property
    def size(self) -> int:
        return prod(self.shape)

    @property
    def ndim(self) -> int:
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        return 8 * self.size

    def __len__(self) -> int:
        return self.shape[0]

    def get(self, first: int, out: np.ndarray) -> np.ndarray:
        """Fill a contiguous array with the numbers from `first` on."""
        room, at = memoryview(out.data).cast("B"), self._start + 8 * first
        while room:
            count = os.preadv(self._stream.fileno(), [room], at)
            if count == 0:
                raise StorageError(f"{self.path}: ends before its numbers do: it has been cut off")
            room, at = room[count:], at + count
        return out

    def put(self, first: int, values: np.ndarray) -> None:
        """Write a contiguous array from the number `first` on; StorageError where the disk takes no more."""
        data, at = memoryview(values.data).cast("B"), self._start + 8 * first
        try:
            while data:
                count = os.pwrite(self._stream.fileno(), data, at)
                data, at = data[count:], at + count
        except OSError as error:
            raise storage_error(self.path, error) from error

    def close(self) -> None:
        self._stream.close()


class Rows(DiskArray):
    """B[nocc, nvir, naux] on disk: rows are read as B[i] or B[i0:i1], each against the checksum kept in `sums`."""

    def __init__(self, path: Path, name: str, shape: tuple[int, ...]) -> None:
        super().__init__(path, name, shape)
        self.sums: dict[int, int] = {}

    def __getitem__(self, key: int | slice) -> np.ndarray:
        """Errors: StorageError if a row is not what was written, IndexError."""
        if isinstance(key, slice):
            first, last, step = key.indices(len(self))
            rows = np.empty((len(range(first, last, step)), *self.shape[1:]))
            for at, i in enumerate(range(first, last, step)):
                self._row(i, rows[at])
            return rows
        return self._row(range(len(self))[key], np.empty(self.shape[1:]))

    def write(self, i: int, row: np.ndarray) -> int:
        """Write row i; its checksum."""
        self.put(i * row.size, row)
        self.sums[i] = checksum(row)
        return self.sums[i]

    def holds(self, i: int) -> bool:
        """Whether row i is there as it was written."""
        try:
            self[i]
        except StorageError:
            return False
        return True

    def _row(self, i: int, out: np.ndarray) -> np.ndarray:
        if checksum(self.get(i * out.size, out)) != self.sums.get(i):
            raise StorageError(
                f"{self.path}: row {i} of {len(self)} is not what was written there: something else has changed the "
                "file, or the disk fails. Start the job again: with a checkpoint it makes this row anew"
            )
        return out


def _take_space(path: Path, size: int) -> None:
    with path.open("ab") as stream:
        os.posix_fallocate(stream.fileno(), 0, size)


def checksum(values: np.ndarray) -> int:
    """CRC-32 of a contiguous array."""
    return zlib.crc32(memoryview(values.data).cast("B"))
