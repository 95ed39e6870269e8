"""Results are immutable, keep every digit in JSON, and are never written in part."""

from __future__ import annotations

import copy
import dataclasses
import json
import os
import pickle

import numpy as np
import pytest

import trnqc
from trnqc import DFMP2, MP2Result
from trnqc.errors import InputError, StorageError
from trnqc.mp2.result_parts import BackendComparison, PairRun, square, triangle


@pytest.fixture(scope="module")
def result(reference):
    method = DFMP2(reference("water"), frozen=[0, 23])
    method.kernel()
    other = BackendComparison(
        PairRun("simulator", "somewhere", "asked", "fp32", True), -0.1, -0.2, 1e-9, 1e-9, 2e-9, 1.5
    )
    return dataclasses.replace(method.result, comparisons=(other,), warnings=("mind the gap",))


def test_round_trip_through_a_file(result, tmp_path):
    path = tmp_path / "out.json"
    result.save(path)
    loaded = MP2Result.load(path)
    assert loaded == result
    assert (loaded.e_tot, loaded.e_corr) == (result.e_tot, result.e_corr)
    np.testing.assert_array_equal(loaded.pair_energies.ss, result.pair_energies.ss)
    assert [p.name for p in tmp_path.iterdir()] == ["out.json"]


def test_round_trip_without_a_molecule(factors_like):
    result = trnqc.mp2_energy(*factors_like(3, 5, 11))
    assert MP2Result.from_dict(json.loads(result.to_json())) == result


def test_json_names_schema_units_versions_and_energies(result):
    data = json.loads(result.to_json())
    assert data["schema"] == "trnqc.mp2/1"
    assert data["units"]["energy"] == "Hartree"
    assert data["versions"]["trnqc"] == trnqc.__version__
    assert data["energies"]["e_tot"] == result.e_tot
    assert data["frozen"] == {"occ": [0], "vir": [23], "occ_beta": None, "vir_beta": None}
    assert data["system"]["geometry"]["symbols"] == ["O", "H", "H"]
    assert data["comparisons"][0]["difference_os"] == 1e-9


def test_nothing_can_be_changed(result):
    with pytest.raises(dataclasses.FrozenInstanceError):
        result.e_hf = 0.0
    with pytest.raises(TypeError):
        result.timings["pairs"] = 0.0
    with pytest.raises(TypeError):
        result.system.auxbasis["O"] = "another"


def test_results_travel_between_processes(result):
    assert pickle.loads(pickle.dumps(result)) == result
    assert copy.deepcopy(result) == result


def test_replacing_a_result_keeps_what_was_there_on_failure(result, tmp_path, monkeypatch):
    path = tmp_path / "out.json"
    path.write_text("precious")
    monkeypatch.setattr("os.replace", lambda *args: (_ for _ in ()).throw(OSError("disk full")))
    with pytest.raises(StorageError, match="disk full"):
        result.save(path)
    assert path.read_text() == "precious"
    assert [p.name for p in tmp_path.iterdir()] == ["out.json"]


@pytest.mark.parametrize("error", [KeyboardInterrupt, ValueError])
def test_nothing_is_left_aside_whatever_happens(result, tmp_path, monkeypatch, error):
    monkeypatch.setattr("os.replace", lambda *args: (_ for _ in ()).throw(error))
    with pytest.raises(error):
        result.save(tmp_path / "out.json")
    assert list(tmp_path.iterdir()) == []


def test_what_is_not_a_file_stays(result, tmp_path):
    """Renaming over a device or a pipe would take it away from everybody else."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(StorageError, match="not a regular file"):
        result.save(pipe)
    assert pipe.is_fifo()


def test_folder_that_is_not_there(result, tmp_path):
    with pytest.raises(StorageError, match="cannot be written"):
        result.save(tmp_path / "nowhere" / "out.json")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "not a result"),
        ("{", "not a result"),
        ("[1, 2]", "schema"),
        ('{"schema": "qcschema_output"}', "'qcschema_output'"),
        ('{"schema": "trnqc.mp2/1"}', "damaged"),
    ],
)
def test_foreign_and_damaged_files(tmp_path, text, words):
    path = tmp_path / "out.json"
    path.write_text(text)
    with pytest.raises(InputError, match=words) as error:
        MP2Result.load(path)
    assert str(path) in str(error.value)


@pytest.mark.parametrize("part", ["pairs", "sizes", "run", "error", "e_corr_os", "comparisons"])
def test_a_missing_part_is_damage(result, part):
    data = result.to_dict()
    del data[part]
    with pytest.raises(InputError, match="damaged"):
        MP2Result.from_dict(data)


def test_pairs_that_do_not_fit_the_sizes_are_damage(result):
    data = result.to_dict()
    data["pairs"]["os"][1].append(0.0)
    with pytest.raises(InputError, match="pair energies os of 4"):
        MP2Result.from_dict(data)


def test_missing_file(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        MP2Result.load(tmp_path / "none.json")


@pytest.mark.parametrize("n", [1, 2, 7])
def test_triangle_and_square_are_inverse(n):
    matrix = np.tril(np.random.default_rng(n).standard_normal((n, n)))
    np.testing.assert_array_equal(square(triangle(matrix)), matrix)
