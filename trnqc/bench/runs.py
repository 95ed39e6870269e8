"""Runs of cases: a process for each contestant, which work in turns until there are enough rounds."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO

import numpy as np

from trnqc.bench.case import OURS, Case
from trnqc.bench.rows import Row
from trnqc.errors import TrnqcError
from trnqc.host.blas import fastest_core
from trnqc.host.threads import cpus

LEAST, MOST = 5, 15
"""Rounds of a case: as many as there are in any case, and as many as there are where its time allows."""
_OLD_BLAS = ("PySCF",)
"""Programs whose wheels ship an OpenBLAS that is older than many CPUs."""
_THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

IDLE = 0.2
"""Share of the CPUs' time that the processes of an idle machine may use."""


class BenchError(TrnqcError, RuntimeError):
    """A contestant failed or both disagree; the message has the end of what it printed, or the difference."""


@dataclass(frozen=True)
class Contestant:
    """A program as it is run.

    Attributes
    ----------
    name
        The name in tables.
    program
        The program, by which `Case.contestants` finds its work.
    variables
        Environment variables of its process; None for one that it must not have.
    """

    name: str
    program: str
    variables: Mapping[str, str | None]

    def environment(self) -> dict[str, str]:
        """The environment of its process: that of this one with the variables changed."""
        changed = os.environ | {name: value for name, value in self.variables.items() if value is not None}
        return {name: value for name, value in changed.items() if self.variables.get(name, value) is not None}


def contestants(case: Case, threads: int) -> tuple[Contestant, ...]:
    """Ours and the other program, all with the same number of threads.

    The OpenBLAS of PySCF's wheels, of 2018, does not know newer CPUs and chooses slow kernels on them. PySCF is
    therefore run twice: as it is installed, and with the kernels that are the fastest on this CPU, which a user chooses
    by OPENBLAS_CORETYPE. Ours is run as it is installed.
    """
    common = dict.fromkeys(_THREADS, str(threads)) | {"TRNQC_KERNELS": "wait"}
    installed = {**common, "OPENBLAS_CORETYPE": None}
    core = fastest_core() if case.rival in _OLD_BLAS else None
    if core is None:
        return Contestant(OURS, OURS, installed), Contestant(case.rival, case.rival, installed)
    return (
        Contestant(OURS, OURS, installed),
        Contestant(f"{case.rival}, {core} BLAS", case.rival, common | {"OPENBLAS_CORETYPE": core}),
        Contestant(f"{case.rival}, as installed", case.rival, installed),
    )


def load() -> float:
    """The number of processes that wanted a CPU in the last minute; 0 where the system does not tell.

    It is also 0 if they have ended, as those of an earlier measurement have: the CPUs are then idle for a second.
    """
    wanted = os.getloadavg()[0] if hasattr(os, "getloadavg") else 0.0
    return 0.0 if wanted > cpus() and _used(seconds=1.0) < IDLE else wanted


def _used(seconds: float) -> float:
    """The share of all CPUs' time that is used in the next seconds; 1 where the system does not tell."""

    def ticks() -> tuple[int, int]:
        user, nice, system, idle, waiting, *rest = map(int, Path("/proc/stat").read_text().split()[1:9])
        return idle + waiting, user + nice + system + idle + waiting + sum(rest)

    try:
        idle, total = ticks()
        time.sleep(seconds)
        idle_then, total_then = ticks()
    except (OSError, ValueError):
        return 1.0
    return 1.0 - (idle_then - idle) / max(1, total_then - total)


def measure(case: Case, threads: int, budget: float) -> Row:
    """Run all contestants in turns, after a first call of each that is not counted.

    Parameters
    ----------
    case
        What is measured.
    threads
        Threads of each contestant.
    budget
        Wall seconds of the rounds after which no more than LEAST of them are begun.

    Raises
    ------
    BenchError
        If a process fails, or if the results differ by more than the tolerance of the case.
    """
    chosen = contestants(case, threads)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="trnqc-bench-")))
        # One after another: a first call compiles what is missing, on all CPUs.
        workers = {one.name: stack.enter_context(_Worker(case, one, folder)) for one in chosen}
        rounds = _rounds(workers, budget)
        difference = max(_difference(case, workers[OURS].result, workers[one.name].result) for one in chosen[1:])
    return Row(
        case.name,
        case.group,
        case.what,
        tuple(one.name for one in chosen[1:]),
        seconds={name: tuple(turn[name]["wall"] for turn in rounds) for name in workers},
        cpu_seconds={name: tuple(turn[name]["cpu"] for turn in rounds) for name in workers},
        first_seconds={name: worker.first["wall"] for name, worker in workers.items()},
        difference=difference,
    )


class _Worker:
    """The process of a contestant, which has worked once when it is entered.

    Attributes
    ----------
    first
        Wall and CPU seconds of its first call.
    result
        The file with the result of that call.
    """

    def __init__(self, case: Case, contestant: Contestant, folder: Path) -> None:
        self._who = f"{case.name}: the process of {contestant.name}"
        self.result = folder / f"{contestant.name}.npy"
        self._errors: IO[str] = (folder / f"{contestant.name}.err").open("w+", encoding="utf-8")
        command = [sys.executable, "-m", "trnqc.bench.job", case.name, contestant.program, str(self.result)]
        self._process = subprocess.Popen(
            command,
            env=contestant.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def __enter__(self) -> _Worker:
        try:
            self.first = self._answer()
        except BaseException:
            self.__exit__(None, None, None)
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._process.kill()
        self._process.communicate()
        self._errors.close()

    def work(self) -> dict[str, float]:
        """Work once more; wall and CPU seconds of a call."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write("again\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            # The process has ended, which its missing answer reports.
            pass
        return self._answer()

    def _answer(self) -> dict[str, float]:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            status = self._process.wait()
            self._errors.seek(0)
            last = (self._errors.read().strip().splitlines() or ["it printed nothing"])[-1]
            raise BenchError(f"{self._who} ended with status {status}: {last}")
        seconds: dict[str, float] = json.loads(line)
        return seconds


def _rounds(workers: Mapping[str, _Worker], budget: float) -> Sequence[Mapping[str, dict[str, float]]]:
    """Answers of all workers by round; the order of the contestants turns by one place a round."""
    rounds: list[Mapping[str, dict[str, float]]] = []
    names, began = list(workers), time.monotonic()
    while len(rounds) < LEAST or (len(rounds) < MOST and time.monotonic() - began < budget):
        rounds.append({name: workers[name].work() for name in names})
        names = names[1:] + names[:1]
    return rounds


def _difference(case: Case, ours: Path, theirs: Path) -> float:
    """The largest difference of two results relative to the largest element of the other program's."""
    mine, other = np.load(ours), np.load(theirs)
    if mine.shape != other.shape:
        raise BenchError(f"{case.name}: trnqc returned the shape {mine.shape}, {case.rival} {other.shape}")
    difference = float(np.abs(mine - other).max() / np.abs(other).max())
    if difference > case.tolerance:
        raise BenchError(
            f"{case.name}: the results of trnqc and {case.rival} differ by {difference:.1e} relative to the largest "
            f"element; at most {case.tolerance:.0e} was expected"
        )
    return difference
