"""Which tuning record a launch takes, and what it reports about it."""

from pathlib import Path

import pytest

from nki_kernels.descriptors import kernels
from trnqc.errors import InputError
from trnqc.tuning import choice as choosing
from trnqc.tuning import records
from trnqc.tuning.choice import choose
from trnqc.tuning.records import Record
from trnqc.tuning.sources import source_hash

SHAPE = {"nocc": 64, "nvir": 448, "naux": 1536}
MACHINE = {"nki": "0.6.0", "NEURON_CC_FLAGS": ""}


@pytest.fixture
def shelves(tmp_path, monkeypatch):
    """put(origin, group, ...) stores a record on the user's or the shipped shelf."""
    places = {"user": tmp_path / "user", "shipped": tmp_path / "shipped"}
    monkeypatch.setattr(choosing.records, "user_directory", lambda: places["user"])
    monkeypatch.setattr(choosing.records, "shipped_directory", lambda: places["shipped"])

    def put(origin, group, **changed):
        known = kernels()["mp2_energy"]
        base = {
            "kernel": "mp2_energy",
            "source": source_hash(known.module, known.name),
            "target": "trn2",
            "precision": "fp32",
            "shape": SHAPE,
            "measurement": "modelled",
            "instrument": {"model": "a"},
            "point": {"blocks": 1, "chunks": 1, "group": group},
            "time_ns": 1000.0,
            "default_ns": 1200.0,
            "workload": known.workload,
            "search": {},
        } | changed
        base["constants"] = changed.get("constants", {"block": 448, "kchunk": 12, "group": group})
        return records.store(Record(**base), places[origin])

    return put


def group(**where):
    return choose("mp2_energy", **({"shape": SHAPE, "precision": "fp32", "target": "trn2"} | where)).constants["group"]


def test_without_records_the_default_is_taken_and_said(shelves):
    choice = choose("mp2_energy", SHAPE, "fp32", "trn2")
    assert choice.note == "default tiles (no tuning record)" and choice.record is None
    assert choice.constants == kernels()["mp2_energy"].default(SHAPE, "fp32")


def test_user_before_shipped_before_default(shelves):
    shipped = shelves("shipped", 3)
    choice = choose("mp2_energy", SHAPE, "fp32", "trn2")
    assert choice.constants["group"] == 3
    assert choice.note == f"tiles block 448, kchunk 12, group 3 (modelled tuning, shipped record {shipped.name})"
    shelves("user", 4, time_ns=5000.0)
    assert group() == 4


def test_a_device_record_of_this_machine_is_trusted_before_a_modelled_one(shelves):
    shelves("user", 3)
    shelves("user", 4, measurement="device", instrument=MACHINE, time_ns=9000.0)
    assert group(instrument=MACHINE) == 4
    assert group(instrument=MACHINE | {"nki": "0.7.0"}) == 3
    assert group() == 3


@pytest.mark.parametrize("changed", [{"source": "0" * 16}, {"target": "trn1"}, {"precision": "bf16"}])
def test_records_for_something_else_do_not_count(shelves, changed):
    shelves("user", 3, **changed)
    assert choose("mp2_energy", SHAPE, "fp32", "trn2").record is None


def test_a_near_neighbour_is_used_and_named(shelves):
    path = shelves("user", 3)
    choice = choose("mp2_energy", {"nocc": 64, "nvir": 440, "naux": 1500}, "fp32", "trn2")
    assert choice.constants == {"block": 440, "kchunk": 12, "group": 3}
    assert choice.note.startswith("tiles by the nearest record, of nocc 64, nvir 448, naux 1536 (modelled tuning, ")
    assert f"user record {path.name}" in choice.note


def test_the_exact_shape_goes_before_a_users_neighbour(shelves):
    shelves("user", 3, shape={"nocc": 64, "nvir": 449, "naux": 1536})
    shelves("shipped", 4)
    assert group() == 4


def test_the_nearest_neighbour_is_taken(shelves):
    shelves("user", 3, shape={"nocc": 64, "nvir": 500, "naux": 1536})
    shelves("user", 4, shape={"nocc": 64, "nvir": 450, "naux": 1536})
    assert group() == 4


@pytest.mark.parametrize("shape", [(100, 448, 1536), (64, 100, 1536), (64, 448, 6000)])
def test_a_far_neighbour_is_not_used(shelves, shape):
    shelves("user", 3)
    assert choose("mp2_energy", dict(zip(SHAPE, shape)), "fp32", "trn2").record is None


def test_a_point_that_does_not_fit_is_passed_over(shelves):
    shelves("user", 3, point={"blocks": 9, "chunks": 1, "group": 3})
    shelves("shipped", 4)
    assert group() == 4


def test_a_point_of_unknown_knobs_is_passed_over(shelves):
    shelves("user", 3, point={"colour": 1})
    assert choose("mp2_energy", SHAPE, "fp32", "trn2").record is None


def test_a_damaged_record_costs_a_warning_only(shelves):
    path = shelves("user", 3)
    shelves("shipped", 4)
    path.write_text(path.read_text()[:-40])
    with pytest.warns(RuntimeWarning, match="is damaged"):
        assert group() == 4


def test_unknown_kernels_are_refused(shelves):
    with pytest.raises(InputError, match="found 'gem'"):
        choose("gem", SHAPE, "fp32", "trn2")


def test_shipped_records_come_with_the_package():
    assert records.shipped_directory() == Path(records.__file__).parent / "shipped"
