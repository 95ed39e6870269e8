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
import os
import subprocess
import sys
import tempfile
from itertools import product
from typing import Any

from scripts import ROOT, vectors
from scripts.mace.systems import FAMILIES, SYSTEMS, VARIANTS
from scripts.parts import Parts, Rows, add_arguments, run_parts, speedup_table, speedups
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
    python = asked.python or os.environ.get("MACE_PYTHON", sys.executable)
    threads = str(arguments.get("threads", 1))
    environment = os.environ | {"OMP_NUM_THREADS": threads} | ({DIRECTORY_VARIABLE: cache} if cache else {})
    command = [python, "-W", "ignore", "-m", "scripts.mace.measure", kind, json.dumps(arguments)]
    try:
        done = subprocess.run(
            command, cwd=ROOT, env=environment, capture_output=True, text=True, check=True, timeout=limit
        )
    except FileNotFoundError as error:
        raise SystemExit(f"expected the python of an environment with mace-torch, found {python}: {error}") from error
    except subprocess.CalledProcessError as error:
        raise SystemExit(f"{python} cannot measure; it needs mace-torch:\n{error.stderr[-2000:]}") from error
    return json.loads(done.stdout.splitlines()[-1])


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


PARTS: Parts = {
    "model": model,
    "variants": variants,
    "threads": threads,
    "memory": memory,
    "ready": ready,
    "conservation": conservation,
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="fewer cases")
    parser.add_argument("--python", default="")
    parser.add_argument("--limit", type=float, default=900.0, help="seconds for a row of variants with symmetrix-xl")
    add_arguments(parser, PARTS, "mace")
    asked = parser.parse_args()
    vectors.keep_to(asked.vectors)
    run_parts(asked, PARTS, speedups, speedup_table)


if __name__ == "__main__":
    main()
