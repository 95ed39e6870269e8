"""Runs of cases: processes in turns until there are enough rounds or the time is spent."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

import numpy as np

from trnqc.bench.case import OURS, Case
from trnqc.bench.rows import Row
from trnqc.errors import TrnqcError
from trnqc.host.blas import fastest_core

# Most rounds of a case. A further round begins only while the case has time left.
ROUNDS = 3


class BenchError(TrnqcError, RuntimeError):
    """A contestant failed or both disagree; the message has the end of what it printed, or the difference."""


def environment(threads: int, installed_blas: bool = False) -> dict[str, str]:
    """Variables of both contestants' processes: threads, and the fastest kernels that their OpenBLAS has.

    The OpenBLAS of PySCF's wheels, of 2018, does not know newer CPUs and chooses slow kernels on them, unless
    OPENBLAS_CORETYPE names better ones. `installed_blas` leaves the choice to the libraries, as for users who do not
    set that variable.
    """
    names = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")
    chosen = dict.fromkeys(names, str(threads)) | {"TRNQC_KERNELS": "wait"}
    core = None if installed_blas else fastest_core()
    return chosen | ({"OPENBLAS_CORETYPE": core} if core else {})


def measure(case: Case, variables: Mapping[str, str], budget: float) -> Row:
    """Run both contestants in turns.

    Parameters
    ----------
    case
        What is measured.
    variables
        Environment of the processes, from `environment`.
    budget
        Wall seconds after which no further round begins. There is one round in any case.

    Raises
    ------
    BenchError
        If a process fails, or if the results differ by more than the tolerance of the case.
    """
    with tempfile.TemporaryDirectory(prefix="trnqc-bench-") as folder:
        first = _run(case, OURS, variables, Path(folder))
        order = [case.rival, OURS]
        runs: dict[str, list[dict[str, float]]] = {who: [] for who in order}
        began, longest = time.monotonic(), 0.0
        # A round begins only if it is expected to end in time.
        while not runs[OURS] or (len(runs[OURS]) < ROUNDS and time.monotonic() - began + longest <= budget):
            start = time.monotonic()
            for who in order:
                runs[who].append(_run(case, who, variables, Path(folder)))
            order.reverse()
            longest = max(longest, time.monotonic() - start)
        difference = _difference(Path(folder), case)
    if difference > case.tolerance:
        raise BenchError(
            f"{case.name}: the results of trnqc and {case.rival} differ by {difference:.1e} relative to the largest "
            f"element; at most {case.tolerance:.0e} was expected"
        )
    return Row(
        case.name,
        case.group,
        case.what,
        case.rival,
        seconds={who: tuple(one["wall"] for one in many) for who, many in runs.items()},
        cpu_seconds={who: tuple(one["cpu"] for one in many) for who, many in runs.items()},
        compile_seconds=max(first["process"] - runs[OURS][0]["process"], 0.0),
        difference=difference,
    )


def _run(case: Case, who: str, variables: Mapping[str, str], folder: Path) -> dict[str, float]:
    """Wall and CPU seconds of one run, and wall seconds of the process."""
    command = [sys.executable, "-m", "trnqc.bench.job", case.name, who, str(folder / f"{who}.npy")]
    start = time.monotonic()
    done = subprocess.run(command, env=os.environ | dict(variables), capture_output=True, text=True, check=False)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or ["it printed nothing"])[-1]
        raise BenchError(f"{case.name}: the process of {who} ended with status {done.returncode}: {last}")
    seconds: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return seconds | {"process": time.monotonic() - start}


def _difference(folder: Path, case: Case) -> float:
    ours, theirs = (np.load(folder / f"{who}.npy") for who in (OURS, case.rival))
    if ours.shape != theirs.shape:
        raise BenchError(f"{case.name}: trnqc returned the shape {ours.shape}, {case.rival} {theirs.shape}")
    return float(np.abs(ours - theirs).max() / np.abs(theirs).max())
