"""The parts, the rows and the figure of `scripts.bench_scf`."""

from __future__ import annotations

import argparse
import time
from typing import Any

import pytest

from scripts import bench_scf
from scripts.bench_scf import BENCHMARK, CASES, medians, part_of, ratios
from scripts.scf.job import REST, Clock, molecule, mp2, scf_object, watch
from scripts.scf.plot import COLOURS, SHORT, plot, short_plot
from scripts.scf.size_plot import LINES, size_plot
from trnqc.pyscf.early.precision import why_not


def test_a_part_inside_another_is_counted_once() -> None:
    clock = Clock()
    inner = clock.timed("J and K", lambda: time.sleep(0.03))
    clock.timed("XC", lambda: [time.sleep(0.01), inner()])()
    rows = clock.end()
    assert rows["J and K"]["wall_s"] >= 0.03
    assert 0.01 <= rows["XC"]["wall_s"] < rows["J and K"]["wall_s"] + rows["XC"]["wall_s"]
    assert rows["all"]["wall_s"] == pytest.approx(sum(rows[part]["wall_s"] for part in (REST, "XC", "J and K")))
    assert rows["XC"]["calls"] == rows["J and K"]["calls"] == 1
    assert set(clock.end()) == {REST, "all"}


def test_timed_methods_are_not_the_users(monkeypatch: pytest.MonkeyPatch) -> None:
    mf = scf_object("trnqc", molecule("water", "sto-3g"), "hf", "fitted")
    monkeypatch.setattr(type(mf), "get_fock", type(mf).get_fock)  # The end of the test restores the class.
    watch(Clock(), type(mf), {"get_fock": "DIIS"})
    assert hasattr(type(mf).get_fock, "__wrapped__")
    assert not why_not(mf, None)


@pytest.mark.slow
def test_mp2_of_both_contestants_is_that_of_one_basis() -> None:
    mol = molecule("water", "cc-pvdz")
    ours, theirs = (mp2(who, mol)(scf_object(who, mol, "mp2", "fitted").run()) for who in ("trnqc", "PySCF"))
    assert ours == pytest.approx(theirs, abs=1e-8) and ours < -0.1


def test_open_shells_are_cations() -> None:
    mol = molecule("water", "sto-3g", charge=1)
    assert (mol.nelectron, mol.spin) == (9, 1)
    assert [type(scf_object("PySCF", mol, name, "fitted")).__name__ for name in ("uhf", "rohf")] == ["DFUHF", "DFROHF"]


def test_each_case_belongs_to_one_part() -> None:
    assert {part: {part_of(case) for case in cases} for part, cases in CASES.items()} == {
        part: {part} for part in CASES
    }


@pytest.mark.parametrize("who", ["PySCF", "trnqc"])
def test_fitted_integrals_on_disk(who: str) -> None:
    mf = scf_object(who, molecule("water", "sto-3g"), "hf", "disk")
    assert mf.max_memory == mf.with_df.max_memory
    mf.kernel()
    assert isinstance(mf.with_df._cderi, str)


def test_what_the_record_has_is_left_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bench_scf, "compare", lambda case, threads, *_: {"case": case, "threads": threads})
    asked = argparse.Namespace(cases=CASES["scaling"][:2], quick=False, threads=[1, 2], rounds=1, no_gradient=True)
    asked.measured = {(CASES["scaling"][0], 2)}
    for missing, count in ((False, 4), (True, 3)):
        asked.missing = missing
        rows = list(bench_scf.rows_of("scaling", asked))
        assert len(rows) == count
    assert {"case": CASES["scaling"][0], "threads": 2} not in rows


def test_clusters_are_those_of_the_scaling_benchmark() -> None:
    assert molecule("water2", "sto-3g").natm == 6
    assert molecule("benzene", "sto-3g").natm == 12


def parts(xc: float) -> dict[str, dict[str, float]]:
    rows = {"XC": xc, "rest": 1.0, "all": xc + 1.0}
    return {part: {"wall_s": seconds, "cpu_s": seconds} for part, seconds in rows.items()}


def test_rows_replace_those_of_the_same_case_and_are_drawn() -> None:
    runs = {"PySCF": [{"scf": parts(x)} for x in (8.0, 4.0, 6.0)], "trnqc": [{"scf": parts(2.0)}] * 3}
    ratio = ratios(runs, "scf")
    assert ratio["XC"] == {"wall": 3.0, "cpu": 3.0}
    seconds = {who: medians([run["scf"] for run in many]) for who, many in runs.items()}
    assert seconds["PySCF"]["all"]["wall_s"] == 7.0
    row = {"case": "water/sto-3g/pbe/fitted", "threads": 1, "seconds": {"scf": seconds}}
    record: dict = {"parts": {}}
    for new in (row, row | {"rounds": 2}, row | {"threads": 2}):
        BENCHMARK.enter(record, "jobs", [new])
    rows = record["parts"]["jobs"]["rows"]
    assert [(r["threads"], r.get("rounds")) for r in rows] == [(1, 2), (2, None)]
    figure = plot(record)
    assert figure.count("<rect") == len(COLOURS) * (1 + 2 * 2)
    assert "7.0 s" in figure and "3.0 s" in figure


def test_the_short_figure_has_the_rows_of_the_record_that_it_names() -> None:
    seconds = {who: {"XC": {"wall_s": wall}, "all": {"wall_s": wall}} for who, wall in (("PySCF", 7.0), ("trnqc", 2.0))}
    case = next(iter(SHORT))[0]
    rows = [{"case": name, "threads": 2, "seconds": {"scf": seconds}} for name in (case, "another")]
    figure = short_plot({"parts": {"jobs": {"rows": rows}}})
    assert SHORT[case, "scf"] in figure and "another" not in figure
    assert figure.count("<rect") == len(COLOURS) * (1 + 2)
    assert "2.0 s (3.5 times as fast)" in figure


def test_the_figure_of_time_over_size_names_exponents() -> None:
    def row(nao: int) -> dict[str, Any]:
        parts = {part: {"wall_s": 1e-6 * nao**3} for _, part, _ in LINES}
        return {"nao": nao, "threads": 2, "seconds": {"scf": {"PySCF": parts, "trnqc": parts}}}

    figure = size_plot({"parts": {"scaling": {"rows": [row(240), row(120), row(480)]}}})
    assert figure.count("n^3.0") == len(LINES) == figure.count("<polyline")
    assert size_plot({"parts": {"scaling": {"rows": [row(240)]}}}) == ""
    assert size_plot({"parts": {}}) == ""
