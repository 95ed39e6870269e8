"""``trnqc profile`` on the command line: output, files and errors."""

from __future__ import annotations

import json

import pytest

from tests.profiling import samples
from trnqc.cli import main


@pytest.fixture
def path(tmp_path):
    return str(samples.write(tmp_path / "gemm.json", samples.timeline()))


def test_prints_summary_overlap_stalls_and_roofline(path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")
    assert main(["profile", path]) == 0
    text = capsys.readouterr().out
    for part in ("modelled, no device took part", "80.00 %", "55.56 %", "psum_bank", "nc_matmul", "memory bound"):
        assert part in text, part


def test_compares(path, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "140")
    other = samples.write(tmp_path / "b.json", samples.timeline(summary=samples.summary() | {"total_time": 2e-6}))
    assert main(["profile", "--compare", path, str(other)]) == 0
    text = capsys.readouterr().out
    assert "B takes 2.000 of the time of A" in text
    assert "+1 µs" in text


def test_writes_three_files(path, tmp_path, capsys):
    out = [str(tmp_path / name) for name in ("r.html", "t.json", "a.json")]
    assert main(["profile", path, "--quiet", "--html", out[0], "--perfetto", out[1], "--json", out[2]]) == 0
    assert capsys.readouterr().out == ""
    assert (tmp_path / "r.html").read_text().startswith("<!DOCTYPE html>")
    assert json.loads((tmp_path / "a.json").read_text())["schema"] == "trnqc.analysis/1"
    assert main(["profile", out[1]]) == 0
    assert "gemm" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--compare"], "--compare: expected two profiles, found 1"),
        (["--top", "0"], "--top: expected at least 1"),
        (["--html", "/nonexistent/r.html"], "cannot be written: No such file"),
    ],
)
def test_wrong_requests_are_one_line(options, message, path, capsys):
    assert main(["profile", path, *options]) == 2
    error = capsys.readouterr().err
    assert message in error
    assert error.count("\n") == 1


def test_foreign_file_is_one_line(tmp_path, capsys):
    assert main(["profile", str(samples.write(tmp_path / "x.json", {"answer": 42}))]) == 2
    assert "found other JSON: an object with 'answer'" in capsys.readouterr().err
