"""PROJECTION of DF-MP2 jobs to many devices by simulated events; nothing here was measured on more than two ranks.

    python -m scripts.model.project_ranks [--tasks FILE] [--out profiles/projected/jobs.json]

Seconds of tasks are those of bench_ranks.py, scaled to larger molecules; the network's figures are assumptions, stated
in the record. Three ways to share the pairs: settled by cost with visiting rows (static), by turns with visiting rows
(cyclic), on demand from a shared file (dynamic); in the last, factors are made on demand too.
"""

from __future__ import annotations

import argparse
import json
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from scripts import ROOT
from scripts.jobs.simulation import Network, Workload, projected
from scripts.measuring import heading, record_file, write_json
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


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--tasks", type=Path, default=record_file("jobs_ranks"))
    parser.add_argument("--devices", type=int, nargs="+", default=DEVICES)
    parser.add_argument("--out", type=Path, default=ROOT / "profiles" / "projected" / "jobs.json")
    args = parser.parse_args()
    case, measured = next(iter(json.loads(args.tasks.read_text())["cases"].items()))
    rows = [
        row(job, sizes, speed, devices, measured["tasks"])
        for job, sizes in JOBS.items()
        for speed in SPEEDS
        for devices in args.devices
    ]
    add_efficiency(rows)
    best = Counter(r["fastest"] for r in rows if r["devices"] == DECIDING)
    record = heading() | {
        "kind": "PROJECTION by discrete events, not a measurement",
        "tasks_of": case,
        "network": asdict(NETWORK),
        "rows": rows,
        "fastest_at_64": dict(best),
    }
    write_json(record, args.out)
    show(rows)


def row(job: str, sizes: tuple[int, ...], speed: float, devices: int, measured: dict[str, Any]) -> dict[str, Any]:
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


def add_efficiency(rows: list[dict[str, Any]]) -> None:
    """Of each way, against the least that one device takes."""
    one = {(r["job"], r["speed"]): min(w["mp2_s"] for w in r["ways"].values()) for r in rows if r["devices"] == 1}
    for r in rows:
        for way in r["ways"].values():
            way["efficiency"] = one[r["job"], r["speed"]] / (r["devices"] * way["mp2_s"])


def show(rows: list[dict[str, Any]]) -> None:
    table = Table("job", "device", "devices", "static", "cyclic", "dynamic", "fastest", title="PROJECTED efficiency")
    for r in rows:
        shown = [f"{100 * r['ways'][way]['efficiency']:.0f} %" for way in ("static", "cyclic", "dynamic")]
        table.add_row(r["job"], f"{r['speed']:g} cores", str(r["devices"]), *shown, r["fastest"])
    Console().print(table)


if __name__ == "__main__":
    main()
