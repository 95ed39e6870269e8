"""`trnqc bench`: runs in turns, figures, the page, and the command."""

import json
import os
import subprocess
import sys
from dataclasses import replace
from html.parser import HTMLParser

import pytest

from trnqc import bench
from trnqc.bench import CASES, Contest, Figure, Row, Section, measure, page, runs
from trnqc.bench.figure import duration, faster, spread
from trnqc.bench.runs import LEAST, BenchError, contestants
from trnqc.cli import main
from trnqc.errors import TrnqcError

SMALL = CASES["einsum-small"]
WIN, LOSS = Figure("a < b", "PySCF", 3.0, 1.5, 2.0), Figure("c", "SciPy", 1e-4, 2e-4, 0.5)


@pytest.mark.parametrize(
    ("seconds", "words"),
    [(123.4, "123 s"), (12.34, "12.3 s"), (0.0456, "45.6 ms"), (7.89e-4, "789 µs"), (2e-9, "0.00 µs")],
)
def test_durations_have_three_digits(seconds, words):
    assert duration(seconds) == words


def test_losses_are_called_losses():
    assert faster(2.0) == "2.00 times faster"
    assert faster(0.5) == "2.00 times slower"


def test_a_ratio_is_the_median_of_the_ratios_of_rounds():
    # The machine is three times slower in the second round, which must not change the ratio.
    seconds = {"PySCF": (2.0, 6.0, 2.2), "trnqc": (1.0, 3.0, 1.0)}
    (figure,) = Row("x", "g", "what", ("PySCF",), seconds, seconds, {}, 0.0).figures()
    assert (figure.theirs, figure.ours, figure.ratio, figure.spread) == (2.2, 1.0, 2.0, (2.0, 2.2))
    assert spread(figure) == "2.00 to 2.20"
    assert spread(WIN) == ""


def test_every_case_is_named_once_and_has_two_contestants():
    for name, case in CASES.items():
        assert case.name == name
        assert set(case.contestants) == {case.rival, "trnqc"}


def test_pyscf_runs_with_the_best_kernels_of_its_blas_and_as_installed(monkeypatch):
    monkeypatch.setattr(runs, "fastest_core", lambda: "Haswell")
    monkeypatch.setenv("OPENBLAS_CORETYPE", "SkylakeX")
    ours, best, installed = contestants(CASES["mp2"], threads=3)
    assert (best.name, installed.name) == ("PySCF, Haswell BLAS", "PySCF, as installed")
    assert best.environment()["OPENBLAS_CORETYPE"] == "Haswell"
    for one in (ours, installed):
        assert "OPENBLAS_CORETYPE" not in one.environment()
        assert one.environment()["OMP_NUM_THREADS"] == "3"
    assert [one.name for one in contestants(CASES["hf"], 1)] == ["trnqc", "PySCF, Haswell BLAS"]
    assert [one.name for one in contestants(SMALL, 1)] == ["trnqc", "opt_einsum"]
    monkeypatch.setattr(runs, "fastest_core", lambda: None)
    assert [one.name for one in contestants(CASES["hf"], 1)] == ["trnqc", "PySCF"]


def test_a_case_is_measured_in_processes():
    row = measure(SMALL, 1, budget=0.0)
    assert row.rounds == LEAST == 5
    assert row.difference < SMALL.tolerance
    assert all(seconds > 0 for many in (*row.seconds.values(), *row.cpu_seconds.values()) for seconds in many)
    assert set(row.first_seconds) == set(row.seconds) == {"trnqc", "opt_einsum"}


def test_cases_of_a_group_share_processes():
    with Contest(threads=1) as contest:
        rows = [contest.measure(CASES[name], budget=0.0) for name in ("einsum-small", "einsum-small")]
        workers = dict(contest._workers)
        assert set(workers) == {"trnqc", "opt_einsum"}
        with pytest.raises(BenchError, match="differ"):
            contest.measure(replace(SMALL, tolerance=-1.0), budget=0.0)
        assert contest._workers == workers
        contest.measure(replace(SMALL, group="another"), budget=0.0)
        assert not set(contest._workers.values()) & set(workers.values())
    assert all(row.difference < SMALL.tolerance for row in rows)
    assert all(worker._process.poll() is not None for worker in workers.values())


def test_different_results_are_an_error():
    with pytest.raises(BenchError, match=r"differ by .* at most -1e"):
        measure(replace(SMALL, tolerance=-1.0), 1, budget=0.0)


