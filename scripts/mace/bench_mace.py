"""How fast is a whole MACE model beside mace-torch, our convolutions in mace-torch, and symmetrix-xl?

    python -m scripts.mace.bench_mace [--parts model variants threads memory ready conservation] [--quick] [--rounds 5]
                                      [--python /path/to/an/environment/bin/python] [--vectors avx2] [--out FILE]
                                      [--limit 900]

    model         energy, forces and stress of SrTiO3 with 135 and 1080 atoms, 128x0e+128x1o, one thread, by CPU time
    variants      the same with other hyperparameters, 135 atoms
    threads       one thread over two, by wall time
    memory        peak memory for each atom, beyond that of a crystal of 5 atoms
    ready         CPU seconds until the first result, with an empty cache of kernels, for the sizes and blocks of
                  published families
    conservation  the total energy along 200 fs of molecular dynamics at constant energy

The contestants take turns in one process, and the atoms move a little before each evaluation. mace-torch, vesin and
symmetrix-xl may live in another environment; without --python that is what MACE_PYTHON names, or this one. Errors are
relative to the largest force of the model in float64. symmetrix-xl keeps its own instruction set with --vectors avx2.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from itertools import product
from typing import Any

from scripts.mace.systems import FAMILIES, SYSTEMS, VARIANTS
from scripts.measuring import process
from scripts.registry import PYTHON, SWITCH, Benchmark, Rows, main, named, number, speedup_table, speedups
from trnqc.bench import Figure
from trnqc.host.files import DIRECTORY_VARIABLE

DTYPES = ("float32", "float64")
ALL = ["whole", "whole, splines", "symmetrix", "trnqc.cg", "e3nn"]
# mace-torch needs tens of gigabytes for the larger crystal.
LEAN = ALL[:3]
TARGETS = {"whole over symmetrix": 1.0, "whole, splines over symmetrix": 1.3, "whole over e3nn": 15.0}
# Seconds in which the kernels of a new model are to be compiled.
READY = 30.0


def measured(
    asked: argparse.Namespace, kind: str, *, cache: str = "", limit: float | None = None, **arguments: Any
) -> dict[str, Any]:
    """One row, measured in a process of its own, which is ended after `limit` seconds (subprocess.TimeoutExpired)."""
    threads = str(arguments.get("threads", 1))
    environment = {"OMP_NUM_THREADS": threads} | ({DIRECTORY_VARIABLE: cache} if cache else {})
    line = ("scripts.mace.measure", kind, json.dumps(arguments))
    row: dict[str, Any] = process(*line, python=asked.python, timeout=limit, environment=environment)
    return row


def model(asked: argparse.Namespace) -> Rows:
    for system, names in ((0, ALL), *([] if asked.quick else [(1, LEAN)])):
        for dtype in DTYPES:
            row = measured(asked, "turns", system=system, dtype=dtype, names=names, rounds=asked.rounds)
            yield row | {"target": TARGETS}


def variants(asked: argparse.Namespace) -> Rows:
    for system in VARIANTS[:1] if asked.quick else VARIANTS:
        names = [name for name in ALL if name not in SYSTEMS[system].unsupported]
        row = within_limit(asked, names, system=system, dtype="float32", rounds=asked.rounds)
        yield row | {"target": {what: factor for what, factor in TARGETS.items() if what in row["speedup"]}}


def within_limit(asked: argparse.Namespace, names: list[str], **arguments: Any) -> dict[str, Any]:
    """A row of contestants in turns, without symmetrix-xl if it does not get ready.

    It compiles a program for each model, which takes minutes, and for some models longer than it allows itself.
    """
    try:
        return measured(asked, "turns", limit=asked.limit, names=names, **arguments)
    except subprocess.TimeoutExpired:
        reason = f"no result within {asked.limit:.0f} s"
    except SystemExit as error:
        reason = next(line for line in reversed(str(error).splitlines()) if line)
    others = [name for name in names if name != "symmetrix"]
    return measured(asked, "turns", names=others, **arguments) | {"not ready": {"symmetrix": reason}}


def threads(asked: argparse.Namespace) -> Rows:
    for system, dtype in product((0,) if asked.quick else (0, 1), DTYPES):
        one, two = (
            measured(asked, "turns", system=system, dtype=dtype, names=["whole"], rounds=3 * asked.rounds, threads=n)
            for n in (1, 2)
        )
        wall = [row["wall microseconds per atom"]["whole"] for row in (one, two)]
        row = {"case": one["case"], "dtype": dtype, "wall microseconds per atom": wall}
        yield row | {"speedup": {"two threads over one": wall[0] / wall[1]}, "target": {"two threads over one": 1.8}}


def memory(asked: argparse.Namespace) -> Rows:
    for dtype in DTYPES:
        rows = {n: measured(asked, "memory", system=1, dtype=dtype, name=n) for n in ("whole", "symmetrix")}
        sizes = {name: row["bytes per atom"] for name, row in rows.items()}
        ratio = {"symmetrix over whole": sizes["symmetrix"] / sizes["whole"]}
        row = {"case": rows["whole"]["case"], "dtype": dtype, "bytes per atom": sizes}
        yield row | {"speedup": ratio, "target": {"symmetrix over whole": 1.0}}


def ready(asked: argparse.Namespace) -> Rows:
    for system, dtype in [(0, "float64"), *((system, "float32") for system in FAMILIES[: 1 if asked.quick else None])]:
        with tempfile.TemporaryDirectory() as cache:
            row = measured(asked, "ready", cache=cache, system=system, dtype=dtype, names=["whole"])
        seconds = row["seconds until the first result"]["whole"]
        row = {"case": row["case"], "dtype": dtype, "seconds": seconds, "allowed seconds": READY}
        what = "allowed over needed CPU seconds"
        yield row | {"speedup": {what: READY / seconds["cpu"]}, "target": {what: 1.0}}


def conservation(asked: argparse.Namespace) -> Rows:
    for dtype in DTYPES:
        row = measured(asked, "conservation", system=0, dtype=dtype, name="whole", steps=50 if asked.quick else 200)
        kinetic, total = (
            row[f"standard deviation of the {what} energy in eV per atom"] for what in ("kinetic", "total")
        )
        yield row | {"speedup": {"fluctuation of the kinetic over the total energy": kinetic / total}, "target": {}}


def figures(row: dict[str, Any]) -> Iterator[Figure]:
    """Whole MACE models, CPU seconds of energy, forces and stress an atom."""
    times, ratios = row["cpu microseconds per atom"], row["speedup"]
    threads = f"{row['threads']} thread{'s' * (row['threads'] > 1)}"
    for ours, words in (("whole", "exact"), ("whole, splines", "splines")):
        for theirs in ("symmetrix", "e3nn"):
            if f"{ours} over {theirs}" in ratios:
                what = f"an atom of {row['case']}, {row['atoms']} atoms, {row['dtype']}, {words}, {threads}"
                yield Figure(what, theirs, 1e-6 * times[theirs], 1e-6 * times[ours], ratios[f"{ours} over {theirs}"])


BENCHMARK = Benchmark(
    "mace",
    __doc__,
    named(model, variants, threads, memory, ready, conservation),
    {
        "--rounds": number(5),
        "--quick": SWITCH | {"help": "fewer cases"},
        "--python": PYTHON,
        "--limit": number(900.0, "seconds for a row of variants with symmetrix-xl"),
    },
    line=speedups,
    table=speedup_table,
    shown={"model": ("MACE models", figures)},
)

if __name__ == "__main__":
    sys.exit(main(BENCHMARK))
