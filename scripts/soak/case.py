"""A case: what is done to trnqc, what is expected, and what happened."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from scripts import ROOT

# Seconds for one process of a case.
PATIENCE = 600.0


class Broken(Exception):
    """Something else happened than was expected."""


class NotTried(Exception):
    """This machine lacks what the case needs."""


@dataclass(frozen=True)
class Case:
    """One thing that is tried.

    Attributes
    ----------
    name
        What is done, in words.
    expected
        What should happen.
    tried
        Called with an empty folder. Returns what happened, or raises Broken or NotTried.
    """

    name: str
    expected: str
    tried: Callable[[Path], str]


def row(case: Case) -> dict[str, Any]:
    """Try a case in a folder of its own."""
    began = time.perf_counter()
    with tempfile.TemporaryDirectory(prefix="trnqc-soak-") as folder:
        try:
            verdict, happened = "as expected", case.tried(Path(folder))
        except Broken as error:
            verdict, happened = "broken", str(error)
        except NotTried as error:
            verdict, happened = "not tried", str(error)
    seconds = round(time.perf_counter() - began, 1)
    return {
        "case": case.name,
        "expected": case.expected,
        "happened": happened,
        "verdict": verdict,
        "seconds": seconds,
    }


def rows(cases: Sequence[Case]) -> Iterator[dict[str, Any]]:
    """Try cases one after another."""
    return map(row, cases)


def work(*words: str) -> list[str]:
    """The command of some jobs; see `scripts.soak.work`."""
    return [sys.executable, "-m", "scripts.soak.work", *words]


def trnqc(*words: str) -> list[str]:
    """A command of trnqc."""
    return [sys.executable, "-m", "trnqc", *words]


def run(
    command: Sequence[str],
    environment: Mapping[str, str] | None = None,
    *,
    prepare: Callable[[], None] | None = None,
    folder: Path | str = ROOT,
) -> subprocess.CompletedProcess[str]:
    """Run a command with one thread and further variables of the environment.

    Parameters
    ----------
    command
        The words of the command.
    environment
        Variables that are added to those of this process.
    prepare
        Called in the new process before the command starts.
    folder
        The folder in which it runs.
    """
    own = {"PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "TRNQC_KERNELS": "wait"}
    try:
        return subprocess.run(
            command,
            env=os.environ | own | dict(environment or {}),
            cwd=folder,
            preexec_fn=prepare,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=PATIENCE,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise Broken(f"not finished after {PATIENCE:.0f} s") from None


def right(done: subprocess.CompletedProcess[str], warning: str = "") -> str:
    """What a process did that should have succeeded; `warning` is part of the one that was expected, if one was."""
    if done.returncode:
        raise Broken(f"exit status {done.returncode}: {_last(done.stderr)}")
    if warning not in done.stderr:
        raise Broken(f"no warning about {warning!r}: {_last(done.stderr) or 'nothing on standard error'}")
    return "right results" + (", with a warning" if warning else "")


def refused(done: subprocess.CompletedProcess[str], words: str) -> str:
    """What a process did that should have ended with one error of trnqc that contains `words`."""
    line = _last(done.stderr)
    if done.returncode != 2 or "Traceback" in done.stderr or "trnqc: error:" not in done.stderr:
        raise Broken(f"exit status {done.returncode}: {line}")
    error = done.stderr[done.stderr.index("trnqc: error:") :].strip()
    if words not in error:
        raise Broken(f"an error without {words!r}: {error[:300]}")
    return f"one error: {error.removeprefix('trnqc: error: ').splitlines()[0][:160]}"


def _last(text: str) -> str:
    return (text.strip().splitlines() or [""])[-1][:300]
