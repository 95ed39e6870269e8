"""The process that compiles kernels beside a job: silent, of low priority, and one at a time on a machine.

The process reads a request from standard input, waits until no other such process runs, and compiles several programs
at a time into the cache.

While the job runs, the compilers use idle processor time and about a tenth of the job's own. With a much smaller share,
a job that uses all cores for an hour would end before its kernels are ready. After the job they use idle time only.

The process ends when all programs are compiled, at SIGTERM, and a given time after the end of the job that started it.
Unfinished work is discarded: the cache contains only complete libraries.
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

# Seconds between two checks of whether this process should end.
PULSE = 0.5
# The largest number of compilers that run at once. Each needs some hundred megabytes.
MOST = 8
# Niceness of the compilers. Two compilers and a generator take a tenth of two cores from a job that uses both cores.
NICE = 12
# Seconds after the start of the job at which compiling begins, if a control group has a quota of processor time.
# Priorities have no effect on such a quota, so the compilers also run one at a time.
HEAD_START = 10.0
# The pause after each program under such a quota, as a multiple of the time that the program took to compile.
PAUSES = 5.0
# Files that hold the quota of processor time, for control groups of version 2 and of version 1.
QUOTAS = (Path("/sys/fs/cgroup/cpu.max"), Path("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"))
# Age in seconds at which the temporary files of a killed compiler are removed: one day.
STALE = 86_400.0


def main(request: IO[bytes]) -> int:
    """Compile the requested programs. Returns 1 if one cannot be compiled, with a message on standard error, else 0."""
    with contextlib.suppress(OSError):
        os.setpgid(0, 0)
    parent, linger = pickle.load(request)
    end = BuilderEnd(parent, linger)
    signal.signal(signal.SIGTERM, end.now)
    directory = library_cache().directory
    lower_priority(NICE)
    with turn(directory, end) as mine:
        if not mine:
            return 0
        # Reading programs imports the generators, which takes a quarter of a second.
        programs = pickle.load(request)
        clear_up(directory)
        rationed = has_quota()
        if rationed:
            end.sleep(HEAD_START)
        return compile_all(programs, end, 1 if rationed else min(MOST, cpus()), PAUSES if rationed else 0.0)


def lower_priority(nice: int) -> None:
    """Lower the priority of this thread, and of the threads and processes that it starts from now on."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, 0, max(nice, os.getpriority(os.PRIO_PROCESS, 0)))


def lowest_priority() -> None:
    """Take idle processor time only, in all threads and, as far as possible, in running compilers."""
    with contextlib.suppress(OSError):
        os.setpriority(os.PRIO_PGRP, 0, 19)
    if hasattr(os, "SCHED_IDLE"):
        for thread in os.listdir("/proc/self/task"):
            with contextlib.suppress(OSError):
                os.sched_setscheduler(int(thread), os.SCHED_IDLE, os.sched_param(0))


def has_quota() -> bool:
    """Whether a control group of Linux limits the processor time."""
    for path in QUOTAS:
        with contextlib.suppress(OSError):
            return path.read_text().split()[0] not in ("max", "-1")
    return False


class BuilderEnd:
    """Whether this process should end. True after a request to end, and `linger` seconds after the parent has ended."""

    def __init__(self, parent: int, linger: float) -> None:
        self._parent, self._linger = parent, linger
        self._orphaned: float | None = None
        self._told = False

    def now(self, *signal_and_frame: Any) -> None:
        self._told = True

    @property
    def orphaned(self) -> bool:
        """Whether the parent has ended. From then on the priority is the lowest."""
        if self._orphaned is None and os.getppid() != self._parent:
            self._orphaned = time.monotonic()
            lowest_priority()
        return self._orphaned is not None

    def __bool__(self) -> bool:
        return self._told or (self.orphaned and time.monotonic() - (self._orphaned or 0.0) >= self._linger)

    def sleep(self, seconds: float) -> None:
        """Sleep. Return early if this process should end or if the parent has ended."""
        until = time.monotonic() + seconds
        while time.monotonic() < until and not self and not self.orphaned:
            time.sleep(min(PULSE, seconds))


@contextlib.contextmanager
def turn(directory: Path, end: BuilderEnd) -> Iterator[bool]:
    """Hold the lock of this machine's builder of a cache. Yields False if this process should end before it gets it."""
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
    """Remove leftovers of compilations that were killed long ago."""
    for path in directory.glob(".build-*"):
        with contextlib.suppress(OSError):
            if time.time() - path.stat().st_mtime > STALE:
                shutil.rmtree(path, ignore_errors=True)


def compile_all(programs: list[Any], end: BuilderEnd, at_once: int, pauses: float) -> int:
    """Compile programs in order, several at once, with pauses as in PAUSES. Returns 1 if one fails, else 0."""
    from trnqc.eri.compiled import programs as library

    with ThreadPoolExecutor(at_once) as pool:
        # Shared parts come first, so that no two threads compile the same part at the same time.
        jobs: list[tuple[Callable[..., Path], Any]] = [(library.store_part, p) for p in library.parts_of(programs)]
        jobs += [(library.store, program) for program in programs]
        waiting = {pool.submit(_compile, *job, end, pauses) for job in jobs}
        failed = _watch(waiting, end)
        if end:
            _stop(pool, waiting)
            return 0
    for error in failed[:1]:
        print(error, file=sys.stderr)
    return int(bool(failed))


def _compile(store: Callable[..., Path], program: Any, end: BuilderEnd, pauses: float) -> None:
    from trnqc.eri.compiled import programs as library

    # A job that waits for this program compiles it by itself, at full speed.
    while not end and library_cache().is_being_built(library.entry(program)):
        time.sleep(PULSE)
    if not end:
        begin = time.monotonic()
        store(program, take_turns=False)
        end.sleep(pauses * (time.monotonic() - begin))


def _watch(waiting: set[Future[Any]], end: BuilderEnd) -> list[str]:
    """Wait until all jobs are done or it is time to end; return the messages of failed jobs."""
    failed: list[str] = []
    left: set[Future[Any]] = set(waiting)
    while left and not end:
        done, left = wait(left, PULSE, FIRST_COMPLETED)
        failed += [str(error) for one in done if (error := one.exception()) is not None]
    return failed


def _stop(pool: ThreadPoolExecutor, waiting: set[Future[Any]]) -> None:
    """End the compilers of this process's group. Signals are repeated, because a thread may start another one."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    pool.shutdown(wait=False, cancel_futures=True)
    left = {one for one in waiting if not one.done()}
    while left:
        os.killpg(0, signal.SIGTERM)
        left = wait(left, PULSE).not_done
