"""Steps as child processes, so that a crash of the driver ends one of them only; their records, and the budget.

A record is written as soon as its step ends: by the child if the step passed or failed, and by this process if the
child died or was ended because it took too long. A step with a record is not run again.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts import ROOT
from scripts.device.first_run.inventory import lacking
from scripts.device.first_run.table import CHECK, Step
from scripts.device.first_run.timings import figures
from scripts.measuring import heading, write_json

Record = dict[str, Any]
PASSED, FAILED, ENDED, SKIPPED, NOT_BEGUN = "passed", "failed", "ended", "skipped", "not begun"
# A step is ended after so many times its estimated seconds, and not before LEAST.
PATIENCE, LEAST = 3, 30.0
# Seconds kept for the summary, and between the request to end and the end of a child.
RESERVE, GRACE = 2.0, 2.0
# Lines of a log that a record quotes.
QUOTED = 4
# The exit status by which compute-sanitizer tells that it found errors.
SANITIZER_STATUS = 97


@dataclass(frozen=True)
class Run:
    """What all steps of a run share.

    Attributes
    ----------
    out
        The folder of records, figures and logs.
    there
        The inventory of the machine.
    until
        When the budget ends, on the clock `time.monotonic`.
    simulate
        Whether devices are simulated.
    command
        The command of a step's child, which writes its record.
    """

    out: Path
    there: Mapping[str, Any]
    until: float
    simulate: bool
    command: Callable[[Step], Sequence[str]]

    def record(self, step: Step) -> Path:
        """The file of the record of a step."""
        return self.out / "records" / f"{step.file}.json"

    def figures(self, step: Step) -> Path:
        """The file that a benchmark writes row by row."""
        return figures_file(self.out, step)

    def left(self) -> float:
        """Seconds of the budget that are left for steps."""
        return self.until - time.monotonic() - RESERVE


def figures_file(out: Path, step: Step) -> Path:
    """The file that a benchmark writes row by row."""
    return out / "figures" / f"{step.file}.json"


def run_step(step: Step, run: Run) -> Record:
    """Return the record of a step: the kept one if there is one, else that of running it if that is possible now."""
    kept = read(run.record(step))
    if kept:
        return kept | {"kept": True}
    reasons = lacking(step.needs, run.there, run.simulate)
    if reasons:
        return _record(step, SKIPPED, "; ".join(reasons))
    left = run.left()
    if step.seconds > left:
        return _record(step, NOT_BEGUN, f"about {step.seconds:.0f} s are needed, {max(0, left):.0f} s are left")
    return _run_child(step, run, left)


def _run_child(step: Step, run: Run, left: float) -> Record:
    limit = min(left, max(LEAST, PATIENCE * step.seconds))
    log, begin = run.out / "logs" / f"{step.file}.txt", time.monotonic()
    status = _child(run.command(step), log, limit)
    seconds = time.monotonic() - begin
    record = read(run.record(step)) or _record(step, FAILED, f"{_end(status)}: {quoted(log)}")
    if status is None:
        record = _record(step, ENDED, f"ended after {limit:.0f} s: {quoted(log)}")
        # The next run has a new budget, in which the step may have the time that this one could not give.
        record["cut short"] = limit == left
    elif step.sanitized and status == SANITIZER_STATUS:
        record |= {"status": FAILED, "message": f"compute-sanitizer found errors: {quoted(log)}"}
    elif status and record["status"] == PASSED:
        record |= {"status": FAILED, "message": f"it passed, but then {_end(status)}: {quoted(log)}"}
    record |= {"seconds": seconds, "log": str(log.relative_to(run.out))}
    record["figures"] = figures(read(run.figures(step)) or {})
    write_json(record, run.record(step))
    return record


def _child(command: Sequence[str], log: Path, limit: float) -> int | None:
    """Run a command and return its exit status, or None if it took longer than `limit` seconds and was ended."""
    log.parent.mkdir(parents=True, exist_ok=True)
    environment = os.environ | {"PYTHONFAULTHANDLER": "1", "PYTHONUNBUFFERED": "1"}
    with log.open("wb") as out:
        child = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=out, stderr=subprocess.STDOUT, start_new_session=True
        )
        try:
            return child.wait(limit)
        except subprocess.TimeoutExpired:
            return None
        finally:
            _end_group(child)


def _end_group(child: subprocess.Popen[bytes]) -> None:
    """End a child with the processes that it started: compute-sanitizer has children of its own."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child.pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(GRACE)
            if number == signal.SIGTERM and not _group_lives(child.pid):
                return


def _group_lives(group: int) -> bool:
    try:
        os.killpg(group, 0)
    except ProcessLookupError:
        return False
    return True


def perform(step: Step, out: Path, simulate: bool) -> int:
    """Run a step in this process, and write its record. Returns the exit status, 1 if it failed."""
    status, message, errors = PASSED, "", {}
    try:
        errors = step.run(simulate, figures_file(out, step))
    except Exception as error:  # Whatever a driver or another package raises is to be recorded.
        traceback.print_exc()
        status, message = FAILED, f"{type(error).__name__}: {error}"
    record = _record(step, status, message) | heading() | {"errors": errors, "simulated": simulate}
    write_json(record, out / "records" / f"{step.file}.json")
    print(f"{step.name}: {status} {message}", flush=True)
    return int(status == FAILED)


def child_command(step: Step, out: Path, simulate: bool) -> list[str]:
    """The command of a step's child."""
    command = [sys.executable, "-m", "scripts.device.first_run", "--step", step.name, "--out", str(out)]
    before = ["compute-sanitizer", "--tool", "memcheck", "--error-exitcode", str(SANITIZER_STATUS)]
    return [*(before if step.sanitized else ()), *command, *["--simulate"] * simulate]


def forget(steps: Sequence[Step], out: Path, all_of_them: bool) -> None:
    """Remove the records of steps that are to run again: of all, or of those that the end of a budget cut short."""
    for step in steps:
        path = out / "records" / f"{step.file}.json"
        if all_of_them or (read(path) or {}).get("cut short"):
            path.unlink(missing_ok=True)
            figures_file(out, step).unlink(missing_ok=True)


def wrong(records: Sequence[Record]) -> list[Record]:
    """The steps of correctness that failed or did not come to an end."""
    return [r for r in records if r["kind"] == CHECK and r["status"] in (FAILED, ENDED)]


def read(path: Path) -> Record | None:
    """A record, or None if there is none."""
    return json.loads(path.read_text(encoding="utf-8")) if path.exists() else None


def quoted(log: Path) -> str:
    """The last lines of a log."""
    lines = [line.strip() for line in log.read_text(errors="replace").splitlines() if line.strip()]
    return " | ".join(lines[-QUOTED:]) or "no output"


def _end(status: int | None) -> str:
    if status is not None and status < 0:
        return f"its process was ended by {signal.Signals(-status).name}"
    return f"its process ended with status {status}"


def _record(step: Step, status: str, message: str) -> Record:
    return {"step": step.name, "kind": step.kind, "status": status, "message": message}
