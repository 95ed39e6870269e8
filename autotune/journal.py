"""The journal of a tuning run. Each trial is written to it immediately, so that a killed run can be continued.

A journal is a file of records with checksums (`trnqc.host.files.Records`) with one line per trial, so that a damaged
line costs only one trial. The first record identifies the run, and a file of another run is renamed. Only one process
at a time can open a journal.
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
    """The folder tuning/journals in the cache directory ($TRNQC_CACHE_DIR, else that of the user)."""
    return cache_directory() / "tuning" / "journals"


class Journal:
    """The trials of one run by constants, fraction and gate. `opened` constructs it."""

    def __init__(self, path: Path, records: Records, trials: dict[str, Trial]) -> None:
        self.path, self._records, self._trials = path, records, trials
        self.resumed = len(trials)

    def get(self, constants: dict[str, int], fraction: float, gate: bool = True) -> Trial | None:
        """The trial that this run, or an earlier part of it, has written. None if there is none."""
        return self._trials.get(_key(constants, fraction, gate))

    def add(self, constants: dict[str, int], fraction: float, trial: Trial, gate: bool = True) -> None:
        """Write a trial. It is on the disk when this method returns."""
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
        Everything that distinguishes this run from others.
    where
        The directory; by default, `directory`.
    fresh
        Whether to discard the trials in the journal.

    Yields
    ------
    Journal
        The journal.

    Raises
    ------
    UnsupportedError
        If another process has opened the journal.
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
    """All valid trials of a journal. A warning says what is ignored."""
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
