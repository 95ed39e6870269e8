"""Files that a killed process leaves sound.

    cache_directory()         where this user's compiled kernels and measurements are kept
    hold(directory)           a directory for one process; a second one is told which process holds it
    locked(path)              one process at a time; the others wait
    replacing(path)           a new file that takes the place of another when it is complete
    write_aside(path, data)   the same for content that is at hand
    Records(path)             lines with checksums: lines that were cut off or have changed are left out when read

The system releases the locks of a process that dies. After a loss of power, files may lack what was written last,
unless it was written with `sync`; checksums tell.
"""

from __future__ import annotations

import fcntl
import json
import os
import uuid
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
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
    """Hold a directory until the returned file is closed or this process ends; the directory is made if need be.

    Raises
    ------
    CheckpointError
        If another process holds it; the message gives its number.
    StorageError
        If the directory cannot be used.
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


@contextmanager
def replacing(path: Path, aside: Path | None = None) -> Iterator[Path]:
    """Write a file beside `path` in the block; at its end the file is renamed to `path`.

    No reader ever sees half of the file. If the block fails, the new file is removed, and what was at `path` is still
    there.

    Parameters
    ----------
    path
        The file, which is replaced if it exists. Its directory must exist.
    aside
        The path that the block writes to; by default one that no other process uses. With a fixed name, for a large
        file in a directory that one process holds, a killed process leaves no more than that one file.

    Raises
    ------
    StorageError
        If the system refuses.
    """
    aside = aside or path.with_name(f".{path.name}.{uuid.uuid4().hex}")
    try:
        yield aside
        os.replace(aside, path)
    except BaseException as error:
        with suppress(OSError):
            aside.unlink()
        if isinstance(error, OSError) and not isinstance(error, StorageError):
            raise storage_error(path, error) from error
        raise


def write_aside(path: str | Path, data: str | bytes, *, sync: bool = False) -> None:
    """Write a file so that it is there whole or not at all, see `replacing`.

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
    if path.exists() and not path.is_file():  # Renaming over /dev/stdout would remove it.
        raise StorageError(f"{path}: cannot be written: not a regular file")
    with replacing(path) as aside, aside.open("xb") as file:
        file.write(data.encode() if isinstance(data, str) else data)
        if sync:
            file.flush()
            os.fsync(file.fileno())


def storage_error(path: Path, error: OSError) -> StorageError:
    """The error for a file that cannot be written: what the system says, and what to do about it."""
    why = error.strerror or error
    return StorageError(f"{path}: cannot be written: {why}; make room or name another place, and start again")


class Records:
    """A file of JSON objects, one in each line, to which more are appended.

    Parameters
    ----------
    path
        The file; None keeps the objects in memory only.
    sync
        Whether to wait until each object is on the disk.

    Attributes
    ----------
    entries
        The objects that were there when the file was opened, in order.
    """

    def __init__(self, path: Path | None, *, sync: bool = False) -> None:
        self.path, self.sync = path, sync
        self.entries: list[dict[str, Any]] = []
        self._file: int | None = None
        if path is None:
            return
        text = path.read_bytes() if path.exists() else b""
        self.entries = [record for record in records_in(text) if record is not None]
        try:
            self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
            if text and not text.endswith(b"\n"):  # A kill has cut the last line off.
                self._append(b"\n")
        except OSError as error:
            raise storage_error(path, error) from error

    def add(self, **record: Any) -> None:
        """Append an object. Raises StorageError if it could not be written whole."""
        if self.path is None:
            self.entries.append(json.loads(json.dumps(record)))
            return
        try:
            self._append(record_line(record))
            if self.sync and self._file is not None:
                os.fsync(self._file)
        except OSError as error:
            raise storage_error(self.path, error) from error

    def close(self) -> None:
        """Close the file."""
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
    """The object of a line; None if its checksum is wrong."""
    checksum, _, text = line.partition(b" ")
    try:
        return json.loads(text) if int(checksum, 16) == zlib.crc32(text) else None
    except ValueError:
        return None
