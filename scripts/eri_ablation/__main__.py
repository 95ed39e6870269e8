"""The effect of each part of the integral generator, in tables beside the figures of FusionRCG and of a prototype.

    python -m scripts.eri_ablation [--parts graphs phase2 gpu cpu eq7] [--classes 1111 2121] [--quick]
                                   [--out FILE]

    graphs  nodes, flops, values that live at once, slots, by axis rule and scheduler
    phase2  flops from targets to integrals, with harmonics step by step or at the end
    gpu     registers, spills, shared memory and compile time by tier, rule, scheduler and form of `+=` (nvcc, no GPU)
    eq7     values that live at once by readings of the score of FusionRCG's scheduler
    cpu     throughput with one part changed at a time: rule, scheduler, harmonics, form, lanes, primitive screening

Nothing is timed on a GPU. CPU figures are a thread's CPU seconds. Counts and compiled files are kept in the
cache of compiled kernels; times are always measured. Other parts and classes in the file are not changed.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from scripts.eri_ablation import tables, verdicts
from scripts.eri_ablation.reference import CLAIMS
from scripts.measuring import heading, machine, record_file, write_json
from trnqc.jit import find_compiler

CLASSES = ("0000", "1000", "1010", "1111", "2111", "2121", "2211", "2221", "2222", "3311", "3322", "3333")
QUICK = ("1010", "1111")
Rows = list[dict[str, Any]]


def graphs(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    from scripts.eri_ablation.graphs import fewest_live, graph_row, rules

    for digits in asked.classes:
        rows = [graph_row(digits, rule) for rule in rules(digits)]
        yield {"class": digits, "rules": rows, "fewest": fewest_live(digits)}


def phase2(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    from scripts.eri_ablation.phase2 import phase2_row

    yield from map(phase2_row, asked.classes)


def gpu(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    from scripts.eri_ablation.gpu import class_rows

    for digits in asked.classes:
        yield from class_rows(digits, asked.arch)


def cpu(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    from scripts.eri_ablation.cpu import class_row

    for digits in asked.classes:
        yield class_row(digits, asked.primitives)


def eq7(asked: argparse.Namespace) -> Iterator[dict[str, Any]]:
    from scripts.eri_ablation.eq7 import class_rows

    yield from map(class_rows, asked.classes)


PARTS: dict[str, Callable[[argparse.Namespace], Iterator[dict[str, Any]]]] = {
    "graphs": graphs,
    "phase2": phase2,
    "gpu": gpu,
    "cpu": cpu,
    "eq7": eq7,
}


def arguments(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--parts", nargs="+", choices=PARTS, default=list(PARTS))
    parser.add_argument("--classes", nargs="+", help="four digits each, the angular momenta of a class")
    parser.add_argument("--arch", nargs="+", default=["sm_80", "sm_90"])
    parser.add_argument("--primitives", type=int, nargs="+", default=[1, 3], help="a shell, for the CPU part")
    parser.add_argument("--quick", action="store_true", help=f"the classes {' '.join(QUICK)} alone")
    parser.add_argument("--out", type=Path, default=record_file("eri_ablation"))
    asked = parser.parse_args(argv)
    asked.classes = asked.classes or (QUICK if asked.quick else CLASSES)
    return asked


def main(argv: Sequence[str] | None = None) -> None:
    asked, console = arguments(argv), Console(width=180, soft_wrap=True)
    record: dict[str, Any] = heading() | {"machine": machine(), "compiler": find_compiler().label, "claims": CLAIMS}
    record["parts"] = parts = json.loads(asked.out.read_text())["parts"] if asked.out.exists() else {}
    for part in asked.parts:
        rows: Rows = []
        for row in PARTS[part](asked):
            rows.append(row)
            print(f"{part} ({row['class']}): {len(rows)} done", file=sys.stderr, flush=True)
        for table in tables.TABLES[part](rows):
            console.print(table)
        kept = [row for row in parts.get(part, []) if row["class"] not in asked.classes]
        parts[part] = sorted(
            kept + rows, key=lambda row: CLASSES.index(row["class"]) if row["class"] in CLASSES else 99
        )
        record["targets"] = verdicts.verdicts(parts)
        write_json(record, asked.out)
    console.print(tables.claims())
    console.print(tables.targets(record["targets"]))
    console.print(f"written to {asked.out}")


if __name__ == "__main__":
    main()
