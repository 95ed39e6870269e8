"""Arrays on disk: HDF5 for users, rows with checksums for trnqc."""

from __future__ import annotations

import h5py
import numpy as np
import pytest

from trnqc.errors import StorageError
from trnqc.fitted.disk import RowsOnDisk
from trnqc.host.disk_arrays import DiskArray


@pytest.fixture
def rows(tmp_path):
    """(RowsOnDisk of 5 x 3 x 7, what was written to them)."""
    values = np.random.default_rng(1).standard_normal((5, 3, 7))
    stored = RowsOnDisk.create(tmp_path / "B.h5", "B", values.shape)
    for i, row in enumerate(values):
        stored.write(i, row)
    return stored, values


def test_rows_read_as_an_array_does(rows):
    stored, values = rows
    for key in (0, -1, slice(1, 4), slice(None), slice(4, 1), slice(None, None, 2)):
        np.testing.assert_array_equal(stored[key], values[key])
    assert (stored.shape, stored.size, stored.nbytes, len(stored), stored.ndim) == (values.shape, 105, 840, 5, 3)
    with pytest.raises(IndexError):
        stored[5]


def test_any_program_can_read_the_file(rows):
    stored, values = rows
    with h5py.File(stored.path) as file:
        np.testing.assert_array_equal(file["B"][:], values)


def test_a_changed_number_is_found(rows):
    stored, values = rows
    stored.put(2 * 21 + 5, np.nextafter(values[2].flat[5:6], 9))
    assert [stored.holds(i) for i in range(5)] == [True, True, False, True, True]
    with pytest.raises(StorageError, match=r"row 2 of 5 has a wrong checksum.*only this part is computed again"):
        stored[1:4]
    np.testing.assert_array_equal(stored[3:], values[3:])


def test_a_row_that_was_never_written_is_not_there(tmp_path):
    assert not RowsOnDisk.create(tmp_path / "B.h5", "B", (2, 3, 4)).holds(0)


def test_a_file_that_was_cut_off(rows):
    stored, _ = rows
    with stored.path.open("r+b") as stream:
        stream.truncate(stored.path.stat().st_size - 100)
    assert stored.holds(0) and not stored.holds(4)
    with pytest.raises(StorageError, match=r"truncated|not a readable"):
        RowsOnDisk(stored.path, "B", stored.shape)[4]


@pytest.mark.parametrize(
    ("name", "shape", "words"), [("C", (5, 3, 7), "not a readable"), ("B", (5, 3, 8), r"float64 \(5, 3, 8\), found")]
)
def test_another_file(rows, name, shape, words):
    with pytest.raises(StorageError, match=words):
        RowsOnDisk(rows[0].path, name, shape)


def test_no_file_at_all(tmp_path):
    (tmp_path / "text").write_text("not HDF5")
    for name in ("text", "nothing"):
        with pytest.raises(StorageError, match="not a readable HDF5 file"):
            DiskArray(tmp_path / name, "B", (1,))


def test_a_disk_without_the_space_is_said_before_the_work(tmp_path):
    with pytest.raises(StorageError, match="cannot be written"):
        DiskArray.create(tmp_path / "B.h5", "B", (1 << 50,))
    assert list(tmp_path.iterdir()) == []
