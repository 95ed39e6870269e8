"""All benchmarks: an entry each, from which its command, record and figures on the page follow.

    python -m scripts.registry        names the commands, their parts and their records

An entry stands in the module whose command it is, as BENCHMARK, and MODULES and WITHOUT_TIMES list the modules. A new
case is one more element of the parts or cases of an entry.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib import import_module
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from scripts import ROOT, vectors
from scripts.measuring import heading, machine, one_thread, record_file, slug, write_json
from trnqc.bench import Figure
from trnqc.errors import TrnqcError
from trnqc.jit import find_compiler

MODULES = (
    "scripts.bench_scf",
    "scripts.mace.bench_mace",
    "scripts.bench_cg",
    "scripts.bench_sparse",
    "scripts.bench_machine",
    "scripts.bench_eri",
    "scripts.bench_contract",
    "scripts.bench_first_use",
    "scripts.bench_jobs",
    "scripts.jobs.bench_ranks",
    "scripts.bench_scaling",
    "scripts.scf.optimisation",
    "scripts.mp2_properties.geometries",
    "scripts.bench_mp2_properties",
    "scripts.bench_mp2_cpu",
    "scripts.mp2_cpu.bench_ump2",
    "scripts.eri.bench_exchange",
    "scripts.eri.bench_exchange_gradient",
    "scripts.mp2_properties.finite_differences",
    "scripts.scf.bench_hessian",
    "scripts.scf.quadrature",
    "scripts.soak.__main__",
    "scripts.device.bench_cg",
    "scripts.device.bench_eri",
    "scripts.device.bench_mp2_cuda",
    "scripts.device.bench_mp2",
)
WITHOUT_TIMES = (
    "scripts.model.blas",
    "scripts.model.cg",
    "scripts.model.jk",
    "scripts.model.mp2",
    "scripts.model.calibrate_timeline",
    "scripts.model.trace_mp2",
    "scripts.model.project_ranks",
    "scripts.registers.cg",
    "scripts.registers.launched",
    "scripts.eri.gpu_atomics",
    "scripts.eri.gpu_sizes",
    "scripts.device.kernel_time",
    "scripts.device.host_costs",
    "scripts.device.recorded_calls",
)
"""What is counted, modelled or projected; the page of records shows none of it, and is made without these modules."""

Row = dict[str, Any]
Rows = Iterator[Row]
Part = Callable[[argparse.Namespace], Rows]
Shown = tuple[str, Callable[[Row], Iterator[Figure]]]
"""A heading of the page of records, and what makes figures of a row."""
PYTHON: dict[str, Any] = {
    "default": os.environ.get("MACE_PYTHON", sys.executable),
    "help": "of an environment with mace-torch (default: %(default)s, from MACE_PYTHON)",
}
"""An option with the interpreter of the peers of MACE models."""
SWITCH: dict[str, Any] = {"action": "store_true"}


def number(default: float, note: str = "") -> dict[str, Any]:
    """An option with a number."""
    return {"type": type(default), "default": default, "help": f"{note} (default: %(default)s)".strip()}


def several(default: Sequence[Any], what: str | None = None, **settings: Any) -> dict[str, Any]:
    """An option with one or more values of the type of the first."""
    return {"nargs": "+", "type": type(default[0]), "default": list(default), "metavar": what} | settings


def named(*parts: Part) -> dict[str, Part]:
    """Parts that have the names of their functions."""
    return {part.__name__: part for part in parts}


@dataclass(frozen=True)
class Benchmark:
    """A command that measures parts of a record, one row after another.

    Attributes
    ----------
    record
        The name of the record's file.
    about
        The help of the command.
    parts
        What yields the rows of each part from the arguments. It imports what only it needs.
    options
        Further options of the command by name, with what argparse wants to know of them.
    apart
        Parts that run only when they are asked for.
    keys
        Fields that tell rows apart. Each row is then written as soon as it is measured, with command and machine of its
        own, and takes the place of the one with the same fields; rows of other cases are kept. Without keys the rows of
        a part take the place of all that the record had, when the part is done.
    place
        Where rows stand: the name of the mapping of parts, and that of the list in a part. Without a mapping the list
        is in the record itself, which is written after each row; without a list a part has one row, whose fields it
        takes over.
    line, table
        What is printed of a row as soon as it is measured, and the table of a part.
    facts
        Stored with every part, besides command, date, machine and compiler.
    prepare
        Called before anything is measured.
    single_thread
        Whether BLAS and OpenMP have one thread.
    figures
        The SVG of a record, written beside it, by what follows the record's name in that of the file; "" for none.
    failed
        Whether a row makes the command fail.
    device
        Opens the GPUs that are measured, or simulated ones with `--simulate`, and returns a name. The record goes to
        the folder of that name, and that of simulated ones to `--out` only.
    shown
        Figures of parts on the page of records.
    folder
        Of profiles. In `measured` a record has its machine's folder, and its command the options of `scripts.vectors`.
    cases
        Further parts, which follow from the arguments.
    summary
        What follows from all that the record has, and is stored beside it.
    """

    record: str
    about: str | None
    parts: Mapping[str, Part]
    options: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    apart: tuple[str, ...] = ()
    keys: tuple[str, ...] = ()
    place: tuple[str, str] = ("parts", "rows")
    line: Callable[[Row], str] = lambda row: str(row["case"])
    table: Callable[[str, list[Row]], Table] | None = None
    facts: Callable[[argparse.Namespace], Mapping[str, Any]] = lambda asked: {}
    prepare: Callable[[argparse.Namespace], None] = lambda asked: None
    single_thread: bool = False
    figures: Mapping[str, Callable[[Row], str]] = field(default_factory=dict)
    failed: Callable[[Row], bool] = lambda row: False
    device: Callable[[argparse.Namespace], str] | None = None
    shown: Mapping[str, Shown] = field(default_factory=dict)
    folder: str = "measured"
    cases: Callable[[argparse.Namespace], Mapping[str, Part]] = lambda asked: {}
    summary: Callable[[Row], Mapping[str, Any]] = lambda record: {}

    @property
    def on_this_machine(self) -> bool:
        """Whether times of this machine's CPU are measured."""
        return self.folder == "measured" and not self.device

    @property
    def path(self) -> Path:
        """The file of the record, that of this machine if it is measured."""
        if self.folder == "measured":
            return record_file(self.record)
        return ROOT / "profiles" / self.folder / f"{self.record}.json"

    def parser(self) -> argparse.ArgumentParser:
        """The options of the command."""
        shape = argparse.RawDescriptionHelpFormatter
        parser = argparse.ArgumentParser(description=self.about, formatter_class=shape)
        if len(self.parts) > 1:
            usual = [part for part in self.parts if part not in self.apart]
            flag = f"--{self.place[0] or 'parts'}"
            parser.add_argument(flag, nargs="+", choices=self.parts, default=usual, dest="parts_asked")
        if self.keys:
            parser.add_argument("--missing", **SWITCH, help="leave out what the record has already")
        for name, settings in self.options.items():
            parser.add_argument(name, **settings)
        if self.device:
            parser.add_argument("--simulate", **SWITCH, help="on this CPU: every step but the GPU, no figure counts")
            parser.add_argument("--out", type=Path, help=f"default: profiles/measured/GPU/{self.record}.json")
        else:
            parser.add_argument("--out", type=Path, default=self.path)
        if self.on_this_machine:
            vectors.add_arguments(parser)
        return parser

    def identity(self, row: Row) -> tuple[Any, ...]:
        """The values that tell a row from others."""
        return tuple(row[key] for key in self.keys)

    def rows_of(self, record: Row, part: str) -> list[Row]:
        """The rows that a record has of a part."""
        mapping, rows = self.place
        holder = record.get(mapping, {}).get(part, {}) if mapping else record
        return list(holder.get(rows, []) if rows else [holder])

    def enter(self, record: Row, part: str, rows: list[Row], **facts: Any) -> None:
        """Put rows into a record, in place of those of the same identity or, without keys, of all."""
        head = heading() | {"machine": machine(), **facts}
        if self.keys:
            known = {self.identity(row): row for row in self.rows_of(record, part)}
            own = heading() | {"machine": machine()}
            rows = list((known | {self.identity(row): row | own for row in rows}).values())
        mapping, list_name = self.place
        whole = head | ({list_name: rows} if list_name else rows[0])
        if mapping:
            record.setdefault(mapping, {})[part] = whole
        else:
            record |= whole


