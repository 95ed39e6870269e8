"""The page of records has every record, with its ratios as they were written."""

import json

import pytest

from scripts.registry import benchmarks
from scripts.site.benchmarks import MEASURED, sections

SECTIONS = list(sections(MEASURED))


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


@pytest.mark.parametrize("machine", ["xeon"])
def test_ratios_are_those_of_the_record(machine):
    rows = json.loads((MEASURED / machine / "scf.json").read_text())["parts"]["mp2"]["rows"]
    section = next(s for s in SECTIONS if s.heading == f"Hartree-Fock and DF-MP2: {machine}")
    assert [f.ratio for f in section.figures] == [row["ratio"]["scf"]["all"]["wall"] for row in rows]
