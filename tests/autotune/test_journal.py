"""A journal returns the records that were written, also from a file that was damaged since."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from autotune import journal
from autotune.journal import opened
from autotune.measure import Trial
from trnqc.errors import UnsupportedError

RUN = {"kernel": "gemm", "seed": 3}
GOOD, BAD = Trial("ok", 1234.5, 1e-7, "fine", 0.25), Trial("timeout", detail="not done after 3 s")


def write(where):
    with opened(RUN, where) as book:
        book.add({"rows": 128}, 1.0, GOOD)
        book.add({"rows": 256}, 0.5, BAD)
        return book.path


def read(where, run=RUN):
    with opened(run, where) as book:
        return book.get({"rows": 128}, 1.0), book.get({"rows": 256}, 0.5), book.resumed


def test_trials_come_back(tmp_path):
    write(tmp_path)
    assert read(tmp_path) == (GOOD, BAD, 2)
    assert read(tmp_path) == (GOOD, BAD, 2)


def test_constants_and_fraction_both_count(tmp_path):
    write(tmp_path)
    with opened(RUN, tmp_path) as book:
        assert book.get({"rows": 128}, 0.5) is None and book.get({"rows": 129}, 1.0) is None


def test_fresh_forgets(tmp_path):
    write(tmp_path)
    with opened(RUN, tmp_path, fresh=True) as book:
        assert book.resumed == 0
    assert read(tmp_path) == (None, None, 0)


def test_another_run_has_another_journal(tmp_path):
    write(tmp_path)
    assert read(tmp_path, RUN | {"seed": 4}) == (None, None, 0)
    assert read(tmp_path) == (GOOD, BAD, 2)


def test_a_torn_last_line_costs_that_trial_only(tmp_path):
    path = write(tmp_path)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.warns(RuntimeWarning, match="1 damaged lines; their trials run again"):
        assert read(tmp_path) == (GOOD, None, 1)
    assert read(tmp_path) == (GOOD, None, 1)  # the damage is gone and said once


def test_writing_goes_on_after_a_torn_line(tmp_path):
    path = write(tmp_path)
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.warns(RuntimeWarning), opened(RUN, tmp_path) as book:
        book.add({"rows": 256}, 0.5, BAD)
    assert read(tmp_path) == (GOOD, BAD, 2)


@given(at=st.integers(0, 10**6), byte=st.integers(0, 255))
@settings(deadline=None)
def test_any_damaged_byte_is_noticed_or_harmless(tmp_path_factory, at, byte):
    where = tmp_path_factory.mktemp("journal")
    path = write(where)
    data = bytearray(path.read_bytes())
    data[at % len(data)] = byte
    path.write_bytes(bytes(data))
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        good, bad, _ = read(where)
    assert good in (GOOD, None) and bad in (BAD, None)


@pytest.mark.parametrize("content", [b"", b"\xff\xfe", b"someone else's file\n", b"00000000 {}\n"])
def test_a_foreign_file_is_set_aside(tmp_path, content):
    path = write(tmp_path)
    path.write_bytes(content)
    with pytest.warns(RuntimeWarning, match="is not of this run; it was moved"):
        assert read(tmp_path) == (None, None, 0)
    assert path.with_suffix(".damaged").read_bytes() == content


def test_one_process_at_a_time(tmp_path):
    with (
        opened(RUN, tmp_path),
        pytest.raises(UnsupportedError, match="another process is at this tuning run"),
        opened(RUN, tmp_path),
    ):
        pass


def test_the_cache_directory_is_the_users_choice(tmp_path, monkeypatch):
    monkeypatch.setenv("TRNQC_CACHE_DIR", str(tmp_path))
    assert journal.directory() == tmp_path / "tuning" / "journals"
