"""Progress of a run that writes files: a work directory, locked by one process, with a record of what is done."""

from __future__ import annotations

import hashlib
import json
import shutil
import time
from pathlib import Path
from types import TracebackType
from typing import IO, Any

import h5py
import numpy as np

from trnqc.host.files import hold, write_aside

# Seconds between records of progress. Turns after the last record are repeated by the next run.
RECORD_EVERY = 0.2


def fingerprint(*words: str, **operands: Any) -> str:
    """Return a key that changes with the words and operands.

    Arrays enter by their contents, datasets by their file's name, size and time of change.
    """
    digest = hashlib.sha256()
    for word in words:
        digest.update(word.encode() + b"\0")
    for name, x in operands.items():
        digest.update(f"{name} {x.dtype} {tuple(x.shape)}".encode())
        if isinstance(x, h5py.Dataset):
            state = Path(x.file.filename).stat()
            digest.update(f"{Path(x.file.filename).resolve()} {x.name} {state.st_size} {state.st_mtime_ns}".encode())
        else:
            digest.update(np.ascontiguousarray(x).tobytes())
    return digest.hexdigest()


class Journal:
    """The work directory, as a context manager.

    Raises CheckpointError if another process holds the directory. After an error the directory is removed. After an
    interrupt or a kill it stays, and the next run with the same key finds `passes` and `turns` done. With another key
    its contents are removed.
    """

    def __init__(self, directory: Path, key: str) -> None:
        self.directory, self.key = directory, key
        self.passes = self.turns = 0
        self._last = 0.0
        self._lock: IO[str] | None = None

    def file(self, name: str) -> Path:
        """Return the path of the array of this name."""
        return self.directory / f"{name}.h5"

    def __enter__(self) -> Journal:
        self._hold()
        record = self._read()
        if record.get("key") == self.key:
            self.passes, self.turns = record["passes"], record["turns"]
        else:
            shutil.rmtree(self.directory)
            self._hold()
            self._write()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        if kind is None or issubclass(kind, Exception):
            shutil.rmtree(self.directory)
        assert self._lock is not None
        self._lock.close()

    def due(self) -> bool:
        """Return whether it is time to record progress."""
        return time.monotonic() - self._last >= RECORD_EVERY

    def turn(self, number: int) -> None:
        """Record the number of turns of this pass that are on disk."""
        self.turns = number
        self._write()

    def finish_pass(self) -> None:
        """Record that the current pass is on disk."""
        self.passes, self.turns = self.passes + 1, 0
        self._write()

    def _hold(self) -> None:
        if self._lock is not None:
            self._lock.close()
        self._lock = hold(self.directory)

    def _read(self) -> dict[str, Any]:
        path = self.directory / "progress.json"
        return json.loads(path.read_text()) if path.exists() else {}

    def _write(self) -> None:
        state = {"key": self.key, "passes": self.passes, "turns": self.turns}
        write_aside(self.directory / "progress.json", json.dumps(state).encode())
        self._last = time.monotonic()
