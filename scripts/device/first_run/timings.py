"""The named benchmarks as steps: each calls a benchmark of scripts.device, which writes its record row by row.

A benchmark checks results before it times them, and ends with status 2 where one is wrong; its output says which.
"""

from __future__ import annotations

import contextlib
import io
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import Any, TextIO

from trnqc.errors import TrnqcError

Benchmark = Callable[[Sequence[str]], int]


def mp2(simulate: bool, record: Path) -> None:
    """Pair energies of the medium shape in three precisions."""
    from scripts.device.bench_mp2_cuda import main

    small = ["--preset", "tiny", "--precision", "fp32", "--repeats", "1", "--simulate"]
    measured(main, small if simulate else ["--preset", "medium"], record)


def integrals(case: str, simulate: bool, record: Path) -> None:
    """J, K and SCF iterations of a molecule, beside gpu4pyscf where it is installed."""
    from scripts.device.bench_eri import main

    measured(main, ["water/sto-3g", "--rounds", "1", "--simulate"] if simulate else [case], record)


def tensor_products(part: str, case: str, simulate: bool, record: Path) -> None:
    """Batches ("products") or convolutions of one problem in fp32, beside peers that are installed."""
    from scripts.device.bench_cg import main

    label = ["uvu-1"] if simulate else [case]
    names = [*label, "--parts", part] if part == "products" else ["--parts", part, "--convolutions", *label]
    small = ["--batch", "3", "--rounds", "1", "--simulate"] if simulate else ["--rounds", "10"]
    # The names of cases come first: an option with several values would take them.
    measured(main, [*names, "--dtypes", "float32", *small], record)


class _Tee(io.StringIO):
    """Text that is printed and kept."""

    def __init__(self, printed: TextIO) -> None:
        super().__init__()
        self.printed = printed

    def write(self, text: str) -> int:
        self.printed.write(text)
        return super().write(text)


def measured(main: Benchmark, arguments: list[str], record: Path) -> None:
    """Call a benchmark. Raises TrnqcError with its message if its results are wrong or if it cannot run."""
    with contextlib.redirect_stdout(_Tee(sys.stdout)) as printed:
        status = main([*arguments, "--out", str(record)])
    if status:
        raise TrnqcError((printed.getvalue().strip().splitlines() or [f"the benchmark ended with status {status}"])[-1])


def figures(record: Mapping[str, Any]) -> list[str]:
    """Return a line for each row of a benchmark's record."""
    return [_line(row) for row in (*record.get("rows", ()), *record.get("cases", ()))]


def _line(row: Mapping[str, Any]) -> str:
    if "pass" in row:
        beside = [f"{name} {ratio:.2f} times as long" for name, ratio in row["ratios"].items()]
        beside += [f"{name} absent: {reason}" for name, reason in row["absent"].items()]
        ours = f"{row['case']} {row['dtype']} {row['pass']}: {row['seconds']['ours'] * 1e3:.3f} ms"
        return "; ".join([ours, *beside])
    if "preset" in row:
        error = f", error {row['relative_error']:.1e}" if "relative_error" in row else ""
        return f"{row['preset']} {row.get('precision', '')} on {row['gpu']}: {row['median_seconds']:.4f} s{error}"
    ratios = [f"{row[key]:.2f} times {words}" for key, words in RATIOS.items() if key in row]
    ours = f"{row['case']}: J and K {median(row['jk_s']):.3f} s, iteration {row['iteration_s']:.3f} s"
    absent = [f"gpu4pyscf absent: {row['gpu4pyscf_absent']}"] if row.get("gpu4pyscf_absent") else []
    return "; ".join([ours, *ratios, *absent])


RATIOS = {"ratio_jk": "gpu4pyscf's J and K", "ratio_iteration": "its iteration"}
