"""Rows of fitted integrals in HDF5 files, with a checksum for every row."""

from __future__ import annotations

import zlib
from pathlib import Path

import numpy as np

from trnqc.errors import StorageError
from trnqc.host.disk_arrays import DiskArray


class RowsOnDisk(DiskArray):
    """B[nocc, nvir, naux] on disk, read as B[i] or B[i0:i1], with a checksum of each written row, which is verified."""

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
        return verified(self.get(i * out.size, out), self.checksums.get(i), f"{self.path}: row {i} of {len(self)}")


def checksum(values: np.ndarray) -> int:
    """CRC-32 of a contiguous array."""
    return zlib.crc32(memoryview(values.data).cast("B"))


def verified(values: np.ndarray, expected: int | None, what: str) -> np.ndarray:
    """Return values that have been read if they have the expected checksum; raise StorageError otherwise."""
    if checksum(values) != expected:
        raise StorageError(
            f"{what} has a wrong checksum: another program has changed the file, or the disk fails. Start the job "
            "again: with a checkpoint only this part is computed again"
        )
    return values
