"""The registry of benchmarks: entries, commands, and how rows enter a record."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
import sys
from pathlib import Path
from pkgutil import resolve_name
from typing import Any

import pytest
from rich.table import Table

from scripts import ROOT, vectors
from scripts.bench_contract import SECTIONS
from scripts.registry import Benchmark, Rows, benchmarks, main, number, wanted

ALL = dict(benchmarks())
PEERS = ("torch", "e3nn", "opt_einsum", "cotengra", "geometric", "ase", "optuna", "mace", "pytest", "hypothesis")
COMMAND = r"python -m scripts\.[\w.]+[^\"`\n\[(…]*"


@pytest.fixture(autouse=True)
def in_this_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vectors, "keep_to", lambda *_: None)


def counted(asked: Any) -> Rows:
    for case in asked.cases:
        if not hasattr(asked, "missing") or wanted(asked, case):
            yield {"case": case, "rounds": asked.rounds}


OPTIONS = {"--cases": {"nargs": "+", "default": ["a", "b"]}, "--rounds": number(1)}


def measured(benchmark: Benchmark, path: Path, *words: str) -> dict[str, Any]:
    assert main(benchmark, [*words, "--out", str(path)]) == 0
    return dict(json.loads(path.read_text()))


@pytest.mark.parametrize("command", ALL)
def test_every_command_has_its_help_and_is_the_only_writer_of_its_record(command: str) -> None:
    benchmark = ALL[command]
    assert f"python -m {command} " in benchmark.parser().format_help()
    writers = [(one.folder, one.record, one.device is None) for one in ALL.values()]
    assert writers.count((benchmark.folder, benchmark.record, benchmark.device is None)) == 1
    assert set(benchmark.shown) | set(benchmark.apart) <= set(benchmark.parts)


def test_every_module_with_an_entry_is_listed() -> None:
    found = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__main__")
        for path in (ROOT / "scripts").rglob("*.py")
        if "\nBENCHMARK = Benchmark(" in path.read_text(encoding="utf-8")
    }
    assert found == set(ALL)


@pytest.mark.parametrize("command", [name for name, one in ALL.items() if one.keys])
def test_rows_of_records_can_be_told_apart(command: str) -> None:
    benchmark = ALL[command]
    for path in (ROOT / "profiles" / "measured").glob(f"*/{benchmark.record}.json"):
        record = json.loads(path.read_text(encoding="utf-8"))
        for part in record.get("parts", benchmark.parts):
            rows = benchmark.rows_of(record, part)
            assert len({benchmark.identity(row) for row in rows}) == len(rows)


def test_without_keys_a_part_takes_the_place_of_the_old_one(tmp_path: Path) -> None:
    benchmark = Benchmark("x", "", {"one": counted, "two": counted}, OPTIONS, facts=lambda asked: {"fact": 7})
    measured(benchmark, tmp_path / "x.json")
    record = measured(benchmark, tmp_path / "x.json", "--parts", "two", "--cases", "c")
    assert [row["case"] for row in record["parts"]["one"]["rows"]] == ["a", "b"]
    assert [row["case"] for row in record["parts"]["two"]["rows"]] == ["c"]
    assert record["parts"]["two"]["fact"] == 7 and {"command", "date", "machine"} <= set(record["parts"]["two"])


def test_with_keys_a_row_takes_the_place_of_its_own_and_others_are_kept(tmp_path: Path) -> None:
    benchmark = Benchmark("x", "", {"one": counted}, OPTIONS, keys=("case",), place=("", "results"))
    measured(benchmark, tmp_path / "x.json")
    record = measured(benchmark, tmp_path / "x.json", "--cases", "c", "a", "--rounds", "2")
    assert [(row["case"], row["rounds"]) for row in record["results"]] == [("a", 2), ("b", 1), ("c", 2)]
    assert all("command" in row for row in record["results"])
    record = measured(benchmark, tmp_path / "x.json", "--missing", "--cases", "c", "d", "--rounds", "3")
    assert [(row["case"], row["rounds"]) for row in record["results"][2:]] == [("c", 2), ("d", 3)]


def test_what_was_measured_before_an_interruption_is_kept(tmp_path: Path) -> None:
    def interrupted(asked: Any) -> Rows:
        yield {"case": "a"}
        raise KeyboardInterrupt

    benchmark = Benchmark("x", "", {"one": interrupted}, keys=("case",))
    with pytest.raises(KeyboardInterrupt):
        measured(benchmark, tmp_path / "x.json")
    assert json.loads((tmp_path / "x.json").read_text())["parts"]["one"]["rows"][0]["case"] == "a"


def test_a_part_of_one_row_takes_over_its_fields_and_the_figures_are_drawn(tmp_path: Path) -> None:
    benchmark = Benchmark(
        "x",
        "",
        {"one": counted},
        OPTIONS,
        place=("sections", ""),
        table=lambda part, rows: Table(title=part),
        figures={
            "": lambda record: f"<svg>{len(record['sections'])}</svg>",
            "_short": lambda record: "<svg/>",
        },
    )
    record = measured(benchmark, tmp_path / "x.json", "--cases", "a")
    assert record["sections"]["one"]["case"] == "a"
    assert (tmp_path / "x.svg").read_text() == "<svg>1</svg>"
    assert (tmp_path / "x_short.svg").read_text() == "<svg/>"


def test_a_row_that_fails_is_the_exit_status(tmp_path: Path) -> None:
    benchmark = Benchmark("x", "", {"one": counted}, OPTIONS, failed=lambda row: row["case"] == "b")
    assert main(benchmark, ["--cases", "a", "--out", str(tmp_path / "x.json")]) == 0
    assert main(benchmark, ["--out", str(tmp_path / "x.json")]) == 1


@pytest.mark.parametrize("work", SECTIONS.values())
def test_sections_name_functions(work: str) -> None:
    assert callable(resolve_name(f"scripts.contract.{work}"))


def commands() -> list[str]:
    """The commands of records and pages that run a benchmark of the registry."""
    pages = [*(ROOT / "profiles" / "measured").rglob("*.json"), *(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]
    found = {line for page in pages for line in re.findall(COMMAND, page.read_text(encoding="utf-8"))}
    return sorted(line for line in found if line.split()[2] in ALL)


@pytest.mark.parametrize("line", commands())
def test_commands_of_records_and_pages_can_be_repeated(line: str) -> None:
    _, _, command, *words = shlex.split(line, comments=True)
    ALL[command].parser().parse_args(words)


def test_the_page_is_made_without_the_peers() -> None:
    """The site is built in an environment that has what trnqc requires and nothing else."""
    program = (
        "import sys\n"
        f"for peer in {PEERS}: sys.modules[peer] = None\n"
        "from scripts.site.benchmarks import MEASURED, recorded\n"
        "assert '</html>' in recorded(MEASURED)"
    )
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, capture_output=True, text=True)
    assert not done.returncode, done.stderr
