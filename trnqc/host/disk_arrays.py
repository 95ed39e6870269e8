"""fp64 arrays in HDF5 files, which threads read and write without the HDF5 library.

    DiskArray.create: new file, space of its one dataset allocated, renamed into place ─► numbers by their position
    added_to: space of a dataset beside others in a file ─► numbers ─► the dataset gets its name

The HDF5 library serves one thread at a time, and a process that is killed while it changes a file leaves the file
unreadable. Therefore only the numbers of one contiguous dataset change after it has been created. Threads know
their offset in the file and use system calls, and any program that reads HDF5 can open the file.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from math import prod
from pathlib import Path
from typing import Self

import h5py
import numpy as np

from trnqc.errors import StorageError
from trnqc.host.files import replacing, storage_error

# Bytes that HDF5 may need in a file for the description of one more dataset.
DESCRIPTION = 1 << 16


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
                _create_dataset(file, name, shape)
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

    def put_columns(self, first: int, block: np.ndarray) -> None:
        """Write columns [rows, m] of a matrix, of which `first` is the number of the first one. Raises StorageError."""
        for number, row in enumerate(block):
            self.put(number * self.shape[1] + first, row)

    def close(self) -> None:
        """Close the file."""
        self._stream.close()


@contextmanager
def added_to(path: Path, name: str, shape: tuple[int, ...]) -> Iterator[DiskArray]:
    """A context whose block writes the numbers of a new dataset of a file, beside others that the file may have.

    The dataset gets its name when the block ends. If the block raises an exception, or the process is killed, no
    dataset of that name is in the file; after an exception the file is as small as without it. A dataset or group that
    has the name before is removed first.

    Parameters
    ----------
    path
        An HDF5 file, an empty file, or none yet.
    name
        The name of the dataset; slashes stand for groups.
    shape
        Its shape.

    Raises
    ------
    StorageError
        If the file is of another kind, or cannot be written. A disk that is too small is noticed before the block.
    """
    size = path.stat().st_size if path.exists() else None
    if size and not h5py.is_hdf5(path):
        raise StorageError(f"{path}: expected an HDF5 file or none, found a file of another kind: name another file")
    unfinished = f"{name}.unfinished"
    try:
        _make_room(path, 8 * prod(shape) + DESCRIPTION, name, unfinished)
        with h5py.File(path, "a") as file:  # HDF5 gives back what it does not need when it closes the file.
            _create_dataset(file, unfinished, shape)
        array = DiskArray(path, unfinished, shape)
        try:
            yield array
        finally:
            array.close()
        with h5py.File(path, "a") as file:
            file.move(unfinished, name)
    except BaseException as error:
        with suppress(OSError):
            _restore(path, size, unfinished)
        if isinstance(error, OSError) and not isinstance(error, StorageError):
            raise storage_error(path, error) from error
        raise


def _create_dataset(file: h5py.File, name: str, shape: tuple[int, ...]) -> None:
    """Create a contiguous dataset, and the groups of its name. It has its place in the file at once, but no numbers."""
    place, link = h5py.h5p.create(h5py.h5p.DATASET_CREATE), h5py.h5p.create(h5py.h5p.LINK_CREATE)
    place.set_alloc_time(h5py.h5d.ALLOC_TIME_EARLY)
    place.set_fill_time(h5py.h5d.FILL_TIME_NEVER)
    link.set_create_intermediate_group(True)
    h5py.h5d.create(file.id, name.encode(), h5py.h5t.NATIVE_DOUBLE, h5py.h5s.create_simple(shape), place, link)


def _make_room(path: Path, needed: int, *names: str) -> None:
    """Make `path` an HDF5 file without datasets of these names, and with room for as many bytes at its end."""
    _remove_datasets(path, *names)
    size = path.stat().st_size
    try:
        _allocate(path, size + needed)
    except OSError:
        os.truncate(path, size)
        raise


def _remove_datasets(path: Path, *names: str) -> None:
    """Remove the datasets or groups of these names that a file has. If there is no file, or an empty one, make one."""
    with h5py.File(path, "a" if path.exists() and path.stat().st_size else "w") as file:
        for name in names:
            if name in file:
                del file[name]


def _restore(path: Path, size: int | None, name: str) -> None:
    """Remove a dataset from a file that had `size` bytes before, or was missing."""
    if size is None:
        path.unlink()
    elif size == 0:
        os.truncate(path, 0)
    else:
        _remove_datasets(path, name)


def _allocate(path: Path, size: int) -> None:
    with path.open("ab") as stream:
        os.posix_fallocate(stream.fileno(), 0, size)
