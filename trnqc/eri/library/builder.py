"""The process that compiles kernels beside a job: of low priority, one a machine, bounded, and silent.

request (standard input) -> low priority -> turn -> programs, several at a time -> the cache of compiled libraries

While the job runs, the compilers get what it leaves of the processors and about a tenth of what it wants: with much
less, a job that uses all cores for an hour would not see its kernels before the end. After the job they get what nobody
wants.

It ends when all is compiled; when it is told to (SIGTERM); and a given time after the job that started it has ended.
What is not finished then is thrown away: the cache holds whole libraries only.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import pickle
import platform
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from pathlib import Path
from typing import IO, Any

from trnqc.host.threads import cpus
from trnqc.jit.cache import library_cache

# Seconds between two looks at whether it is time to end.
PULSE = 0.5
# Compilers at once: each takes some hundred megabytes.
MOST = 8
# Two compilers and a generator of this priority take a tenth of two cores from a job that wants all of both.
NICE = 12
# Where a group of processes has a quota of processor time, priorities do not help: compilers start so many seconds
# after the job, one at a time, and pause this many times as long as each took.
HEAD_START, PAUSES = 10.0, 5.0
QUOTAS = (Path("/sys/fs/cgroup/cpu.max"), Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"))
# Seconds after which what a killed compilation has left behind is removed.
STALE = 86_400.0


def main(request: IO[bytes]) -> int:
    """Compile what was asked for; 0 unless a program cannot be compiled. Messages go to standard error."""
    lower_priority()
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)
    parent, linger = pickle.load(request)
    end = End(parent, linger)
    signal.signal(signal.SIGTERM, end.now)
    with turn(library_cache().directory, end) as mine:
        if not mine:
            return 0
        # Takes a second: PySCF and the generators are imported here.
        programs = pickle.load(request)
        clear_up(library_cache().directory)
        return compile_all(programs, end)


def lower_priority() -> None:
    """Let the job have the processors first; what this process starts from here on does the same."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, max(NICE, os.getpriority(os.PRIO_PROCESS, 0)))


def lowest_priority() -> None:
    """Take processor time that nobody else wants, in all threads and, as far as can be, in compilers at work."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PGRP, 0, 19)
    if hasattr(os, "SCHED_IDLE"):
        for thread in os.listdir("/proc/self/task"):
            with contextlib.suppress(OSError):
                os.sched_setscheduler(int(thread), os.SCHED_IDLE, os.sched_param(0))


def has_quota() -> bool:
    """Whether processor time is rationed, by Linux' control groups."""
    for path in QUOTAS:
        with contextlib.suppress(OSError):
            return path.read_text().split()[0] not in ("max", "-1")
    return False


class End:
    """Whether it is time to end: some seconds after the parent has ended, or now."""

    def __init__(self, parent: int, linger: float) -> None:
        self._parent, self._linger = parent, linger
        self._orphaned: float | None = None
        self._told = False

    def now(self, *signal_and_frame: Any) -> None:
        self._told = True

    @property
    def orphaned(self) -> bool:
        """Whether the parent has ended; from then on the priority is the lowest there is."""
        if self._orphaned is None and os.getppid() != self._parent:
            self._orphaned = time.monotonic()
            lowest_priority()
        return self._orphaned is not None

    def __bool__(self) -> bool:
        return self._told or (self.orphaned and time.monotonic() - (self._orphaned or 0.0) >= self._linger)

    def sleep(self, seconds: float) -> None:
        """Sleep, but no longer than until the end or until the parent has ended."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self and not self.orphaned:
            time.sleep(min(PULSE, seconds))


@contextlib.contextmanager
def turn(directory: Path, end: End) -> Iterator[bool]:
    """Wait for other builders of this machine that fill the same directory; False when the end came first."""
    with (directory / f".builder-{platform.node()}.lock").open("w") as lock:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                if end:
                    yield False
                    return
                time.sleep(PULSE)
            except OSError:  # a file system without locks
                break
        yield True


def clear_up(directory: Path) -> None:
    """Remove what compilations that were killed long ago have left behind."""
    for path in directory.glob(".build-*"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > STALE:
                shutil.rmtree(path, ignore_errors=True)


def compile_all(programs: list[Any], end: End) -> int:
    """Compile programs in their order, as many at a time as there are cores."""
    from trnqc.eri.library import programs as library

    cores = cpus()
    rationed = has_quota()
    if rationed:
        end.sleep(HEAD_START)
    with ThreadPoolExecutor(1 if rationed else min(MOST, cores)) as pool:
        # What several programs have in common comes first, so that no two threads compile it at the same time.
        jobs: list[tuple[Callable[..., Path], Any]] = [(library.store_part, p) for p in library.parts_of(programs)]
        jobs += [(library.store, program) for program in programs]
        waiting = {pool.submit(_compile, *job, end, PAUSES if rationed else 0.0) for job in jobs}
        failed = _watch(waiting, end)
        if end:
            _stop(pool, waiting)
            return 0
    for error in failed[:1]:
        print(error, file=sys.stderr)
    return int(bool(failed))


def _compile(store: Callable[..., Path], program: Any, end: End, pauses: float) -> None:
    from trnqc.eri.library import programs as library

    # A job that cannot do without this program compiles it at full speed.
    while not end and library_cache().is_being_built(library.entry(program)):
        time.sleep(PULSE)
    if not end:
        begin = time.monotonic()
        store(program, take_turns=False)
        end.sleep(pauses * (time.monotonic() - begin))


def _watch(waiting: set[Future], end: End) -> list[str]:
    """Wait until all is done or the end has come; what could not be compiled, in words."""
    failed: list[str] = []
    left: set[Future] = set(waiting)
    while left and not end:
        done, left = wait(left, PULSE, FIRST_COMPLETED)
        failed += [str(error) for one in done if (error := one.exception()) is not None]
    return failed


def _stop(pool: ThreadPoolExecutor, waiting: set[Future]) -> None:
    """End the compilers, which are of this process's group, as often as it takes: a generator may just start one."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    pool.shutdown(wait=False, cancel_futures=True)
    left = {one for one in waiting if not one.done()}
    while left:
        os.killpg(0, signal.SIGTERM)
        left = wait(left, PULSE).not_done
