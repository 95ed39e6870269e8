"""Time of the fused MP2 pair kernel on a Trainium device, measured after its results agree with the CPU's.

    python -m scripts.device.bench_mp2 --preset medium --precision fp32 bf16x3 [--out FILE]
    python -m scripts.device.bench_mp2 --preset tiny --simulate           every step but the device: no figure counts

Factors are random with elements of (ia|jb) near 0.05 Hartree. The first pass compiles and is reported apart; warm-up
passes follow; a timed pass is all launches for all pairs, and the clock stops when the device has been synchronised.
Reported are every repeat, their median, and the rate of needed operations: nocc nvir (nocc nvir + 1) naux, each
product once. Without --out the record goes to profiles/measured/MACHINE/mp2_trainium.json.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import os
import platform
import socket
import statistics
import sys
import time
from typing import Any

import numpy as np

from nki_kernels import mp2_plan as plan
from nki_kernels.descriptors.mp2_energy import KERNEL
from scripts.device.shapes import GATE, PRESETS, factors, needed_tflop
from scripts.registry import Benchmark, Row, Rows, main, number, several
from trnqc import __version__, backends
from trnqc.backends.neuron.device import NeuronDevice, open_device
from trnqc.backends.nki.device import PRECISIONS
from trnqc.backends.nki.launch import host_kernels, launch
from trnqc.backends.nki.vendor import synchronize, to_numpy
from trnqc.errors import TrnqcError
from trnqc.tuning.conditions import instance_type


class Launches:
    """All launches of one job with their operands on the device."""

    def __init__(self, device: NeuronDevice, B: np.ndarray, eps_occ: np.ndarray, eps_vir: np.ndarray, precision: str):
        nocc, nvir, naux = B.shape
        start = time.perf_counter()
        tiles = plan.choose_tiles(nvir, naux, 2 if precision == "bf16" else 4)
        packed, virtuals = plan.pack_factors(B, tiles, precision), plan.pack_virtuals(eps_vir, tiles)
        self.launches = plan.launches(nocc, eps_occ, tiles, device.cores, device.pairs_a_launch)
        middle = time.perf_counter()
        shared = [device.put(x) for x in (packed, *virtuals)]
        self.arguments = [
            (*shared, *(device.put(x) for x in (w.e_pair, w.rows, w.bounds)), nvir, naux, tiles.kchunk)
            for _, w in self.launches
        ]
        self.kind, self.nocc = shared[0].device.type, nocc
        synchronize(self.kind)
        self.seconds = {"pack": middle - start, "upload": time.perf_counter() - middle}

    def run(self) -> tuple[float, list[Any]]:
        """Seconds of one pass over all pairs, device synchronised, and its results on the device."""
        start = time.perf_counter()
        results = [launch(KERNEL, *arguments) for arguments in self.arguments]
        synchronize(self.kind)
        return time.perf_counter() - start, results

    def energies(self, results: list[Any]) -> tuple[float, float]:
        """(E_os, E_ss) in Hartree, added in fp64."""
        sums = [
            plan.sum_lanes(to_numpy(result.cpu()), work, len(pairs))
            for result, (pairs, work) in zip(results, self.launches)
        ]
        return sum(float(os.sum()) for os, _ in sums), sum(float(ss.sum()) for _, ss in sums)


def measure(device: NeuronDevice, preset: str, precision: str, warmup: int, repeats: int) -> Row:
    """One record; raises TrnqcError if the device's energies fail the gate, before anything is timed."""
    shape = PRESETS[preset]
    arrays = factors(*shape)
    reference = backends.get("cpu").pair_step("fp64").triangle(*arrays)
    exact_os, exact_ss = float(reference.os.sum()), float(reference.ss.sum())
    launches = Launches(device, *arrays, precision)
    first, results = launches.run()
    os, ss = launches.energies(results)
    error = max(abs(os - exact_os), abs(ss - exact_ss)) / abs(exact_os)
    if not error <= GATE[precision]:
        raise TrnqcError(
            f"{precision} at {shape}: E_os = {os!r}, E_ss = {ss!r} against {exact_os!r}, {exact_ss!r} on the CPU: "
            f"relative error {error:.1e}, allowed {GATE[precision]:.0e}; nothing was timed"
        )
    for _ in range(warmup):
        launches.run()
    times = [launches.run()[0] for _ in range(repeats)]
    (nocc, nvir, naux), median = shape, statistics.median(times)
    return {
        "preset": preset,
        "nocc": nocc,
        "nvir": nvir,
        "naux": naux,
        "precision": precision,
        "launches": len(launches.launches),
        "cores": device.cores,
        "relative_error": error,
        "first_pass_seconds": first,
        "repeat_seconds": times,
        "median_seconds": median,
        "needed_tflop": needed_tflop(*shape),
        "tflop_per_second": needed_tflop(*shape) / median,
        **{f"{stage}_seconds": seconds for stage, seconds in launches.seconds.items()},
    }


def opened(asked: argparse.Namespace) -> str:
    """Open the device, or CPU tensors with kernels in the simulator."""
    asked.versions = {} if asked.simulate else dict(backends.get("neuron").status().versions)
    asked.neuron = NeuronDevice("cpu", 1) if asked.simulate else open_device()
    return instance_type() or socket.gethostname()


def rows(asked: argparse.Namespace) -> Rows:
    """Every precision of every shape."""
    with host_kernels("simulator") if asked.simulate else contextlib.nullcontext():
        for preset, precision in itertools.product(asked.preset, asked.precision):
            yield measure(asked.neuron, preset, precision, asked.warmup, asked.repeats)


def facts(asked: argparse.Namespace) -> dict[str, Any]:
    """Versions, and the settings of the device."""
    import torch

    versions = {"trnqc": __version__, "python": platform.python_version(), "torch": torch.__version__}
    settings = {name: value for name, value in sorted(os.environ.items()) if name.startswith("NEURON_")}
    return {"versions": versions | asked.versions, "environment": settings}


def text(row: Row) -> str:
    """The error and the times of a row."""
    return (
        f"{row['preset']} {row['precision']}: error {row['relative_error']:.1e}, first pass "
        f"{row['first_pass_seconds']:.2f} s, median of {len(row['repeat_seconds'])} {row['median_seconds']:.4f} s, "
        f"{row['tflop_per_second']:.3f} TFLOP/s"
    )


BENCHMARK = Benchmark(
    "mp2_trainium",
    __doc__,
    {"MP2": rows},
    {
        "--preset": several(["medium"], choices=PRESETS),
        "--precision": several(["fp32", "bf16x3"], choices=PRECISIONS),
        "--warmup": number(2),
        "--repeats": number(10),
    },
    place=("", "rows"),
    line=text,
    facts=facts,
    device=opened,
)

if __name__ == "__main__":
    sys.exit(main(BENCHMARK))
