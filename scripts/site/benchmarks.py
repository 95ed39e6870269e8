"""The page of recorded benchmarks: profiles/measured as one HTML file, each figure with machine, command and date.

    python -m scripts.site.benchmarks [--out FILE]

Ratios are those of the records, losses included.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from scripts import ROOT
from scripts.registry import MODULES, benchmarks
from trnqc.bench import Section, page

MEASURED = ROOT / "profiles" / "measured"
# The load average at the end of a run includes the run, which uses all CPUs: this much above them is other work.
OTHER_WORK = 0.5


def sections(measured: Path) -> Iterator[tuple[Section, bool]]:
    """The sections of all machines, those of one subject one after another, and whether other work ran beside each."""
    shown = [(one.record, part, *entry) for _, one in benchmarks(MODULES) for part, entry in one.shown.items()]
    for name, part, heading, figures_of in shown:
        for path in sorted(measured.glob(f"*/{name}*.json")):
            record = json.loads(path.read_text(encoding="utf-8")).get("parts", {}).get(part)
            if record and record["rows"]:
                figures = [figure for row in record["rows"] for figure in figures_of(row)]
                section = Section(f"{heading}: {path.parent.name}{_variant(path, name)}", figures, _facts(record, path))
                load, cpus = record["machine"]["load_average"][0], record["machine"]["cpus"]
                yield section, load > cpus + OTHER_WORK


def _variant(path: Path, name: str) -> str:
    """What distinguishes a record from the plain one of the same benchmark, such as ", avx2"."""
    return path.stem.removeprefix(name).replace("_", ", ")


def _facts(record: Mapping[str, Any], path: Path) -> dict[str, str]:
    machine = record["machine"]
    cpu = f"{machine.get('model name', '')}, family {machine.get('cpu family')}, model {machine.get('model')}"
    blas = machine.get("OPENBLAS_CORETYPE") or "not set"
    return {
        "newest command": record["command"],
        "machine": f"{cpu}, {machine['cpus']} CPUs, load average {machine['load_average'][0]:.1f} at the end",
        "OPENBLAS_CORETYPE": blas,
        "date": record["date"],
        "record": str(path.relative_to(path.parents[3])),
    }


def recorded(measured: Path) -> str:
    """The page of all records that were measured on an idle machine; the others are named."""
    about = {"times": "wall seconds of whole jobs, CPU seconds of kernels and models; medians over the rounds"}
    every = list(sections(measured))
    busy = [
        f"{section.heading} ({section.facts['record']}): other processes used the CPUs while it was measured."
        for section, busy in every
        if busy
    ]
    shown = [section for section, busy in every if not busy]
    return page("Benchmarks of trnqc", about, shown, busy, back=("benchmarks/index.html", "Documentation of trnqc"))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("benchmarks.html"))
    asked = parser.parse_args()
    asked.out.write_text(recorded(MEASURED), encoding="utf-8")
    print(f"written to {asked.out}")


if __name__ == "__main__":
    main()
