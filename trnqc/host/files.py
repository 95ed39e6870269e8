"""Files that remain valid if a process is killed while it writes them.

    cache_directory()         the directory of this user's compiled kernels and measurements
    hold(directory)           reserve a directory for one process; another process gets an error that names the first
    locked(path)              a lock that one process holds at a time while the others wait
    replacing(path)           write a new file that replaces another one when it is complete
    write_aside(path, data)   the same for data that exist already
    Records(path)             lines with checksums; lines that are incomplete or have changed are ignored when read

The system releases the locks of a process that dies. After a power failure, files may lack the data that were written
last, unless they were written with `sync`; the checksums show this.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
import tempfile
import uuid
import zlib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO, Any

from trnqc.errors import CheckpointError, StorageError

DIRECTORY_VARIABLE = "TRNQC_CACHE_DIR"


def cache_directory() -> Path:
    """$TRNQC_CACHE_DIR if it is set, else the folder trnqc in the user's cache directory."""
    if os.environ.get(DIRECTORY_VARIABLE):
        return Path(os.environ[DIRECTORY_VARIABLE]).expanduser()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "trnqc"


def hold(directory: Path) -> IO[str]:
    """Reserve a directory for this process until it ends or the returned file is closed.

    A missing directory is created.

    Raises
    ------
    CheckpointError
        If another process holds the directory. The message contains its process number.
    StorageError
        If the directory cannot be used.
    """
    try:
        directory.mkdir(parents=True, exist_ok=True)
        lock = (directory / "lock").open("a+")
    except OSError as error:
        raise StorageError(f"{directory}: cannot be used as a working directory: {error}") from error
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.seek(0)
        holder = lock.read().strip() or "unknown"
        lock.close()
        raise CheckpointError(
            f"another process (pid {holder}) writes to {directory}: wait for it, or choose another directory"
        ) from None
    lock.truncate(0)
    lock.write(f"{os.getpid()}\n")
    lock.flush()
    return lock


@contextmanager
def locked(path: Path) -> Iterator[None]:
    """A context that holds the lock file `path`, after waiting for other processes. Raises OSError."""
    with path.open("a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextmanager
def replacing(path: Path, aside: Path | None = None) -> Iterator[Path]:
    """A context whose block writes a temporary file. When the block ends, the file is renamed to `path`.

    Readers never see an incomplete file. If the block raises an exception, the temporary file is removed and the old
    file at `path` is not changed.

    Parameters
    ----------
    path
        The file, which is replaced if it exists. Its directory must exist.
    aside
        The path of the temporary file; by default, one that no other process uses. A fixed path, for large files in a
        directory that one process holds, limits what killed processes leave behind to one file.

    Yields
    ------
    Path
        The path of the temporary file.

    Raises
    ------
    StorageError
        If the file cannot be written.
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
    """Write a file so that it is complete or does not exist; see `replacing`.

    Parameters
    ----------
    path
        The file, which is replaced if it exists. Its directory must exist.
    data
        The contents. Text is written as UTF-8.
    sync
        Whether to wait until the contents are on the disk.

    Raises
    ------
    StorageError
        If the file cannot be written. The old file at `path` is not changed.
    """
    path = Path(path)
    if path.exists() and not path.is_file():  # Renaming a file to /dev/stdout would remove the device.
        raise StorageError(f"{path}: cannot be written: it is not a regular file")
    with replacing(path) as aside, aside.open("xb") as file:
        file.write(data.encode() if isinstance(data, str) else data)
        if sync:
            file.flush()
            os.fsync(file.fileno())


def temporary_place() -> str:
    """The folder for temporary files: $TMPDIR, or that of the system. Raises StorageError if none can be written."""
    try:
        return tempfile.gettempdir()
    except OSError as error:
        raise StorageError(f"{error.strerror or error}: set TMPDIR to a folder that can be written") from error


def storage_error(path: Path, error: OSError) -> StorageError:
    """The error for a file that cannot be written, with the reason and what to do about it."""
    of_hdf5 = re.search(r"error message = '([^']*)'", str(error))
    why = error.strerror or (of_hdf5.group(1) if of_hdf5 else error)
    return StorageError(f"{path}: cannot be written: {why}; make room or name another place, and start again")


class Records:
    """A file of JSON objects, one per line, to which objects can be appended.

    Parameters
    ----------
    path
        The file. If it is None, the objects are stored in memory only.
    sync
        Whether to wait after each object until it is on the disk.

    Attributes
    ----------
    entries
        The valid objects that the file contained when it was opened, in order.

    Raises
    ------
    StorageError
        If the file cannot be written.
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
            if text and not text.endswith(b"\n"):  # The last line is incomplete because a process was killed.
                self._append(b"\n")
        except OSError as error:
            raise storage_error(path, error) from error

    def add(self, **record: Any) -> None:
        """Append an object. Raises StorageError if it could not be written completely."""
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
    """The line of an object: the CRC-32 checksum of its JSON text in hexadecimal digits, and the text."""
    text = json.dumps(record, separators=(",", ":")).encode()
    return b"%08x %s\n" % (zlib.crc32(text), text)


def records_in(text: bytes) -> list[dict[str, Any] | None]:
    """The objects in the contents of a file, in order. A line that is incomplete or has changed gives None."""
    return [_record(line) for line in text.split(b"\n") if line]


def _record(line: bytes) -> dict[str, Any] | None:
    """The object of a line, or None if its checksum is wrong."""
    checksum, _, text = line.partition(b" ")
    try:
        return json.loads(text) if int(checksum, 16) == zlib.crc32(text) else None
    except ValueError:
        return None
