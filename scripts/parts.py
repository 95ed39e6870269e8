"""Benchmarks in parts: the rows of each part are shown as a table and replace that part in the record."""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from scripts import vectors
from scripts.measuring import record_file, write_part
from trnqc.jit import find_compiler

Rows = Iterator[dict[str, Any]]
Parts = Mapping[str, Callable[[argparse.Namespace], Rows]]


def add_arguments(parser: argparse.ArgumentParser, parts: Parts, record: str, *, apart: tuple[str, ...] = ()) -> None:
    """Add --parts, --vectors and --out. By default, all parts run but those of `apart`."""
    parser.add_argument("--parts", nargs="+", choices=parts, default=[part for part in parts if part not in apart])
    parser.add_argument("--out", type=Path, default=record_file(record))
    vectors.add_argument(parser)


def run_parts(
    asked: argparse.Namespace,
    parts: Parts,
    line: Callable[[dict[str, Any]], str],
    table: Callable[[str, list[dict[str, Any]]], Table],
    **facts: Any,
) -> None:
    """Run the parts asked for.

    Parameters
    ----------
    asked : argparse.Namespace
        The arguments of `add_arguments`, which are also passed to every part.
    parts : mapping of str to callable
        The parts by name; each yields its rows.
    line, table : callable
        What is printed of a row as soon as it is measured, and the table of a part.
    **facts
        Stored with every part, besides the compiler.
    """
    console, out = Console(soft_wrap=True), vectors.beside(asked.out)
    for part in asked.parts:
        began, rows = time.perf_counter(), []
        for row in parts[part](asked):
            rows.append(row)
            console.print(f"{part} {line(row)}", markup=False)
        console.print(table(part, rows))
        write_part(out, part, rows, compiler=find_compiler().label, seconds=time.perf_counter() - began, **facts)
    console.print(f"written to {out}")


def speedups(row: dict[str, Any]) -> str:
    """One line with the speedups of a row."""
    ratios = {what: round(times, 2) for what, times in row["speedup"].items()}
    return f"{row['case']} {row['dtype']} {ratios}" if "dtype" in row else f"{row['case']} {ratios}"


def speedup_table(part: str, rows: list[dict[str, Any]]) -> Table:
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


def verdict(times: float, target: float | None) -> tuple[str, str]:
    """A target as text, and whether it is reached; empty where there is none."""
    return ("", "") if target is None else (f"{target:.3g}", "reached" if times >= target else "missed")
