"""Trials on disk as they come, so that a killed run continues where it stopped.

A journal is a file of records with checksums (`trnqc.host.files.Records`): one line per trial, so that a damaged line
costs one trial. The first record names the run; a file of another run is set aside. One process at a time holds a
journal.
"""

from __future__ import annotations

import dataclasses
import fcntl
import hashlib
import json
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from autotune.measure import Trial
from trnqc.errors import UnsupportedError
from trnqc.host.files import Records, cache_directory, record_line, records_in, write_aside

SCHEMA = "trnqc.journal/1"


def directory() -> Path:
    """tuning/journals in the cache directory ($TRNQC_CACHE_DIR, else the user's)."""
    return cache_directory() / "tuning" / "journals"


class Journal:
    """The trials of one run by constants, fraction and gate; `opened` makes it."""

    def __init__(self, path: Path, records: Records, trials: dict[str, Trial]) -> None:
        self.path, self._records, self._trials = path, records, trials
        self.resumed = len(trials)

    def get(self, constants: dict[str, int], fraction: float, gate: bool = True) -> Trial | None:
        """A trial written before, by this run or the one that was killed."""
        return self._trials.get(_key(constants, fraction, gate))

    def add(self, constants: dict[str, int], fraction: float, trial: Trial, gate: bool = True) -> None:
        """Keep a trial, which is on the disk when this returns."""
        key = _key(constants, fraction, gate)
        self._trials[key] = trial
        self._records.add(**_entry(key, trial))


def _key(constants: dict[str, int], fraction: float, gate: bool) -> str:
    return json.dumps([constants, fraction, gate], sort_keys=True)


def _entry(key: str, trial: Trial) -> dict[str, Any]:
    return {"key": key, "trial": dataclasses.asdict(trial)}


@contextmanager
def opened(run: dict[str, Any], where: Path | None = None, fresh: bool = False) -> Iterator[Journal]:
    """Open the journal of a run.

    Parameters
    ----------
    run
        All that tells this run from others.
    where
        The directory, by default `directory`.
    fresh
        Whether to forget the trials that are there.

    Raises
    ------
    UnsupportedError
        If another process holds the journal.
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
        sound = [head, *(_entry(key, trial) for key, trial in trials.items())]
        write_aside(path, b"".join(map(record_line, sound)), sync=True)
        records = Records(path, sync=True)
        try:
            yield Journal(path, records, trials)
        finally:
            records.close()


def _read(path: Path, head: dict[str, Any]) -> dict[str, Trial]:
    """All sound trials of a journal; a warning names what is left out."""
    if not path.exists():
        return {}
    records = records_in(path.read_bytes())
    if not records or records[0] != head:
        aside = path.with_suffix(".damaged")
        os.replace(path, aside)
        warnings.warn(f"journal {path} is not of this run; it was moved to {aside.name}", RuntimeWarning, stacklevel=4)
        return {}
    sound = [r for r in records[1:] if isinstance(r, dict) and set(r) == {"key", "trial"}]
    if lost := len(records) - 1 - len(sound):
        warnings.warn(f"journal {path}: {lost} damaged lines; their trials run again", RuntimeWarning, stacklevel=4)
    return {record["key"]: Trial(**record["trial"]) for record in sound}
