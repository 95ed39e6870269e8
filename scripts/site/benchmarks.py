"""The page of recorded benchmarks: profiles/measured as one HTML file, each figure with machine, command and date.

    python -m scripts.site.benchmarks [--out FILE]

Ratios are those of the records, losses included.
"""

from __future__ import annotations

import argparse
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from scripts import ROOT
from trnqc.bench import Figure, Section, page

MEASURED = ROOT / "profiles" / "measured"
Row = Mapping[str, Any]

# Methods of records of SCF jobs in words.
METHODS = {"hf": "HF", "mp2": "HF and DF-MP2", "uhf": "UHF, cation", "rohf": "ROHF, cation"}
WAYS = {"fitted": "density fitting", "direct": "direct", "disk": "fitted integrals on disk"}


def scf(row: Row) -> Iterator[Figure]:
    """Whole SCF jobs and gradients, wall seconds."""
    molecule, basis, method, way = row["case"].split("/")
    job = f"{molecule}, {METHODS.get(method, method.upper())}/{basis}, {WAYS[way]}, {_threads(row)}"
    for stage, words in (("scf", "energy"), ("gradient", "gradient")):
        if stage in row["seconds"]:
            theirs, ours = (row["seconds"][stage][who]["all"]["wall_s"] for who in ("PySCF", "trnqc"))
            yield Figure(f"{words}: {job}", "PySCF", theirs, ours, row["ratio"][stage]["all"]["wall"])


def mace(row: Row) -> Iterator[Figure]:
    """Whole MACE models, CPU seconds of energy, forces and stress an atom."""
    times, ratios = row["cpu microseconds per atom"], row["speedup"]
    for ours, words in (("whole", "exact"), ("whole, splines", "splines")):
        for theirs in ("symmetrix", "e3nn"):
            if f"{ours} over {theirs}" in ratios:
                what = f"an atom of {row['case']}, {row['atoms']} atoms, {row['dtype']}, {words}, {_threads(row)}"
                yield Figure(what, theirs, 1e-6 * times[theirs], 1e-6 * times[ours], ratios[f"{ours} over {theirs}"])


def tensor_product(row: Row) -> Iterator[Figure]:
    """Batches of tensor products and their derivatives, CPU seconds."""
    for direction in ("forward", "backward", "double_backward"):
        theirs, ours = (1e-3 * row["milliseconds"][f"{who} {direction}"] for who in ("e3nn", "trnqc"))
        what = f"{direction.replace('_', ' ')} of {row['case']}, {row['batch']} rows, {row['dtype']}, {row['layout']}"
        yield Figure(what, "e3nn", theirs, ours, row["speedup"][direction])


def sparse(row: Row) -> Iterator[Figure]:
    """Sparse networks beside the fastest other way of evaluation, CPU seconds."""
    rivals = {name: ms for name, ms in row["milliseconds"].items() if name != "trnqc"}
    fastest = min(rivals, key=lambda name: rivals[name])
    ours = row["milliseconds"]["trnqc"]
    ratio = row["speedup"].get(f"trnqc over {fastest}", rivals[fastest] / ours)
    yield Figure(row["case"], fastest, 1e-3 * rivals[fastest], 1e-3 * ours, ratio)


def _threads(row: Row) -> str:
    return f"{row['threads']} thread{'s' * (row['threads'] > 1)}"


# Record, its part, heading, and what makes figures of a row.
SOURCES: tuple[tuple[str, str, str, Callable[[Row], Iterator[Figure]]], ...] = (
    ("scf", "jobs", "SCF energies and gradients", scf),
    ("scf", "mp2", "Hartree-Fock and DF-MP2", scf),
    ("scf", "open", "Open shells", scf),
    ("scf", "scaling", "Water clusters", scf),
    ("scf", "disk", "Fitted integrals on disk", scf),
    ("mace", "model", "MACE models", mace),
    ("cg", "batch", "Tensor products of irreps", tensor_product),
    ("sparse", "integrals25", "Sparse integrals, 25 atoms", sparse),
    ("sparse", "integrals100", "Sparse integrals, 100 atoms", sparse),
    ("sparse", "factors", "Factorisations of sparse tensors", sparse),
)


def sections(measured: Path) -> Iterator[Section]:
    """The sections of all machines, those of one subject one after another."""
    for name, part, heading, figures_of in SOURCES:
        for path in sorted(measured.glob(f"*/{name}*.json")):
            record = json.loads(path.read_text(encoding="utf-8")).get("parts", {}).get(part)
            if record and record["rows"]:
                figures = [figure for row in record["rows"] for figure in figures_of(row)]
                yield Section(f"{heading}: {path.parent.name}{_variant(path, name)}", figures, _facts(record, path))


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
    """The page of all records."""
    about = {"times": "wall seconds of whole jobs, CPU seconds of kernels and models; medians over the rounds"}
    return page("Benchmarks of trnqc", about, list(sections(measured)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path("benchmarks.html"))
    asked = parser.parse_args()
    asked.out.write_text(recorded(MEASURED), encoding="utf-8")
    print(f"written to {asked.out}")


if __name__ == "__main__":
    main()
