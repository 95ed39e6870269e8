"""One contestant's work in a process of its own, so that libraries of one side do not change the other side.

    python -m trnqc.bench.job CASE PROGRAM RESULT.npy

The process prepares its input, works once and saves the result. After that it works each time that a line arrives on
its standard input. Each answer is a line of JSON on standard output with wall and CPU seconds; the first one is that of
the first call, in which libraries are loaded and missing kernels are compiled.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Iterator
from typing import Any, TextIO

import numpy as np

from trnqc.bench.case import Work
from trnqc.bench.catalogue import CASES

# Work that takes less than this many seconds is repeated until they have passed; the answer is the mean of the calls.
ENOUGH = 0.2


def main(case: str, program: str, path: str) -> None:
    """Work once, save the result, then work and answer as often as it is asked."""
    # Whatever the programs print is none of the answers.
    answers, sys.stdout = sys.stdout, sys.stderr
    work = CASES[case].contestants[program]()
    result, seconds = _timed(work)
    np.save(path, _array(result))
    _answer(answers, seconds)
    for _ in sys.stdin:
        calls = list(_calls(work))
        _answer(answers, {name: sum(call[name] for call in calls) / len(calls) for name in ("wall", "cpu")})


def _calls(work: Work) -> Iterator[dict[str, float]]:
    """Calls until enough seconds have passed."""
    spent = 0.0
    while spent < ENOUGH:
        _, seconds = _timed(work)
        spent += seconds["wall"]
        yield seconds


def _answer(stream: TextIO, seconds: dict[str, float]) -> None:
    print(json.dumps(seconds), file=stream, flush=True)


def _timed(work: Work) -> tuple[Any, dict[str, float]]:
    wall, cpu = time.perf_counter(), time.process_time()
    result = work()
    return result, {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu}


def _array(result: Any) -> np.ndarray:
    if hasattr(result, "detach"):
        result = result.detach().numpy()
    if hasattr(result, "to_dense"):
        result = result.to_dense()
    return np.asarray(result)


if __name__ == "__main__":
    main(*sys.argv[1:])
