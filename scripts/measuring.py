"""What benchmark scripts share: contestants that take turns, a description of the machine, records as JSON."""

from __future__ import annotations

import datetime
import json
import os
import platform
import re
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from statistics import median
from typing import Any

from scripts import ROOT, vectors
from trnqc.host.files import write_aside

# Benchmarks wait for our kernels: PySCF's integrals would serve while kernels are being compiled.
os.environ.setdefault("TRNQC_KERNELS", "wait")

THREAD_VARIABLES = ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS")
MACHINE_VARIABLE = "TRNQC_BENCH_MACHINE"


def one_thread() -> None:
    """Restart this script with BLAS and OpenMP on one thread, where the environment does not set their threads.

    The libraries read these variables when they are loaded, so a script calls this before it measures anything.
    """
    missing = {name: "1" for name in THREAD_VARIABLES if name not in os.environ}
    if missing:
        vectors.restart(missing)


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


def process(
    module: str,
    *arguments: str,
    environment: Mapping[str, str],
    python: str = sys.executable,
    timeout: float | None = None,
) -> Any:
    """What the last line of a module's output says as JSON; it runs in a process of its own from the checkout's root.

    Parameters
    ----------
    module, *arguments
        What is run.
    environment
        Variables of the process beside those of this one.
    python
        The interpreter, which may be that of another environment.
    timeout
        Seconds after which the process is ended, with subprocess.TimeoutExpired.

    Raises
    ------
    SystemExit
        If there is no such interpreter or the process fails.
    """
    line = [python, "-W", "ignore", "-m", module, *arguments]
    variables = os.environ | dict(environment)
    try:
        done = subprocess.run(line, cwd=ROOT, env=variables, capture_output=True, text=True, timeout=timeout)
    except FileNotFoundError as error:
        raise SystemExit(f"expected the python of an environment, found {python}: {error}") from error
    if done.returncode:
        raise SystemExit(f"{shlex.join(line)} ended with status {done.returncode}\n{done.stderr[-2000:]}")
    return json.loads(done.stdout.splitlines()[-1])


def machine() -> dict[str, Any]:
    """System, CPU, load, vector length and chosen OpenBLAS kernels of this machine, for the head of a record."""
    facts: dict[str, Any] = {"system": platform.platform(), "cpus": os.cpu_count(), "load_average": os.getloadavg()}
    facts |= {"vectors": vectors.current(), vectors.CORE_VARIABLE: os.environ.get(vectors.CORE_VARIABLE)}
    return facts | cpu()


def cpu() -> dict[str, str]:
    """Model and cache of the first CPU, as Linux reports them; empty on other systems."""
    info = Path("/proc/cpuinfo")
    if not info.exists():
        return {}
    lines = dict(line.split(":", 1) for line in info.read_text().split("\n\n")[0].splitlines() if ":" in line)
    fields = {key.strip(): value.strip() for key, value in lines.items()}
    return {key: fields[key] for key in ("model name", "cpu family", "model", "cache size") if key in fields}


def machine_name() -> str:
    """Folder name for records of this machine: TRNQC_BENCH_MACHINE, or one made of the CPU's model name."""
    model = cpu().get("model name", platform.processor() or platform.machine())
    known = next((name for name in ("epyc", "xeon") if name in model.lower()), None)
    return os.environ.get(MACHINE_VARIABLE) or known or slug(model)


def slug(name: str) -> str:
    """A name as part of a path: "NVIDIA H100 PCIe" is nvidia-h100-pcie."""
    return re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-")


def record_file(name: str, machine: str | None = None) -> Path:
    """The file of a benchmark's record: profiles/measured/MACHINE/NAME.json; of this machine if none is named."""
    return ROOT / "profiles" / "measured" / (machine or machine_name()) / f"{name}.json"


def command() -> str:
    """The command that started this script, as a user types it.

    The option `--out` is left out: it says where the record lies, which whoever reads the record knows.
    """
    spec = getattr(sys.modules["__main__"], "__spec__", None)
    script = ["-m", spec.name.removesuffix(".__main__")] if spec else sys.argv[:1]
    arguments, words = [], iter(sys.argv[1:])
    for word in words:
        if word == "--out":
            next(words, None)
        elif not word.startswith("--out="):
            arguments.append(word)
    return shlex.join(["python", *script, *arguments])


def heading() -> dict[str, Any]:
    """Command and date, for the head of a record."""
    date = datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
    return {"command": command(), "date": date}


def write_json(record: Any, path: Path) -> None:
    """Write a record as JSON; a reader sees the old file or the new one, never a part."""
    path.parent.mkdir(parents=True, exist_ok=True)
    write_aside(path, json.dumps(record, indent=1) + "\n")


def write_part(path: Path, part: str, rows: list[dict[str, Any]], **facts: Any) -> None:
    """Write one part of a benchmark, with command and machine, in place of the file's part of that name."""
    record = json.loads(path.read_text(encoding="utf-8")) if path.exists() else {"parts": {}}
    record["parts"][part] = heading() | {"machine": machine(), **facts, "rows": rows}
    write_json(record, path)
