"""What the benchmark scripts share: contestants in turns, the machine in words, JSON written aside and renamed."""

from __future__ import annotations

import datetime
import json
import os
import platform
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from scripts import vectors

# What is measured are our kernels, and not PySCF's integrals, which serve while kernels are being compiled.
os.environ.setdefault("TRNQC_KERNELS", "wait")


def in_turns(rounds: int, contestants: Mapping[str, Callable[[], Any]]) -> dict[str, list[Any]]:
    """Answers of each contestant: once dropped, then `rounds` times, the order turned by one place a round."""
    names = list(contestants)
    answers: dict[str, list[Any]] = {name: [] for name in names}
    for n in range(-1, rounds):
        turn = max(n, 0) % len(names)
        for name in names[turn:] + names[:turn]:
            answer = contestants[name]()
            if n >= 0:
                answers[name].append(answer)
    return answers


def clocked(work: Callable[[], Any]) -> Callable[[], tuple[float, float]]:
    """`work` as a contestant that answers with its wall and CPU seconds."""

    def run() -> tuple[float, float]:
        wall, cpu = time.perf_counter(), time.process_time()
        work()
        return time.perf_counter() - wall, time.process_time() - cpu

    return run


def ratio(above: list[tuple[float, float]], below: list[tuple[float, float]]) -> dict[str, float]:
    """Medians of the ratios within each round."""
    wall, cpu = (median(a[n] / b[n] for a, b in zip(above, below)) for n in (0, 1))
    return {"wall": wall, "cpu": cpu}


def machine() -> dict[str, Any]:
    facts = {"system": platform.platform(), "cpus": os.cpu_count(), "load_average": os.getloadavg()}
    facts["vectors"] = vectors.current()
    info = Path("/proc/cpuinfo")
    if info.exists():
        lines = dict(line.split(":", 1) for line in info.read_text().split("\n\n")[0].splitlines() if ":" in line)
        fields = {key.strip(): value.strip() for key, value in lines.items()}
        facts |= {key: fields[key] for key in ("model name", "cpu family", "model", "cache size") if key in fields}
    return facts


def heading() -> dict[str, Any]:
    """Command and date, for the head of a record."""
    date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return {"command": " ".join(["python", *sys.argv]), "date": date}


def write_json(record: Any, path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    aside = path.with_suffix(".tmp")
    aside.write_text(json.dumps(record, indent=1) + "\n")
    aside.replace(path)


def write_part(path: Path, part: str, rows: list[dict[str, Any]], **facts: Any) -> None:
    """Rows of one part of a benchmark, with what was measured on, in place of the file's; other parts stay."""
    record = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"parts": {}}
    record["parts"][part] = heading() | {"machine": machine(), **facts, "rows": rows}
    write_json(record, path)