def main(benchmark: Benchmark, argv: Sequence[str] | None = None) -> int:
    """Run the command of a benchmark; the exit status is 1 if a row has failed, and 2 if a GPU cannot be measured."""
    asked = benchmark.parser().parse_args(argv)
    if benchmark.device:
        try:
            name = benchmark.device(asked)
            asked.out = asked.out or (None if asked.simulate else record_file(benchmark.record, slug(name)))
            return run(benchmark, asked)
        except (TrnqcError, AssertionError) as error:
            Console(soft_wrap=True).print(str(error), markup=False, highlight=False, style="red")
            return 2
    if benchmark.on_this_machine:
        vectors.keep_to(asked.vectors, asked.blas)
    if benchmark.single_thread:
        one_thread()
    benchmark.prepare(asked)
    return run(benchmark, asked)


def run(benchmark: Benchmark, asked: argparse.Namespace) -> int:
    """Measure the parts that are asked for, print them, and enter them in the record."""
    console, failed = Console(soft_wrap=True), False
    out = asked.out = vectors.beside(asked.out) if asked.out else None
    parts = dict(benchmark.parts) | dict(benchmark.cases(asked))
    for part in asked.parts_asked if len(benchmark.parts) > 1 else parts:
        began, rows = time.perf_counter(), []
        known = benchmark.rows_of(stored(out), part) if out and benchmark.keys else []
        asked.measured = {benchmark.identity(row) for row in known}
        for row in parts[part](asked):
            rows.append(row)
            failed |= benchmark.failed(row)
            console.print(f"{part} {benchmark.line(row)}", markup=False)
            if out and benchmark.keys:
                store(benchmark, asked, out, part, [row], began)
            elif out and not benchmark.place[0]:
                store(benchmark, asked, out, part, rows, began)
        if out and rows and benchmark.place[0] and not benchmark.keys:
            store(benchmark, asked, out, part, rows, began)
        if rows and benchmark.table:
            console.print(benchmark.table(part, rows))
    console.print(f"written to {out}" if out else "nothing is written without --out")
    return int(failed)


