"""Files that a killed process leaves sound: a directory that one process holds, files that are there whole or not at
all, records appended one by one.

    hold(directory)          who comes second is told who came first; a dead process holds nothing
    write_aside(path, data)  written beside and renamed
    Records(path)            lines with checksums: what was cut off or has changed is left out when they are read

Nothing here waits for the disk itself: after a loss of power, checksums tell what had not arrived.
"""

from __future__ import annotations

import fcntl
import json
import os
import zlib
from pathlib import Path
from typing import IO, Any

from trnqc.errors import CheckpointError, StorageError


def hold(directory: Path) -> IO[str]:
    """Hold a directory, made if it is not there, until the file that is returned is closed or this process ends.

    Errors: CheckpointError with the number of the process that holds it; StorageError.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = (directory / "lock").open("a+")
    except OSError as error:
        raise StorageError(f"{directory}: cannot be used as a directory for work: {error}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.seek(0)
        holder = lock.read().strip() or "unknown"
        lock.close()
        raise CheckpointError(
            f"another process (pid {holder}) writes to {directory}: wait for it, or name another place"
        ) from None
    lock.truncate(0)
    lock.write(f"{os.getpid()}\n")
    lock.flush()
    return lock


def write_aside(path: Path, data: bytes) -> None:
    """Write a file beside `path` and rename it into place; StorageError, and nothing there, if that fails."""
    aside = path.with_name(f"{path.name}.new")
    try:
        aside.write_bytes(data)
        aside.replace(path)
    except OSError as error:
        aside.unlink(missing_ok=True)
        raise storage_error(path, error) from error


def storage_error(path: Path, error: OSError) -> StorageError:
    """What the system said about writing `path`, and what to do about it."""
    why = error.strerror or error
    return StorageError(f"{path}: cannot be written: {why}; make room or name another place, and start the job again")


class Records:
    """JSON objects, one a line, appended; those that were there when it was opened are in `found`, in order.

    path: None keeps them in memory only.
    """

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.found: list[dict[str, Any]] = []
        self._file: int | None = None
        if path is None:
            return
        text = path.read_bytes() if path.exists() else b""
        self.found = [record for line in text.split(b"\n") if (record := _record(line)) is not None]
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
            if text and not text.endswith(b"\n"):  # the line that a kill has cut off
                self._append(b"\n")
        except OSError as error:
            raise storage_error(path, error) from error

    def add(self, **record: Any) -> None:
        """Append one; StorageError if it could not be written whole."""
        line = json.dumps(record, separators=(",", ":")).encode()
        if self.path is None:
            self.found.append(json.loads(line))
            return
        try:
            self._append(b"%08x %s\n" % (zlib.crc32(line), line))
        except OSError as error:
            raise storage_error(self.path, error) from error

    def close(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def _append(self, data: bytes) -> None:
        assert self._file is not None
        while data:
            data = data[os.write(self._file, data) :]


def _record(line: bytes) -> dict[str, Any] | None:
    found, _, text = line.partition(b" ")
    try:
        return json.loads(text) if int(found, 16) == zlib.crc32(text) else None
    except ValueError:
        return None
