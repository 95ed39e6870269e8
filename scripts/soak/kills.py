"""kill -9 at random moments of work, and the same work again."""

from __future__ import annotations

import ctypes
import hashlib
import os
import random
import signal
import sys
import time
import traceback
import warnings
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from scripts.soak.case import Broken, Case

# Kills of each kind of work, and how often one piece of work is killed before it may finish.
KILLS, IN_A_ROW = 50, 5


def forked(work: Callable[[], Any]) -> int:
    """The process number of a copy of this process, with a process group of its own, that does some work."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            os.setpgid(0, 0)
            work()
            status = 0
        except BaseException:
            traceback.print_exc()
        finally:
            sys.stderr.flush()
            os._exit(status)
    with suppress(OSError):  # The child may have done it already, or may have ended.
        os.setpgid(child, child)
    return child


def finished(work: Callable[[], Any]) -> None:
    """Do work in a process of its own, and raise Broken unless it succeeds."""
    _, status = os.waitpid(forked(work), 0)
    if status:
        raise Broken(f"work that was not killed ended with status {os.waitstatus_to_exitcode(status)}")


def killed(work: Callable[[], Any], after: float) -> bool:
    """Do work in a process of its own and kill it after some seconds. Returns whether it was not finished before."""
    child = forked(work)
    time.sleep(after)
    with suppress(ProcessLookupError):
        os.killpg(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    if os.WIFEXITED(status) and os.WEXITSTATUS(status):
        raise Broken(f"the work itself failed with status {os.WEXITSTATUS(status)}")
    return os.WIFSIGNALED(status)


@dataclass(frozen=True)
class Work:
    """Work that is killed.

    Attributes
    ----------
    do
        The work in a folder. It raises an exception if its result is wrong.
    whole
        Raises Broken if a file in the folder is incomplete after a kill.
    """

    do: Callable[[Path], None]
    whole: Callable[[Path], None]


def tried(work: Work, place: Path, kills: int = KILLS, in_a_row: int = IN_A_ROW, seed: int = 21) -> str:
    """Kill work at random moments, up to `in_a_row` times in one folder, and finish it there."""
    random_moment, count = random.Random(seed), 0
    (place / "first").mkdir()
    began = time.perf_counter()
    finished(lambda: work.do(place / "first"))
    seconds = time.perf_counter() - began
    tries = 0
    while count < kills and tries < 20 * kills:
        folder = place / f"{tries}"
        folder.mkdir()
        for _ in range(min(in_a_row, kills - count)):
            tries += 1
            count += killed(lambda folder=folder: work.do(folder), random_moment.uniform(0.0, seconds))  # type: ignore[misc]
            work.whole(folder)
        finished(lambda folder=folder: work.do(folder))  # type: ignore[misc]
    if count < kills:
        raise Broken(f"only {count} of {tries} processes were alive when they were to be killed")
    return f"{count} kills within {seconds:.2f} s of work: nothing incomplete, right results afterwards"


def compile_kernels(folder: Path) -> None:
    """Compile three kernels into a cache in the folder, and run them."""
    import numpy as np

    from trnqc.gen import Array, Var, const
    from trnqc.gen.build import Builder, dot
    from trnqc.jit import Recipe, library

    os.environ["TRNQC_CACHE_DIR"] = str(folder)
    n, x, y, out = Var("n", "i64"), Array("x", "f64"), Array("y", "f64"), Array("out", "f64")
    for scale in (1.0, 2.0, 3.0):
        b = Builder()
        total = b.declare("total", const(0.0))
        with b.loop("i", n) as i:
            b.assign(total, dot([(const(scale) * x[i], y[i])], total))
        b.store(out[0], total)
        kernel = library(Recipe.of(b.function("scaled_dot", (n, x, y, out))))
        result = np.zeros(1)
        kernel.scaled_dot(n=9, x=np.arange(9.0), y=np.ones(9), out=result)
        if result[0] != scale * 36.0:
            raise AssertionError(f"expected {scale * 36.0}, found {result[0]}")


def sealed_are_whole(folder: Path) -> None:
    """Every library whose contents have the digest of its seal can be loaded."""
    for seal in folder.glob("*.sha256"):
        file = seal.with_suffix(".so")
        if file.exists() and hashlib.sha256(file.read_bytes()).hexdigest() == seal.read_text():
            finished(lambda file=file: ctypes.CDLL(str(file)))  # type: ignore[misc]


def checkpointed_job(folder: Path) -> None:
    """A DF-MP2 job with a checkpoint, whose energy is known."""
    from trnqc.mp2.job import Job
    from trnqc.mp2.reference.molecule import load_geometry
    from trnqc.mp2.run import run

    job = Job(load_geometry("water"), "sto-3g", "cc-pvdz-ri", backend="cpu", threads=1, checkpoint=folder / "kept")
    energy, known = run(job).e_tot, folder.parent / "energy"
    if energy is None:
        raise AssertionError("the job has no energy")
    if not known.exists():
        known.write_text(repr(energy))
    if abs(energy - float(known.read_text())) > 1e-9:
        raise AssertionError(f"expected {known.read_text()} Hartree, found {energy!r}")


def checkpoint_is_whole(folder: Path) -> None:
    """The description of the job is complete, and all records but the last line are valid."""
    import json

    from trnqc.host.files import records_in

    description, records = folder / "kept" / "job.json", folder / "kept" / "records.jsonl"
    if description.exists():
        json.loads(description.read_text())
    if records.exists() and None in records_in(records.read_bytes())[:-1]:
        raise Broken("a record before the last one is damaged")


RECORDS = 200


def write_records(folder: Path) -> None:
    """Append numbered records and replace a JSON file, and note in a third file what has been acknowledged."""
    import json

    from trnqc.host.files import Records, write_aside

    records = Records(folder / "records.jsonl")
    begin = len(records.entries)
    acknowledged = (folder / "acknowledged").open("ab", buffering=0)
    for number in range(begin, RECORDS):
        records.add(number=number)
        write_aside(folder / "last.json", json.dumps({"numbers": list(range(number + 1))}))
        acknowledged.write(b"x")
    if [entry["number"] for entry in Records(folder / "records.jsonl").entries] != list(range(RECORDS)):
        raise AssertionError("records are missing, or there twice")


def records_are_whole(folder: Path) -> None:
    """All acknowledged records can be read, in order, and the JSON file is complete."""
    import json

    from trnqc.host.files import records_in

    if not (folder / "acknowledged").exists():
        return
    count = (folder / "acknowledged").stat().st_size
    found = [entry["number"] for entry in records_in((folder / "records.jsonl").read_bytes()) if entry]
    if found != list(range(len(found))) or len(found) < count:
        raise Broken(f"{count} records were acknowledged, found {len(found)}")
    if count and len(json.loads((folder / "last.json").read_text())["numbers"]) < count:
        raise Broken("the JSON file is older than acknowledged")


def store_tuning(folder: Path) -> None:
    """Store the shipped tuning records in a folder, and read them again."""
    from trnqc.tuning.records import read_all, shipped_directory, store

    shipped = [record for _, record in read_all(shipped_directory(), writable=False)][:10]
    for record in shipped:
        store(record, folder)
    tuning_is_whole(folder, len(shipped))


def tuning_is_whole(folder: Path, count: int = 0) -> None:
    """No stored record is damaged: reading them gives no warning."""
    from trnqc.tuning.records import read_all

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        if len(read_all(folder, writable=False)) < count:
            raise Broken("a tuning record is missing")


WORKS = {
    "while kernels are compiled": Work(compile_kernels, sealed_are_whole),
    "during a DF-MP2 job with a checkpoint": Work(checkpointed_job, checkpoint_is_whole),
    "while records and JSON files are written": Work(write_records, records_are_whole),
    "while tuning records are stored": Work(store_tuning, tuning_is_whole),
}


def cases(kills: int = KILLS) -> list[Case]:
    """Each kind of work, killed at random moments."""
    return [
        Case(
            f"kill -9 {name}",
            "nothing incomplete; the same work succeeds",
            partial(tried, work, kills=kills),
        )
        for name, work in WORKS.items()
    ]
