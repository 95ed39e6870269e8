"""PROJECTION of DF-MP2 jobs to many devices by simulated events; nothing here was measured on more than two ranks.

    python -m scripts.model.project_ranks [--tasks FILE] [--devices 1 2 8 64 1024] [--out FILE]

Seconds of tasks are those of bench_ranks.py, scaled to larger molecules; the network's figures are assumptions, stated
in the record. Three ways to share the pairs: settled by cost with visiting rows (static), by turns with visiting rows
(cyclic), on demand from a shared file (dynamic); in the last, factors are made on demand too.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections import Counter
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path

from scripts.jobs.simulation import Network, Workload, projected
from scripts.measuring import record_file
from scripts.registry import Benchmark, Row, Rows, listing, main, several
from trnqc.host.memory import gigabytes

DEVICES = (1, 2, 8, 64, 1024)
# trn1.32xlarge: 800 Gbit/s of EFA for 16 devices (AWS Neuron documentation, "Trn1 Architecture"); the rest is assumed.
NETWORK = Network(bandwidth=800e9 / 8 / 16, latency=20e-6, files=20e9)
# nao, nocc, nvir, naux: waters with a frozen core, 24 (cc-pVDZ) or 58 (cc-pVTZ) functions each.
JOBS = {
    "(H2O)20/cc-pVDZ": (480, 80, 380, 1680),
    "(H2O)100/cc-pVTZ": (5800, 400, 5300, 14100),
    "(H2O)300/cc-pVTZ": (17400, 1200, 15900, 42300),
}
# Times the measured core: itself, and an accelerator of some thousand such cores.
SPEEDS = (1.0, 1000.0)
DECIDING = 64


def measured(asked: argparse.Namespace) -> tuple[str, Row]:
    """The first case of the record of tasks."""
    return next(iter(json.loads(asked.tasks.read_text())["cases"].items()))


def rows(asked: argparse.Namespace) -> Rows:
    """All jobs on all devices, each way with its efficiency against the least that one device takes."""
    tasks = measured(asked)[1]["tasks"]
    for job, sizes in JOBS.items():
        for speed in SPEEDS:
            one = min(way["mp2_s"] for way in row(job, sizes, speed, 1, tasks)["ways"].values())
            for devices in asked.devices:
                found = row(job, sizes, speed, devices, tasks)
                for way in found["ways"].values():
                    way["efficiency"] = one / (devices * way["mp2_s"])
                yield found


def fastest(record: Row) -> Row:
    """How often each way is the fastest on the number of devices that decides."""
    return {"fastest_at_64": dict(Counter(r["fastest"] for r in record["rows"] if r["devices"] == DECIDING))}


def row(job: str, sizes: tuple[int, ...], speed: float, devices: int, measured: Row) -> Row:
    nao, nocc, nvir, naux = sizes
    ways = projected(Workload(nao, nocc, nvir, naux, 64, measured, speed), devices, NETWORK)
    return {
        "job": job,
        "speed": speed,
        "devices": devices,
        "B": gigabytes(8.0 * nocc * nvir * naux),
        "ways": ways,
        "fastest": min(ways, key=lambda way: ways[way]["mp2_s"]),
    }


def efficiency(way: str) -> Callable[[Row], str]:
    """What prints the efficiency of a way."""
    return lambda row: f"{100 * row['ways'][way]['efficiency']:.0f} %"


BENCHMARK = Benchmark(
    "jobs",
    __doc__,
    {"PROJECTED efficiency": rows},
    {
        "--tasks": {"type": Path, "default": record_file("jobs_ranks")},
        "--devices": several(DEVICES),
    },
    place=("", "rows"),
    line=lambda row: f"{row['job']} on {row['devices']} devices of {row['speed']:g} cores: {row['fastest']}",
    table=listing(
        {"job": None, "speed": None, "devices": None}
        | {way: efficiency(way) for way in ("static", "cyclic", "dynamic")}
        | {"fastest": None}
    ),
    facts=lambda asked: {
        "kind": "PROJECTION by discrete events, not a measurement",
        "tasks_of": measured(asked)[0],
        "network": asdict(NETWORK),
    },
    folder="projected",
    summary=fastest,
)

if __name__ == "__main__":
    sys.exit(main(BENCHMARK))
