"""The page of records has every record, with its ratios as they were written."""

import json
from collections import Counter

import pytest

from scripts.bench_sparse import PROGRAMS
from scripts.registry import benchmarks
from scripts.site import benchmarks as site
from scripts.site.benchmarks import MEASURED, recorded, sections
from trnqc.bench import Figure, Section

EVERY = list(sections(MEASURED))
SECTIONS = [section for section, _ in EVERY]


def test_every_source_has_figures():
    headings = {section.heading.partition(":")[0] for section in SECTIONS}
    shown = {
        heading: list(MEASURED.glob(f"*/{one.record}*.json"))
        for _, one in benchmarks()
        for heading, _ in one.shown.values()
    }
    assert headings == {heading for heading, records in shown.items() if records}


def test_every_figure_is_positive_and_every_section_can_be_repeated():
    for section in SECTIONS:
        assert section.facts["newest command"].startswith("python ")
        assert all(min(figure.theirs, figure.ours, figure.ratio) > 0 for figure in section.figures)


def test_contestants_are_programs_and_not_plans_of_ours():
    known = {"PySCF", "Psi4 1.3.2", "e3nn", "symmetrix", "opt_einsum", *PROGRAMS.values()}
    assert Counter(figure.rival for section in SECTIONS for figure in section.figures).keys() <= known


def test_what_was_measured_beside_other_work_is_named_and_not_shown(monkeypatch):
    quiet, busy = Section("Quiet", [Figure("a", "PySCF", 2.0, 1.0, 2.0)]), Section("Busy", [], {"record": "b.json"})
    monkeypatch.setattr(site, "sections", lambda _: iter([(quiet, False), (busy, True)]))
    text = recorded(MEASURED)
    assert "Busy (b.json): other processes used the CPUs" in text
    assert "<h2>Quiet</h2>" in text
    assert "<h2>Busy</h2>" not in text
    assert 'href="benchmarks/index.html"' in text


@pytest.mark.parametrize("machine", ["xeon"])
def test_ratios_are_those_of_the_record(machine):
    rows = json.loads((MEASURED / machine / "scf.json").read_text())["parts"]["mp2"]["rows"]
    section = next(s for s in SECTIONS if s.heading == f"Hartree-Fock and DF-MP2: {machine}")
    ratios = {
        "PySCF": [row["ratio"]["scf"]["all"]["wall"] for row in rows],
        "Psi4 1.3.2": [row["Psi4"]["ratio"]["scf"]["wall"] for row in rows if "Psi4" in row],
    }
    for rival, expected in ratios.items():
        assert [f.ratio for f in section.figures if f.rival == rival] == expected
