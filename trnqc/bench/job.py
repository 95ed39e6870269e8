"""One contestant's work in a process of its own, so that libraries of one side do not change the other side.

    python -m trnqc.bench.job CASE WHO RESULT.npy

The last line of standard output is JSON with wall and CPU seconds. The result goes to the file.
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

import numpy as np

from trnqc.bench.catalogue import CASES

# Work that takes less than this many seconds is repeated until they have passed, and the fastest run counts.
ENOUGH = 0.5


def main(case: str, who: str, path: str) -> None:
    """Do the work of a case, save the result and print the seconds."""
    work = CASES[case].contestants[who]()
    result, seconds = _timed(work)
    spent = seconds["wall"]
    while spent < ENOUGH:
        _, again = _timed(work)
        spent += again["wall"]
        seconds = min(seconds, again, key=lambda one: one["wall"])
    np.save(path, _array(result))
    print(json.dumps(seconds))


def _timed(work: Any) -> tuple[Any, dict[str, float]]:
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
