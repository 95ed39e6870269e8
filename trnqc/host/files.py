"""Files that a killed process leaves sound.

    cache_directory()         where this user's compiled kernels and measurements are kept
    hold(directory)           a directory for one process; the second is told which process came first
    locked(path)              one process at a time, the others wait
    write_aside(path, data)   a file that is there whole or not at all
    Records(path)             lines with checksums: a line that was cut off or has changed is left out when read

A process that dies gives up its locks. With `sync`, data are on the disk before the call returns; without it, checksums
tell after a loss of power what had not arrived.
"""

from __future__ import annotations

import fcntl
import json
import os
import tempfile
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

from trnqc.errors import CheckpointError, StorageError

DIRECTORY_VARIABLE = "TRNQC_CACHE_DIR"


def cache_directory() -> Path:
    """$TRNQC_CACHE_DIR, else trnqc in the user's cache directory."""
    if os.environ.get(DIRECTORY_VARIABLE):
        return Path(os.environ[DIRECTORY_VARIABLE]).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trnqc"


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


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """Wait until no other process holds the lock file `path`, and hold it. Raises OSError."""
    with path.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def write_aside(path: str | Path, data: str | bytes, *, sync: bool = False) -> None:
    """Write a file beside `path` and rename it into place, so that no reader ever sees half of it.

    Parameters
    ----------
    path
        The file, which is replaced if it exists. Its directory must exist.
    data
        The content; text is written as UTF-8.
    sync
        Whether to wait until the content is on the disk.

    Raises
    ------
    StorageError
        If the file cannot be written; what was at `path` before is still there.
    """
    path = Path(path)
    if path.exists() and not path.is_file():  # Renaming over /dev/stdout would take it away.
        raise StorageError(f"{path}: cannot be written: not a regular file")
    try:
        handle, aside = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            # mkstemp makes files for the owner only; this one is as public as other new files.
            os.fchmod(handle, 0o666 & ~_umask())
            with os.fdopen(handle, "wb") as file:
                file.write(data.encode() if isinstance(data, str) else data)
                if sync:
                    file.flush()
                    os.fsync(file.fileno())
            os.replace(aside, path)
        except BaseException:
            Path(aside).unlink(missing_ok=True)
            raise
    except OSError as error:
        raise storage_error(path, error) from error


def _umask() -> int:
    current = os.umask(0)
    os.umask(current)
    return current


def storage_error(path: Path, error: OSError) -> StorageError:
    """What the system said about writing `path`, and what to do about it."""
    why = error.strerror or error
    return StorageError(f"{path}: cannot be written: {why}; make room or name another place")


class Records:
    """JSON objects, one a line, appended; those that were there when it was opened are in `found`, in order.

    path: None keeps them in memory only. sync: wait until each record is on the disk.
    """

    def __init__(self, path: Path | None, *, sync: bool = False) -> None:
        self.path, self.sync = path, sync
        self.found: list[dict[str, Any]] = []
        self._file: int | None = None
        if path is None:
            return
        text = path.read_bytes() if path.exists() else b""
        self.found = [record for record in records_in(text) if record is not None]
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
            if text and not text.endswith(b"\n"):  # the line that a kill has cut off
                self._append(b"\n")
        except OSError as error:
            raise storage_error(path, error) from error

    def add(self, **record: Any) -> None:
        """Append one; StorageError if it could not be written whole."""
        if self.path is None:
            self.found.append(json.loads(json.dumps(record)))
            return
        try:
            self._append(record_line(record))
            if self.sync and self._file is not None:
                os.fsync(self._file)
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


def record_line(record: Mapping[str, Any]) -> bytes:
    """The line of a record: the CRC-32 of its JSON text in hexadecimal, and the text."""
    text = json.dumps(record, separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def records_in(text: bytes) -> list[dict[str, Any] | None]:
    """The records in the text of a file, in order; None for a line that was cut off or has changed."""
    return [_record(line) for line in text.split(b"\n") if line]


def _record(line: bytes) -> dict[str, Any] | None:
    checksum, _, text = line.partition(b" ")
    try:
        return json.loads(text) if int(checksum, 16) == zlib.crc32(text) else None
    except ValueError:
        return None
