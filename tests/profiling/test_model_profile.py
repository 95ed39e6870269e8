"""From a kernel to its profile: the script that writes timelines, and the reader of timelines."""

from __future__ import annotations

import pytest

from scripts.model.profile import main
from trnqc.profiling import activity, read
from trnqc.profiling.page import page
from trnqc.profiling.writers import trace


@pytest.fixture(scope="module")
def profile(tmp_path_factory):
    out = tmp_path_factory.mktemp("profile") / "gemm.json"
    assert main(["gemm", "--shape", "256,513,384", "--target", "trn2", "--every", "--out", str(out)]) == 0
    return read(out)[0]


def test_the_timeline_is_read_as_it_was_written(profile):
    assert (profile.title, profile.measurement, profile.target) == ("gemm 256 x 513 x 384, fp32", "modelled", "trn2")
    assert activity.unlisted(profile) is None


def test_events_and_summary_agree(profile):
    """The simulator's sums and interval arithmetic on its events; events show hidden operand loads too."""
    rows = {row.engine: row for row in activity.activities(profile)}
    for engine in ("tensor", "vector"):
        busy = profile.number(f"{engine}_engine_busy_time")
        assert rows[engine].active * 1e-9 == pytest.approx(busy, rel=0.02), engine
    assert profile.span[1] * 1e-9 == pytest.approx(profile.number("total_time"), rel=0.02)


def test_the_command_stays_with_the_profile(profile):
    assert profile.provenance["command"].startswith("python -m scripts.model.profile gemm --shape 256,513,384")


def test_it_can_be_shown_and_exported(profile):
    assert "gemm 256 x 513 x 384, fp32" in page([profile])
    assert '"nc_matmul"' in trace(profile)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--shape", "12"], "a shape of gemm is"),
        (["--shape", "1,1,1", "--set", "tiles=3"], "--set: expected one of rows"),
    ],
)
def test_wrong_requests(options, message, tmp_path, capsys):
    assert main(["gemm", *options, "--out", str(tmp_path / "x.json")]) == 2
    assert message in capsys.readouterr().err
