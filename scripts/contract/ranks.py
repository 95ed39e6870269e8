"""One iteration of closed-shell coupled cluster on one and on two ranks: times, and bytes between ranks.

Ranks have one thread each. Wall times need an idle core for each rank; on a busy machine the CPU seconds of the slower
rank show how the work is divided, but they hold what a rank computes while it waits for messages too.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from scripts import ROOT

RANKS = (1, 2)
ROUNDS = 3
# Bytes of memory of each rank beside operands and results.
LIMITS = (None, 300_000_000)


def shared_iterations() -> dict[str, Any]:
    """The figures by limit: times by number of ranks, efficiencies, and bytes."""
    figures: dict[str, Any] = {}
    for limit in LIMITS:
        rows = {ranks: _iterations(ranks, limit) for ranks in RANKS}
        figures[f"limit {limit}"] = _compared(rows)
    return figures


def _iterations(ranks: int, limit: int | None) -> dict[str, Any]:
    """What rank 0 writes of a job of so many ranks."""
    with tempfile.TemporaryDirectory() as place:
        out = Path(place) / "times.json"
        command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", str(ranks)]
        command += ["-m", "scripts.contract.rank_iteration", str(out), str(ROUNDS), str(limit or 0)]
        subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)
        return json.loads(out.read_text(encoding="utf-8"))


def _compared(rows: dict[int, dict[str, Any]]) -> dict[str, Any]:
    """Medians over the rounds of the slowest rank, and efficiencies: seconds of one rank over those of all ranks."""
    slowest = {}
    for ranks, row in rows.items():
        rounds = np.array(row["wall_cpu_s"]).max(axis=0)
        slowest[ranks] = [median(column) for column in rounds.T.tolist()]
    efficiency = {
        ranks: {name: slowest[1][k] / (ranks * slowest[ranks][k]) for k, name in enumerate(("wall", "cpu"))}
        for ranks in rows
    }
    for ranks, row in rows.items():
        assert row["received_bytes"] == row["predicted_bytes"], f"{row} moved other bytes than planned"
        print(
            f"{ranks} ranks: (wall, CPU) s of the slowest rank {slowest[ranks]}, efficiency {efficiency[ranks]}, "
            f"{row['received_bytes'] / 1e6:.1f} MB received"
        )
    return {"ranks": rows, "slowest_wall_cpu_s": slowest, "efficiency": efficiency}
