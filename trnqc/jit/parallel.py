"""Several builds at once. A compiler is a process of its own, so threads that wait for it are enough."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor, as_completed
from typing import TypeVar

from trnqc.errors import CompilerError
from trnqc.host.threads import cpus

Result = TypeVar("Result")
Progress = Callable[[int, int, str], None]


def build_all(
    jobs: Mapping[str, Callable[[], Result]], *, workers: int | None = None, progress: Progress | None = None
) -> dict[str, Result | CompilerError]:
    """Run the jobs, each a call of `compile_c` or `compile_cuda`; results by name, in the order of the jobs.

    A job that raises CompilerError has it as its result, and the others go on. workers: at once; by default one a core.
    progress(done, total, name) is called in this thread after each job.
    """
    results: dict[str, Result | CompilerError] = {}
    with ThreadPoolExecutor(max_workers=max(1, workers or cpus())) as pool:
        waiting = {pool.submit(job): name for name, job in jobs.items()}
        for done, future in enumerate(as_completed(waiting), 1):
            name = waiting[future]
            try:
                results[name] = future.result()
            except CompilerError as error:
                results[name] = error
            if progress:
                progress(done, len(waiting), name)
    return {name: results[name] for name in jobs}
