"""One contestant's work in a process of its own, so that libraries of one side do not change the other side.

    python -m trnqc.bench.job PROGRAM RESULT.npy

The process reads lines from its standard input. After `prepare CASE` it prepares the input of a case. After `work` it
works: the first time once, with the result saved, later until enough seconds have passed. Each answer is a line of JSON
on standard output, with wall and CPU seconds of a call; those of preparing are not counted.
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


def main(program: str, path: str) -> None:
    """Prepare and work, and answer, as often as it is asked."""
    # Whatever the programs print is none of the answers.
    answers, sys.stdout = sys.stdout, sys.stderr
    work: Work = _unprepared
    called = False
    for line in sys.stdin:
        verb, *case = line.split()
        if verb == "prepare":
            # What was prepared before is freed first.
            work = _unprepared
            work, called = CASES[case[0]].contestants[program](), False
            _answer(answers, {})
        elif not called:
            result, seconds = _timed(work)
            np.save(path, _array(result))
            called = True
            _answer(answers, seconds)
        else:
            calls = list(_calls(work))
            _answer(answers, {name: sum(call[name] for call in calls) / len(calls) for name in ("wall", "cpu")})


def _unprepared() -> None:
    raise RuntimeError("expected a line `prepare CASE` first")


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
