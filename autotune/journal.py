"""Trials on disk as they come, so that a killed run goes on where it stopped.

One line a trial, opened by a checksum of the rest: a torn or damaged line is known by itself and costs one trial. The
first line names the run; a file that names another is set aside. One process at a time holds a journal.
"""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import json
import os
import warnings
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from autotune.measure import Trial
from trnqc.errors import UnsupportedError
from trnqc.host.files import cache_directory, write_aside

SCHEMA = "trnqc.journal/1"


def directory() -> Path:
    """tuning/journals in the cache directory ($TRNQC_CACHE_DIR, else the user's)."""
    return cache_directory() / "tuning" / "journals"


class Journal:
    """The trials of one run by constants, fraction and gate; made by `opened`."""

    def __init__(self, path: Path, file: IO[str], trials: dict[str, Trial]) -> None:
        self.path, self._file, self._trials = path, file, trials
        self.found = len(trials)

    def get(self, constants: dict[str, int], fraction: float, gate: bool = True) -> Trial | None:
        """A trial written before, here or by the run that was killed."""
        return self._trials.get(_key(constants, fraction, gate))

    def add(self, constants: dict[str, int], fraction: float, trial: Trial, gate: bool = True) -> None:
        """On disk when this returns."""
        key = _key(constants, fraction, gate)
        self._trials[key] = trial
        self._file.write(_line({"key": key, "trial": dataclasses.asdict(trial)}))
        self._file.flush()
        os.fsync(self._file.fileno())


def _key(constants: dict[str, int], fraction: float, gate: bool) -> str:
    return json.dumps([constants, fraction, gate], sort_keys=True)


def _line(value: Any) -> str:
    text = json.dumps(value, sort_keys=True)
    return f"{zlib.crc32(text.encode()):08x} {text}\n"


@contextmanager
def opened(run: dict[str, Any], where: Path | None = None, fresh: bool = False) -> Iterator[Journal]:
    """The journal of a run, known by what `run` says. fresh: forget what is there.

    Raises UnsupportedError where another process holds it.
    """
    where = where or directory()
    where.mkdir(parents=True, exist_ok=True)
    name = hashlib.sha256(json.dumps(run, sort_keys=True).encode()).hexdigest()[:16]
    path = where / f"{run.get('kernel', 'run')}-{name}.jsonl"
    with open(path.with_suffix(".lock"), "a") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise UnsupportedError(f"another process is at this tuning run (it holds {path}); wait for it") from None
        head = {"schema": SCHEMA, "run": run}
        trials = {} if fresh else _read(path, head)
        entries = [{"key": key, "trial": dataclasses.asdict(trial)} for key, trial in trials.items()]
        write_aside(path, "".join(_line(value) for value in [head, *entries]), sync=True)
        with path.open("a", encoding="utf-8") as file:
            yield Journal(path, file, trials)


def _read(path: Path, head: dict[str, Any]) -> dict[str, Trial]:
    """All sound trials; anything else is reported and left behind."""
    if not path.exists():
        return {}
    values = [_value(line) for line in path.read_bytes().split(b"\n") if line]
    if not values or values[0] != head:
        aside = path.with_suffix(".damaged")
        os.replace(path, aside)
        warnings.warn(f"journal {path} is not of this run; it was moved to {aside.name}", RuntimeWarning, stacklevel=4)
        return {}
    trials = {}
    for value in values[1:]:
        if isinstance(value, dict) and set(value) == {"key", "trial"}:
            trials[value["key"]] = Trial(**value["trial"])
    if len(trials) < len(values) - 1:
        lost = len(values) - 1 - len(trials)
        warnings.warn(f"journal {path}: {lost} damaged lines; their trials run again", RuntimeWarning, stacklevel=4)
    return trials


def _value(line: bytes) -> Any:
    """The content of a line; None for one that is torn or damaged."""
    try:
        crc, _, text = line.decode().partition(" ")
        return json.loads(text) if int(crc, 16) == zlib.crc32(text.encode()) else None
    except ValueError:
        return None
