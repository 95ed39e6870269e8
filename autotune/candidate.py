"""The child process of one candidate. It reads a Job from standard input and writes a Trial to the file in argv[1].

It ends when its parent process ends, because that closes the other end of its standard input.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import traceback
from pathlib import Path

from autotune.instruments import Job, resolve
from trnqc.host.files import write_aside


def _end_with_parent() -> None:
    sys.stdin.read()
    os._exit(1)


def main() -> None:
    """Read, measure and write. An exception is written as a crash, with its message and place in the source."""
    job = Job(**json.loads(sys.stdin.readline()))
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        reading = resolve(job.instrument)(job)
        status = "ok" if reading.time_ns is not None else "wrong"
        trial = {"status": status, "time_ns": reading.time_ns, "error": reading.error, "detail": reading.detail}
    except Exception as error:
        where = traceback.extract_tb(error.__traceback__)[-1]
        place = f"{Path(where.filename).name}:{where.lineno}"
        trial = {"status": "crashed", "detail": f"{type(error).__name__}: {error} ({place})"}
    write_aside(Path(sys.argv[1]), json.dumps(trial), sync=True)
    sys.stdout.flush()
    os._exit(0)  # Do not wait for threads of a device runtime.


if __name__ == "__main__":
    main()
