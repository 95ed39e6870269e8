"""Runs of cases: processes of all contestants, which work in turns until there are enough rounds."""

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
    by OPENBLAS_CORETYPE. Ours is run as it is installed. Where PySCF's BLAS makes no difference, it is run once.
    """
    common = dict.fromkeys(_THREADS, str(threads)) | {"TRNQC_KERNELS": "wait"}
    installed = {**common, "OPENBLAS_CORETYPE": None}
    core = fastest_core() if case.rival in _OLD_BLAS else None
    if core is None:
        return Contestant(OURS, OURS, installed), Contestant(case.rival, case.rival, installed)
    slower = (Contestant(f"{case.rival}, as installed", case.rival, installed),) if case.blas else ()
    return (
        Contestant(OURS, OURS, installed),
        Contestant(f"{case.rival}, {core} BLAS", case.rival, common | {"OPENBLAS_CORETYPE": core}),
        *slower,
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
    """Run all contestants of one case in processes of their own, see `Contest.measure`."""
    with Contest(threads) as contest:
        return contest.measure(case, budget)


class Contest:
    """The processes that measure several cases, one for each contestant of a group of cases.

    Parameters
    ----------
    threads
        Threads of each contestant.
    """

    def __init__(self, threads: int) -> None:
        self._threads, self._group = threads, ""
        self._workers: dict[str, _Worker] = {}

    def __enter__(self) -> Contest:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end()

    def measure(self, case: Case, budget: float) -> Row:
        """Run all contestants in turns, after a first call of each that is not counted.

        Parameters
        ----------
        case
            What is measured.
        budget
            Wall seconds of the rounds after which no more than LEAST of them are begun.

        Raises
        ------
        BenchError
            If a process fails, or if the results differ by more than the tolerance of the case.
        """
        if case.group != self._group:
            # Another group has other libraries, which could change what its contestants load.
            self._end()
            self._group = case.group
        chosen = contestants(case, self._threads)
        for one in chosen:
            if one.name not in self._workers:
                self._workers[one.name] = _Worker(one)
        workers = {one.name: self._workers[one.name] for one in chosen}
        for worker in workers.values():
            worker.ask("prepare", case.name)
        for worker in workers.values():
            worker.answer()
        # One after another: a first call compiles what is missing, on all CPUs.
        first = {name: worker.work() for name, worker in workers.items()}
        rounds = _rounds(workers, budget)
        difference = max(_difference(case, workers[OURS].result, workers[one.name].result) for one in chosen[1:])
        return Row(
            case.name,
            case.group,
            case.what,
            tuple(one.name for one in chosen[1:]),
            seconds={name: tuple(turn[name]["wall"] for turn in rounds) for name in workers},
            cpu_seconds={name: tuple(turn[name]["cpu"] for turn in rounds) for name in workers},
            first_seconds={name: seconds["wall"] for name, seconds in first.items()},
            difference=difference,
        )

    def _end(self) -> None:
        while self._workers:
            self._workers.popitem()[1].end()


class _Worker:
    """The process of a contestant.

    Attributes
    ----------
    result
        The file with the result of the last case.
    """

    def __init__(self, contestant: Contestant) -> None:
        self._name, self._case = contestant.name, ""
        self._files = ExitStack()
        folder = Path(self._files.enter_context(tempfile.TemporaryDirectory(prefix="trnqc-bench-")))
        self.result = folder / "result.npy"
        self._errors: IO[str] = self._files.enter_context((folder / "errors").open("w+", encoding="utf-8"))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "trnqc.bench.job", contestant.program, str(self.result)],
            env=contestant.environment(),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
        )

    def end(self) -> None:
        """End the process, and remove its files."""
        self._process.kill()
        self._process.communicate()
        self._files.close()

    def work(self) -> dict[str, float]:
        """Work on the prepared case; wall and CPU seconds of a call."""
        self.ask("work")
        return self.answer()

    def ask(self, *words: str) -> None:
        """Send a line to the process."""
        assert self._process.stdin is not None
        if words[0] == "prepare":
            self._case = words[1]
        try:
            self._process.stdin.write(" ".join(words) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            # The process has ended, which its missing answer reports.
            pass

    def answer(self) -> dict[str, float]:
        """Return the answer of the process to one line. Raises BenchError if it has ended."""
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            status = self._process.wait()
            self._errors.seek(0)
            last = (self._errors.read().strip().splitlines() or ["it printed nothing"])[-1]
            raise BenchError(f"{self._case}: the process of {self._name} ended with status {status}: {last}")
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
