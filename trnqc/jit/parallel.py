"""Run several builds at the same time, each on a thread that waits for the process of a compiler."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import nullcontext
from typing import TypeVar

from trnqc.errors import CompilerError
from trnqc.host.threads import cpus
from trnqc.host.waiting import waiting

Result = TypeVar("Result")
Progress = Callable[[int, int, str], None]


def build_all(
    jobs: Mapping[str, Callable[[], Result]], *, workers: int | None = None, progress: Progress | None = None
) -> dict[str, Result | CompilerError]:
    """Run several jobs, each of which compiles something.

    Parameters
    ----------
    jobs : mapping
        Callables by name.
    workers : int, optional
        The number of jobs that run at the same time; by default, the number of CPUs.
    progress : callable, optional
        progress(done, total, name) is called in this thread after each job.

    Returns
    -------
    dict
        Results by name, in the order of the jobs. If a job raises CompilerError, its result is this exception, and the
        other jobs continue.
    """
    results: dict[str, Result | CompilerError] = {}
    pool = ThreadPoolExecutor(max_workers=max(1, workers or cpus()))
    with pool, waiting.shown() if progress else nullcontext():
        names = {pool.submit(job): name for name, job in jobs.items()}
        for done, future in enumerate(as_completed(names), 1):
            name = names[future]
            try:
                results[name] = future.result()
            except CompilerError as error:
                results[name] = error
            if progress:
                progress(done, len(names), name)
    return {name: results[name] for name in jobs}
