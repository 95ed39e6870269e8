"""MP2 pair energies on GPUs: energies per hour and per dollar, beside the published row of an A10G.

    python -m scripts.device.bench_mp2_cuda --preset medium large --dollars-per-hour 1.006 [--out FILE]
    python -m scripts.device.bench_mp2_cuda --preset tiny --simulate      every step but the GPU: no figure counts

An energy is one call of the pair step on all GPUs: B is loaded and converted, T and its sums are computed, and the sums
are read. The gate: both spin components agree with the fp64 energies of the CPU (`scripts.device.shapes.GATE`). The
first call compiles and is reported apart. Without --out the record goes to profiles/measured/GPU/mp2.json.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import sys
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import numpy as np
from rich.table import Table

from scripts import registry
from scripts.device.shapes import GATE, PRESETS, factors, needed_tflop
from scripts.registry import Benchmark, Rows, number, several
from trnqc import backends
from trnqc.backends.cuda.backend import Cuda
from trnqc.backends.cuda.formats import DEVICE_FORMATS
from trnqc.backends.cuda.pairs import CudaPairStep
from trnqc.backends.cuda.products import Gpu, SimulatedProducts
from trnqc.backends.cuda.solvers import SimulatedSolvers
from trnqc.backends.pair_step import PairOptions
from trnqc.errors import TrnqcError
from trnqc.jit.simulated_device import SimulatedDevice

# Seconds of a whole DF-MP2 energy by cuBLAS on an A10G, the GPU baseline of the published benchmarks of trnblas. They
# include the steps before the pairs, which our figure does not have.
A10G_SECONDS = {"small": 0.001, "medium": 0.266, "large": 2.018}
# US dollars per hour of AWS's g5.xlarge, which has one A10G, with Linux on demand in us-east-1. It is printed by a
# comparison of prices of 17 June 2026, not by AWS's own list:
# factualminds.com/blog/amazon-ec2-on-demand-pricing-instance-families-2026.
A10G_DOLLARS = 1.006


def simulated_gpus() -> tuple[Gpu, ...]:
    """One simulated device with its products and solvers."""
    simulated = SimulatedDevice(streams=3)
    return (Gpu(simulated, SimulatedProducts(simulated), SimulatedSolvers(simulated)),)


def rates(seconds: float, dollars_per_hour: float | None) -> dict[str, float]:
    """Energies per hour, and per dollar if the price is known."""
    per_hour = 3600 / seconds
    return {"per_hour": per_hour} | ({"per_dollar": per_hour / dollars_per_hour} if dollars_per_hour else {})


def measure(gpus: Sequence[Gpu], preset: str, precision: str, repeats: int, price: float | None) -> dict[str, Any]:
    """One record. Raises TrnqcError if the energies fail the gate, before anything is timed."""
    B, eps_occ, eps_vir = factors(*PRESETS[preset])
    exact = backends.get("cpu").pair_step("fp64").triangle(B, eps_occ, eps_vir)
    step = CudaPairStep(tuple(gpus), PairOptions(precision))
    seconds = []
    for n in range(repeats + 1):
        begin = time.perf_counter()
        energies = step.triangle(B, eps_occ, eps_vir, None)
        seconds.append(time.perf_counter() - begin)
        error = max(abs(energies.e_os - exact.e_os), abs(energies.e_ss - exact.e_ss)) / abs(exact.e_os)
        if n == 0 and not error <= GATE[precision]:
            raise TrnqcError(
                f"{precision} at {preset}: the relative error is {error:.1e}, allowed {GATE[precision]:.0e}; "
                "nothing was timed"
            )
    first, *times = seconds
    median = statistics.median(times)
    row: dict[str, Any] = {
        "preset": preset,
        "shape": PRESETS[preset],
        "precision": precision,
        "ran_on": energies.ran_on,
    }
    row["gpu"] = ", ".join(gpu.device.name for gpu in gpus)
    row |= {"relative_error": error, "first_seconds": first, "repeat_seconds": times, "median_seconds": median}
    return row | {"tflop_per_second": needed_tflop(*PRESETS[preset]) / median} | rates(median, price)


def published(presets: Sequence[str], dollars_per_hour: float = A10G_DOLLARS) -> list[dict[str, Any]]:
    """The rows of the A10G, at a price of the machine that has it."""
    known = [preset for preset in presets if preset in A10G_SECONDS]
    return [
        {"preset": preset, "gpu": "A10G, published", "median_seconds": A10G_SECONDS[preset]}
        | rates(A10G_SECONDS[preset], dollars_per_hour)
        for preset in known
    ]


def table(part: str, rows: Sequence[dict[str, Any]]) -> Table:
    """Rows for people."""
    columns = ("preset", "precision", "gpu", "median_seconds", "tflop_per_second", "per_hour", "per_dollar")
    printed = Table(*(name.replace("_", " ") for name in columns))
    for row in rows:
        cells = (row.get(name, "") for name in columns)
        printed.add_row(*(f"{x:.4g}" if isinstance(x, float) else str(x) for x in cells))
    return printed


def opened(asked: argparse.Namespace) -> str:
    """Open all GPUs, or a simulated one."""
    asked.gpus = simulated_gpus() if asked.simulate else Cuda().gpus()
    return str(asked.gpus[0].device.name)


def rows(asked: argparse.Namespace) -> Rows:
    """The published rows, then ours."""
    yield from published(asked.preset, asked.a10g_dollars_per_hour)
    for preset, precision in itertools.product(asked.preset, asked.precision):
        yield measure(asked.gpus, preset, precision, asked.repeats, asked.dollars_per_hour)


def facts(asked: argparse.Namespace) -> dict[str, Any]:
    """GPUs and prices."""
    prices = {name: getattr(asked, name) for name in ("dollars_per_hour", "a10g_dollars_per_hour")}
    return {"gpus": [gpu.products.label for gpu in asked.gpus], "numpy": np.__version__} | prices


BENCHMARK = Benchmark(
    "mp2",
    __doc__,
    {"MP2": rows},
    {
        "--preset": several(["medium", "large"], choices=PRESETS),
        "--precision": several(["fp64", "fp32", "bf16x3"], choices=tuple(DEVICE_FORMATS)),
        "--repeats": number(5),
        "--dollars-per-hour": {"type": float, "help": "price of this machine, for energies per dollar"},
        "--a10g-dollars-per-hour": number(A10G_DOLLARS, "price of a machine with an A10G"),
    },
    place=("", "rows"),
    line=lambda row: f"{row['preset']} on {row['gpu']}: {row['median_seconds']:.4g} s",
    table=table,
    facts=facts,
    device=opened,
)
main = partial(registry.main, BENCHMARK)

if __name__ == "__main__":
    sys.exit(main())
