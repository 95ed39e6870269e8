"""Records survive concurrent writers, damage, and files of other and newer formats."""

import dataclasses
import json
import multiprocessing

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trnqc.tuning import records
from trnqc.tuning.records import BadRecord, Record


def record(**changed):
    base = Record(
        kernel="gemm",
        source="0123456789abcdef",
        target="trn2",
        precision="fp32",
        shape={"M": 128, "N": 512, "K": 384},
        measurement="modelled",
        instrument={"model": "a"},
        point={"rows": 128},
        constants={"rows": 128, "cols": 512},
        time_ns=1000.0,
        default_ns=1200.0,
        workload="one product",
        search={"method": "exhaustive", "seed": 0},
    )
    return dataclasses.replace(base, **changed)


@given(time=st.floats(1, 1e12), shape=st.dictionaries(st.sampled_from("ZMNK"), st.integers(1, 10**6)))
def test_text_and_record_are_the_same_thing(time, shape):
    one = record(time_ns=time, shape=shape)
    assert records.loads(records.dumps(one)) == one


def test_records_are_readable(tmp_path):
    path = records.store(record(), tmp_path)
    assert path.name.startswith("gemm-trn2-fp32-M128-N512-K384-modelled-")
    assert json.loads(path.read_text())["constants"] == {"rows": 128, "cols": 512}
    assert len(path.read_text().splitlines()) > 15


def test_a_file_in_the_place_of_the_directory_is_a_warning(tmp_path):
    (tmp_path / "records").write_text("not a folder")
    with pytest.warns(RuntimeWarning, match="cannot be read"):
        assert records.read_all(tmp_path / "records") == []


@pytest.mark.parametrize(
    "changed",
    [
        {"kernel": "other"},
        {"source": "f" * 16},
        {"target": "trn1"},
        {"precision": "bf16"},
        {"shape": {"M": 128, "N": 512, "K": 385}},
        {"measurement": "device"},
        {"instrument": {"model": "b"}},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_each_part_of_the_identity_makes_another_record(changed):
    assert record(**changed).key() != record().key()


def test_the_choice_is_not_part_of_the_identity():
    assert record(constants={"rows": 256}, time_ns=5.0).key() == record().key()


def test_the_better_record_stays(tmp_path):
    for time in (1000.0, 800.0, 900.0):
        path = records.store(record(time_ns=time), tmp_path)
    assert [r.time_ns for _, r in records.read_all(tmp_path)] == [800.0]
    assert path.exists() and not list(tmp_path.glob("*.part"))


@pytest.mark.parametrize(
    "text, problem",
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("\x00\xff", "not JSON"),
        ("[]", "found list"),
        ('{"a": 1}', "found None"),
        (records.dumps(record()).replace("1000.0", "1.0"), "truncated or edited"),
    ],
)
def test_damage_is_named(text, problem):
    with pytest.raises(BadRecord, match=problem):
        records.loads(text)


def test_a_damaged_file_is_set_aside_and_the_rest_is_read(tmp_path):
    good = records.store(record(), tmp_path)
    bad = tmp_path / "gemm-broken.json"
    bad.write_bytes(good.read_bytes()[:100])
    (tmp_path / "gemm-binary.json").write_bytes(b"\xff\xfe\x00")
    with pytest.warns(RuntimeWarning, match="is damaged .*moved to gemm-.*damaged"):
        result = records.read_all(tmp_path, "gemm")
    assert [path for path, _ in result] == [good]
    assert not bad.exists() and bad.with_suffix(".damaged").exists()
    assert [path for path, _ in records.read_all(tmp_path, "gemm")] == [good]


def test_a_shipped_file_is_never_moved(tmp_path):
    bad = tmp_path / "gemm-broken.json"
    bad.write_text("{")
    with pytest.warns(RuntimeWarning, match="it is not used"):
        assert records.read_all(tmp_path, "gemm", writable=False) == []
    assert bad.exists()


def test_records_of_a_newer_version_are_left_alone(tmp_path):
    newer = tmp_path / "gemm-newer.json"
    newer.write_text(json.dumps({"schema": "trnqc.tuning/2", "anything": 1}))
    assert records.read_all(tmp_path, "gemm") == []
    assert newer.exists()


def test_other_files_are_left_alone(tmp_path):
    notes = tmp_path / "notes.txt"
    notes.write_text("mine")
    assert records.read_all(tmp_path) == [] and notes.exists()


def test_no_directory_is_no_record(tmp_path):
    assert records.read_all(tmp_path / "none") == []


def test_the_cache_directory_is_the_users_choice(tmp_path, monkeypatch):
    monkeypatch.setenv("TRNQC_CACHE_DIR", str(tmp_path))
    assert records.user_directory() == tmp_path / "tuning" / "records"


def write_many(directory, first):
    for time in range(first, first + 40):
        records.store(record(time_ns=float(time)), directory)


def test_concurrent_writers_keep_the_best(tmp_path):
    context = multiprocessing.get_context("spawn")
    firsts = (500, 100)
    writers = [context.Process(target=write_many, args=(tmp_path, first)) for first in firsts]
    for writer in writers:
        writer.start()
    while any(writer.is_alive() for writer in writers):
        assert all(r.kernel == "gemm" for _, r in records.read_all(tmp_path))
    for writer in writers:
        writer.join()
        assert writer.exitcode == 0
    assert [r.time_ns for _, r in records.read_all(tmp_path)] == [100.0]


def test_shipped_records_are_sound():
    """Readable, of known kernels, within the rules of their target."""
    from nki_kernels.descriptors import kernels

    result = records.read_all(records.shipped_directory(), writable=False)
    assert len(result) == len(list(records.shipped_directory().glob("*.json"))) > 0
    for path, one in result:
        known = kernels()[one.kernel]
        assert path.name == one.file_name() and one.time_ns <= one.default_ns
        if one.point:
            assert known.realise(one.point, one.shape, one.precision, one.target) == one.constants


def test_shipped_records_fit_the_kernels_of_today():
    """A record of another source is never used: `python -m scripts.bench_autotune --stale` replaces it."""
    from nki_kernels.descriptors import kernels
    from trnqc.tuning.sources import kernel_hash

    sources = {name: kernel_hash(kernel) for name, kernel in kernels().items()}
    shipped = records.read_all(records.shipped_directory(), writable=False)
    stale = [path.name for path, one in shipped if one.source != sources[one.kernel]]
    assert not stale, "run python -m scripts.bench_autotune --stale"
