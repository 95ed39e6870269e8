"""Registers, spills and compile time of integral kernels by class, order and form of ``+=``.

    python -m scripts.registers.eri 1111 2111 2121 --methods fifo target --arch sm_80 sm_90

Needs nvcc and no GPU. `rows` takes any generated functions; its output is what other ablations tabulate.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from rich.console import Console
from rich.table import Table

from scripts.workloads.quartets import quartet
from trnqc.eri.kernels.quartet import quartet_function
from trnqc.eri.kernels.recurrence import RULES, recurrence
from trnqc.eri.kernels.variants import Variant
from trnqc.errors import CompilerError
from trnqc.gen import emit_cuda
from trnqc.gen.emit import ACCUMULATE
from trnqc.gen.liveness import peak_live
from trnqc.gen.schedule import METHODS, best_of
from trnqc.gen.statements import Function
from trnqc.jit import Build, build_all, compile_cuda


@dataclass(frozen=True)
class Row:
    """label: what the kernel is; outcome: its build, or why there is none."""

    label: str
    arch: str
    accumulate: str
    outcome: Build | CompilerError


def rows(
    functions: Mapping[str, Function], arches: Sequence[str], forms: Sequence[str], min_blocks: int = 0
) -> Iterator[Row]:
    """One row for every function, architecture and form of accumulation, built two at a time."""
    keys = [(label, arch, form) for label in functions for arch in arches for form in forms]
    jobs = {
        "/".join(key): (
            lambda key=key: compile_cuda(
                emit_cuda(functions[key[0]], accumulate=key[2], min_blocks=min_blocks), name="registers", arch=key[1]
            )
        )
        for key in keys
    }
    done = build_all(jobs, workers=2, progress=lambda n, total, name: print(f"{n}/{total} {name}", file=sys.stderr))
    for key in keys:
        yield Row(*key, done["/".join(key)])


def table(rows: Sequence[Row]) -> Table:
    """Rows as a table; bytes are spill stores / loads a thread."""
    shown = Table("kernel", "arch", "+=", "registers", "spilled B", "stack B", "nvcc s")
    for row in rows:
        if isinstance(row.outcome, CompilerError):
            shown.add_row(row.label, row.arch, row.accumulate, str(row.outcome).splitlines()[0])
            continue
        for k in row.outcome.kernels:
            spilled = f"{k.spill_stores}/{k.spill_loads}" + (" given up" if k.spills_excessively else "")
            shown.add_row(
                row.label,
                row.arch,
                row.accumulate,
                str(k.registers),
                spilled,
                str(k.stack),
                f"{row.outcome.seconds:.1f}",
            )
    return shown


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("classes", nargs="+", help="four digits, the angular momenta of a class")
    parser.add_argument("--rules", nargs="+", choices=RULES, default=["interleaved"])
    parser.add_argument("--methods", nargs="+", choices=METHODS, default=["target"])
    parser.add_argument("--arch", nargs="+", default=["sm_80"])
    parser.add_argument("--accumulate", nargs="+", choices=ACCUMULATE, default=["fence"])
    parser.add_argument("--draws", type=int, default=8)
    parser.add_argument("--min-blocks", type=int, default=0)
    asked = parser.parse_args()
    functions = {}
    for name in asked.classes:
        cls = quartet(name)
        for rule in asked.rules:
            graph = recurrence(*cls.shells, rule=rule).graph
            for method in asked.methods:
                live = peak_live(graph, best_of(graph, method, asked.draws))
                variant = Variant(rule=rule, method=method, draws=asked.draws, peeled=False)
                label = f"({name}) {rule}, {method}, {len(graph)} nodes, {live} live"
                functions[label] = quartet_function(cls, "straight", variant)
    Console(width=140).print(table(list(rows(functions, asked.arch, asked.accumulate, asked.min_blocks))))


if __name__ == "__main__":
    main()