def test_a_contestant_that_fails_is_named():
    with pytest.raises(BenchError, match="process of trnqc ended with status 1: KeyError: 'nothing'"):
        measure(replace(SMALL, name="nothing"), 1, budget=0.0)


class Checker(HTMLParser):
    """Collects what a page must not have, and checks that every element is closed."""

    def __init__(self):
        super().__init__()
        self.open, self.outside, self.tags = [], [], []

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.outside += [value for name, value in attrs if name in ("src", "href")]
        if tag != "meta":
            self.open.append(tag)

    def handle_startendtag(self, tag, attrs):
        self.tags.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_page_stands_alone_and_counts_losses():
    text = page(
        "Here", {"machine": "<this & that>"}, [Section("One", [WIN, LOSS], {"command": "x"})], ["e3nn is missing."]
    )
    checker = Checker()
    checker.feed(text)
    assert not checker.open
    assert not checker.outside
    assert "script" not in checker.tags
    assert "faster in 1 of 2 comparisons and slower in 1" in text
    # Losses come first: in a section of their own, and then among the others of their section.
    assert text.index("Where trnqc is slower") < text.index("2.00 times slower") < text.index("a &lt; b")
    assert text.count("2.00 times slower</span>") == 2
    assert "&lt;this &amp; that&gt;" in text
    assert "e3nn is missing." in text


def test_a_page_without_losses_says_so_and_links_back():
    text = page("Here", {}, [Section("One", [replace(WIN, spread=(1.9, 2.1))])], back=("index.html", "The documents"))
    assert "slower in 0" in text
    assert "Where trnqc is slower" not in text
    assert "rounds: 1.90 to 2.10" in text
    assert '<a href="index.html">The documents</a>' in text


def test_a_busy_machine_is_refused_unless_asked_for(monkeypatch, capsys):
    monkeypatch.setattr(runs, "load", lambda: 99.0)
    assert main(["bench", "--cases", "einsum-small"]) == 2
    assert "expected an idle machine, found 99.0 running processes" in capsys.readouterr().err


@pytest.mark.parametrize(("used", "found"), [(0.05, 0.0), (0.6, 99.0)])
def test_processes_that_have_ended_do_not_count(monkeypatch, used, found):
    monkeypatch.setattr(os, "getloadavg", lambda: (99.0, 0.0, 0.0))
    monkeypatch.setattr(runs, "_used", lambda seconds: used)
    assert runs.load() == found


def test_the_used_share_of_the_cpus_is_measured():
    process = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        assert 0.5 / (os.cpu_count() or 1) < runs._used(0.5) <= 1.0
    finally:
        process.kill()
        process.wait()


def test_the_command_writes_json_and_a_page(tmp_path, capsys):
    files = tmp_path / "b.json", tmp_path / "b.html"
    options = ["--json", str(files[0]), "--html", str(files[1])]
    status = main(["bench", "--busy", "--cases", "einsum-small", "--threads", "1", *options])
    assert status == 0
    assert "opt_einsum" in capsys.readouterr().out
    record = json.loads(files[0].read_text())
    assert record["rows"][0]["case"] == "einsum-small"
    assert record["rows"][0]["figures"][0]["ratio"] > 0
    assert "opt_einsum" in files[1].read_text()


def test_floors_are_shown_or_why_they_are_not(monkeypatch, capsys):
    monkeypatch.setattr(bench, "CASES", {SMALL.name: SMALL})
    found = {"gflops_of_products": 99.6, "threads": 1, "K": {"wall_s": 3.0, "floor_s": 2.0, "over_floor": 1.5}}
    monkeypatch.setattr(bench.floors, "in_process", lambda *job: found)
    assert main(["bench", "--busy", "--threads", "1"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "Parts of B3LYP/def2-SVP of benzene by trnqc" in shown and "at 100 Gflop/s: K 1.5 times." in shown

    def fail(*job):
        raise TrnqcError("no compiler")

    monkeypatch.setattr(bench.floors, "in_process", fail)
    assert main(["bench", "--busy", "--threads", "1"]) == 0
    shown = " ".join(capsys.readouterr().out.split())
    assert "opt_einsum" in shown and "Parts of a job beside their floors: no compiler" in shown


@pytest.mark.parametrize(
    ("words", "message"),
    [(["--cases", "nothing"], "there is no case nothing"), (["--threads", "0"], "--threads must be positive, got 0")],
)
def test_wrong_options_are_one_line(words, message, capsys):
    assert main(["bench", *words]) == 2
    assert message in capsys.readouterr().err
