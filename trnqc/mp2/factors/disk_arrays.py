"""fp64 arrays in HDF5 files, which threads read and write without the HDF5 library.

    create: new file, space of its one dataset allocated, renamed into place ─► DiskArray ─► RowsOnDisk: B[i0:i1]

The HDF5 library serves one thread at a time, and a process that is killed while it changes a file leaves the file
unreadable. Therefore only the numbers of one contiguous dataset change after the file has been created. Threads know
their offset in the file and use system calls, and any program that reads HDF5 can open the file.
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
from trnqc.host.files import replacing, storage_error


class DiskArray:
    """The float64 numbers of a dataset, addressed by their position in C order."""

    dtype = np.dtype(np.float64)

    def __init__(self, path: Path, name: str, shape: tuple[int, ...]) -> None:
        """Open a file that `create` has written. Raises StorageError if it is another kind of file."""
        self.path, self.shape = path, shape
        try:
            with h5py.File(path, "r") as file:
                dataset = file[name]
                self._start = dataset.id.get_offset()
                stored = (tuple(dataset.shape), dataset.dtype)
            self._stream = path.open("r+b", buffering=0)
        except (OSError, KeyError) as error:
            raise StorageError(f"{path}: not a readable HDF5 file with the dataset {name!r}: {error}") from error
        if stored != (shape, self.dtype) or self._start is None:
            self.close()
            raise StorageError(f"{path}: {name!r} was expected as float64 {shape}, found {stored[1]} {stored[0]}")

    @classmethod
    def create(cls, path: Path, name: str, shape: tuple[int, ...]) -> Self:
        """Create a file and allocate its space. Raises StorageError if the disk is full, and then leaves no file."""
        with replacing(path, path.with_name(f"{path.name}.new")) as aside:
            _allocate(aside, 8 * prod(shape))  # HDF5 fails to close a file if the disk is full.
            with h5py.File(aside, "w") as file:
                plist = h5py.h5p.create(h5py.h5p.DATASET_CREATE)
                plist.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
                plist.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
                h5py.h5d.create(file.id, name.encode(), h5py.h5t.NATIVE_DOUBLE, h5py.h5s.create_simple(shape), plist)
            _allocate(aside, aside.stat().st_size)
        return cls(path, name, shape)

    @property
    def size(self) -> int:
        """Number of elements."""
        return prod(self.shape)

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return len(self.shape)

    @property
    def nbytes(self) -> int:
        """Bytes on the disk."""
        return 8 * self.size

    def __len__(self) -> int:
        return self.shape[0]

    def get(self, first: int, out: np.ndarray) -> np.ndarray:
        """Read the numbers from position `first` on into a contiguous array, and return it."""
        left, at = memoryview(out.data).cast("B"), self._start + 8 * first
        while left:
            count = os.preadv(self._stream.fileno(), [left], at)
            if count == 0:
                raise StorageError(f"{self.path}: the file has been truncated")
            left, at = left[count:], at + count
        return out

    def put(self, first: int, values: np.ndarray) -> None:
        """Write a contiguous array from position `first` on. Raises StorageError if the disk is full."""
        data, at = memoryview(values.data).cast("B"), self._start + 8 * first
        try:
            while data:
                count = os.pwrite(self._stream.fileno(), data, at)
                data, at = data[count:], at + count
        except OSError as error:
            raise storage_error(self.path, error) from error

    def close(self) -> None:
        """Close the file."""
        self._stream.close()


class RowsOnDisk(DiskArray):
    """B[nocc, nvir, naux] on disk, read as B[i] or B[i0:i1]. The checksum of every row is verified.

    Attributes
    ----------
    checksums
        The checksum of each row that has been written.
    """

    def __init__(self, path: Path, name: str, shape: tuple[int, ...]) -> None:
        super().__init__(path, name, shape)
        self.checksums: dict[int, int] = {}

    def __getitem__(self, key: int | slice) -> np.ndarray:
        """Read rows. Raises StorageError if a checksum is wrong, IndexError if there is no such row."""
        if isinstance(key, slice):
            first, last, step = key.indices(len(self))
            rows = np.empty((len(range(first, last, step)), *self.shape[1:]))
            for at, i in enumerate(range(first, last, step)):
                self._row(i, rows[at])
            return rows
        return self._row(range(len(self))[key], np.empty(self.shape[1:]))

    def write(self, i: int, row: np.ndarray) -> int:
        """Write row i and return its checksum."""
        self.put(i * row.size, row)
        self.checksums[i] = checksum(row)
        return self.checksums[i]

    def holds(self, i: int) -> bool:
        """Whether row i has been written and its checksum is right."""
        try:
            self[i]
        except StorageError:
            return False
        return True

    def _row(self, i: int, out: np.ndarray) -> np.ndarray:
        if checksum(self.get(i * out.size, out)) != self.checksums.get(i):
            raise StorageError(
                f"{self.path}: row {i} of {len(self)} has a wrong checksum: another program has changed the file, or "
                "the disk fails. Start the job again: with a checkpoint only this row is computed again"
            )
        return out


def _allocate(path: Path, size: int) -> None:
    with path.open("ab") as stream:
        os.posix_fallocate(stream.fileno(), 0, size)


def checksum(values: np.ndarray) -> int:
    """CRC-32 of a contiguous array."""
    return zlib.crc32(memoryview(values.data).cast("B"))