def store(benchmark: Benchmark, asked: argparse.Namespace, out: Path, part: str, rows: list[Row], began: float) -> None:
    """Enter rows in the record's file, and draw its figures."""
    record, seconds = stored(out), time.perf_counter() - began
    if benchmark.device:
        ran = {"kind": "simulated device, no figure counts" if asked.simulate else "measured"}
    elif benchmark.folder == "measured":
        ran = {"compiler": find_compiler().label}
    else:
        ran = {"kind": benchmark.folder}
    benchmark.enter(record, part, rows, **(ran | {"seconds": seconds} | dict(benchmark.facts(asked))))
    record |= benchmark.summary(record)
    write_json(record, out)
    for ending, draw in benchmark.figures.items():
        if figure := draw(record):
            out.with_name(f"{out.stem}{ending}.svg").write_text(figure, encoding="utf-8")


def stored(path: Path) -> Row:
    """The record of a file; empty if there is none."""
    return dict(json.loads(path.read_text(encoding="utf-8"))) if path.exists() else {}


def wanted(asked: argparse.Namespace, *identity: Any) -> bool:
    """Whether a row is to be measured: all are, and with --missing those that the record lacks."""
    return not (asked.missing and identity in asked.measured)


def benchmarks(modules: Sequence[str] = MODULES + WITHOUT_TIMES) -> Iterator[tuple[str, Benchmark]]:
    """The commands and their entries."""
    for module in modules:
        yield module.removesuffix(".__main__"), import_module(module).BENCHMARK


def speedups(row: Row) -> str:
    """One line with the speedups of a row."""
    ratios = {what: round(times, 2) for what, times in row["speedup"].items()}
    return f"{row['case']} {row['dtype']} {ratios}" if "dtype" in row else f"{row['case']} {ratios}"


def speedup_table(part: str, rows: list[Row]) -> Table:
    """One line for each speedup of each row, with its target and the error of the contestant that it is of."""
    table = Table(title=part, title_justify="left", width=120)
    for column in ("case", "dtype", "what", "times", "target", "", "error"):
        table.add_column(column, justify="right" if column in ("times", "target", "error") else "left")
    for row in rows:
        for what, times in row["speedup"].items():
            target, error = row["target"].get(what), row.get("error", {}).get(what.partition(" over")[0])
            number = "" if error is None else f"{error:.0e}"
            table.add_row(row["case"], row.get("dtype", ""), what, f"{times:.3g}", *verdict(times, target), number)
    return table


def listing(columns: Mapping[str, Callable[[Row], Any] | None], **style: Any) -> Callable[[str, list[Row]], Table]:
    """A table by heading: what a function makes of each row, or the row's field of that name."""

    def table(part: str, rows: list[Row]) -> Table:
        printed = Table(*columns, title=part, title_justify="left", **style)
        for row in rows:
            cells = (of(row) if of else row[name] for name, of in columns.items())
            printed.add_row(*(f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in cells))
        return printed

    return table


def verdict(times: float, target: float | None) -> tuple[str, str]:
    """A target as text, and whether it is reached; empty where there is none."""
    return ("", "") if target is None else (f"{target:.3g}", "reached" if times >= target else "missed")


if __name__ == "__main__":
    listed = Table("command", "parts", "record")
    for command, one in benchmarks():
        listed.add_row(f"python -m {command}", " ".join(one.parts), str(one.path.relative_to(ROOT / "profiles")))
    Console().print(listed)
