"""Datasets added to HDF5 files: beside others, complete or not there, without losing space."""

from __future__ import annotations

import h5py
import numpy as np
import pytest

from trnqc.errors import StorageError
from trnqc.host.disk_arrays import added_to

VALUES = np.random.default_rng(1).standard_normal((5, 7))


def write(path, name="group/values", widths=(3, 4)):
    with added_to(path, name, VALUES.shape) as array:
        begin = 0
        for width in widths:
            array.put_columns(begin, np.ascontiguousarray(VALUES[:, begin : begin + width]))
            begin += width


@pytest.mark.parametrize("before", ["nothing", "an empty file", "a file with another dataset"])
def test_any_program_can_read_it(tmp_path, before):
    path = tmp_path / "file.h5"
    if before == "an empty file":
        path.touch()
    if before.endswith("dataset"):
        with h5py.File(path, "w") as file:
            file["other"] = np.arange(4)
    write(path)
    with h5py.File(path) as file:
        np.testing.assert_array_equal(file["group/values"], VALUES)
        assert list(file["group"]) == ["values"]
        assert ("other" in file) == before.endswith("dataset")


@pytest.mark.parametrize("kind", ["dataset", "group"])
def test_the_same_name_again_needs_no_more_space(tmp_path, kind):
    path = tmp_path / "file.h5"
    if kind == "group":
        with h5py.File(path, "w") as file:
            file["group/values/0"] = np.zeros(100)
    for _ in range(4):
        with added_to(path, "group/values", (1000, 1000)) as array:
            array.put_columns(999, np.ones((1000, 1)))
    assert path.stat().st_size < 8_000_000 + 30_000
    write(path)
    with h5py.File(path) as file:
        np.testing.assert_array_equal(file["group/values"], VALUES)


@pytest.mark.parametrize("before", ["nothing", "an empty file", "a file with another dataset"])
@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt, OSError])
def test_an_exception_leaves_what_was_there(tmp_path, before, error):
    path = tmp_path / "file.h5"
    if before == "an empty file":
        path.touch()
    if before.endswith("dataset"):
        with h5py.File(path, "w") as file:
            file["other"] = np.arange(4)
    with (
        pytest.raises(StorageError if error is OSError else error),
        added_to(path, "values", (1000, 1000)) as array,
    ):
        array.put_columns(0, np.zeros((3, 5)))
        raise error
    assert path.exists() == (before != "nothing")
    if before == "an empty file":
        assert path.stat().st_size == 0
    if before.endswith("dataset"):
        assert path.stat().st_size < 100_000
        with h5py.File(path) as file:
            assert list(file) == ["other"]


def test_a_job_that_is_killed_leaves_no_dataset_of_that_name(tmp_path):
    path = tmp_path / "file.h5"
    with added_to(path, "values", VALUES.shape), h5py.File(path) as file:
        assert "values" not in file
    write(path, "values")


@pytest.mark.parametrize("before", ["nothing", "a file with another dataset"])
def test_a_disk_without_the_space_is_said_before_the_work(tmp_path, before):
    path = tmp_path / "file.h5"
    if before.endswith("dataset"):
        with h5py.File(path, "w") as file:
            file["other"] = np.arange(4)
    with pytest.raises(StorageError, match="cannot be written"), added_to(path, "values", (1 << 25, 1 << 25)):
        pytest.fail("the block began")
    assert path.exists() == (before != "nothing")
    if path.exists():
        assert path.stat().st_size < 100_000
