"""Many jobs one after another in one process, and many processes at once."""

from __future__ import annotations

import collections
import gc
import json
import os
import resource
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from scripts.soak import work
from scripts.soak.case import Broken, Case, right, run
from scripts.soak.kills import checkpointed_job, compile_kernels, forked
from trnqc.errors import CheckpointError

# Jobs in one process, after how many its memory is printed, and by how many bytes it may grow after the first fifth,
# in which caches fill: an allocator keeps some pieces of memory.
JOBS, EVERY, GROWTH = 500, 50, 8 << 20
# Processes at once.
CROWD = 50


def resident() -> int:
    """The bytes of memory of this process that are in use now."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


def memory_of_jobs(jobs: int, every: int = EVERY) -> Iterator[tuple[int, int]]:
    """Do jobs of all kinds in turns. Yields how many are done, and the memory in use."""
    names = list(work.JOBS)
    for n in range(jobs):
        work.JOBS[names[n % len(names)]]((n // len(names)) % work.KINDS)
        if (n + 1) % every == 0:
            gc.collect()
            yield n + 1, resident()


def mixed(jobs: int) -> str:
    """All jobs in one new process, which prints its memory; what happened, in words."""
    done = run([sys.executable, "-m", "scripts.soak.crowds", str(jobs)])
    right(done)
    sizes = json.loads(done.stdout.splitlines()[-1])
    late = [size for count, size in sizes if count >= jobs // 5]
    words = ", ".join(f"{count}: {size / 2**20:.0f}" for count, size in sizes)
    if max(late) - late[0] > GROWTH:
        raise Broken(f"memory grows: MB after so many jobs {words}")
    return f"all right; MB after so many jobs {words}"


def crowd(place: Path, processes: int) -> str:
    """Processes that start together, compile the same kernels into one cache and want the same checkpoint."""
    import trnqc.mp2.run  # noqa: F401  # what the forked processes share

    (place / "cache").mkdir()
    outcomes = place / "outcomes"

    def one() -> None:
        compile_kernels(place / "cache")
        try:
            checkpointed_job(place)
            outcome = "right"
        except CheckpointError as error:
            if "another process (pid" not in str(error):
                raise
            outcome = "refused"
        with outcomes.open("a") as file:
            file.write(f"{outcome}\n")

    children = [forked(one) for _ in range(processes)]
    failed = [status for child in children if (status := os.waitpid(child, 0)[1])]
    if failed:
        raise Broken(f"{len(failed)} of {processes} processes failed; their tracebacks are on standard error")
    counts = collections.Counter(outcomes.read_text().split())
    built = len(list((place / "cache").glob("scaled_dot-*.so")))
    if built != 3 or not counts["right"]:
        raise Broken(f"{built} kernels in the cache instead of 3; jobs: {dict(counts)}")
    checkpointed_job(place)
    return (
        f"{processes} right results of kernels, each built once or found; of the jobs {counts['right']} finished and "
        f"{counts['refused']} were told which process holds the checkpoint; it was complete afterwards"
    )


def mixed_cases(jobs: int = JOBS) -> list[Case]:
    return [Case(f"{jobs} mixed jobs in one process", "right results, memory flat", lambda _: mixed(jobs))]


def crowd_cases(processes: int = CROWD) -> list[Case]:
    return [
        Case(
            f"{processes} processes at once, one cache and one checkpoint",
            "right results; one process has the checkpoint, the others one error that names it",
            lambda place: crowd(place, processes),
        )
    ]


def main(jobs: str) -> None:
    """Print the memory after every EVERY jobs, as JSON in the last line."""
    sizes: list[tuple[int, Any]] = []
    for count, size in memory_of_jobs(int(jobs)):
        print(f"{count} jobs: {size / 2**20:.1f} MB", file=sys.stderr, flush=True)
        sizes.append((count, size))
    print(json.dumps(sizes))


if __name__ == "__main__":
    main(*sys.argv[1:])
