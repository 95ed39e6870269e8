"""The cache of compiled files, each named by a digest of everything that it depends on.

An entry consists of a file and of a second file, its seal, which contains the digest of the first. Both are written to
a temporary folder and renamed into place. An entry that is missing, unreadable, truncated or altered is built again. If
several processes ask for the same entry at the same time, one of them builds it and the others wait. Entries with the
same content may be hard links of one file, which nobody changes in place.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import logging
import os
import shutil
import stat
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from trnqc.errors import CompilerError, StorageError
from trnqc.host.clock import measured
from trnqc.host.files import DIRECTORY_VARIABLE, cache_directory, storage_error, temporary_place
from trnqc.host.waiting import waiting

_log = logging.getLogger(__name__)
# The part of a job's wall time that is spent here, waiting for other processes included.
COMPILING = "compiling kernels"
# What the names of entries end in that exist only to be linked from others. Nothing loads them by this name.
BY_TEXT = ".by-text"


def key_of(*parts: str) -> str:
    """A digest of the parts, 32 hexadecimal digits. The digests of ("ab", "c") and ("a", "bc") differ."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode()
        digest.update(f"{len(data)}:".encode() + data)
    return digest.hexdigest()[:32]


def digest_of(path: Path) -> str:
    """The SHA-256 digest of a file."""
    return hashlib.sha256(path.read_bytes()).hexdigest()


@dataclass(frozen=True)
class Cache:
    """The cache in a directory, which must be writable."""

    directory: Path

    def get(self, name: str, build: Callable[[Path], None], suffix: str = ".so", *, take_turns: bool = True) -> Path:
        """Return the path of an entry. It is built first if there is no valid one.

        Parameters
        ----------
        name : str
            The name of the entry, without the suffix.
        build : callable
            build(path) writes the file.
        suffix : str
            The suffix of the file.
        take_turns : bool
            Whether other processes that ask for this entry wait while this process builds it. A process of low
            priority passes False, because other processes should not wait for it.

        Returns
        -------
        Path
            The path of the file.

        Raises
        ------
        CompilerError
            If `build` raises it, or does not write the file.
        StorageError
            If the file cannot be written.
        """
        library, seal = self.directory / f"{name}{suffix}", self._seal(name)
        if not self._sound(library, seal):
            with measured(COMPILING), self._turn(name) if take_turns else contextlib.nullcontext():
                if not self._sound(library, seal):
                    try:
                        self._store(library, seal, build)
                    except StorageError:
                        raise
                    except OSError as error:  # The disk is full, for example.
                        raise storage_error(library, error) from error
        return library

    def link(
        self, name: str, build: Callable[[Path], None], suffix: str, out: Path, *, take_turns: bool = True
    ) -> None:
        """Write `out` as a link of an entry for links, which is built first if there is no valid one.

        It is a copy with the same times where the file system has no hard links, or does not link files of other users.

        Parameters
        ----------
        name, build, suffix, take_turns
            As for `get`. BY_TEXT follows the suffix.
        out : Path
            The path at which `get` wants another entry to be built.

        Raises
        ------
        CompilerError, StorageError
            As `get` does.
        """
        source = self.get(name, build, suffix + BY_TEXT, take_turns=take_turns)
        try:
            os.link(source, out)
        except OSError:
            shutil.copy2(source, out)

    def has(self, name: str) -> bool:
        """Whether the cache has an entry. The contents of its file are not checked; `get` does that."""
        return self._seal(name).exists()

    def is_being_built(self, name: str) -> bool:
        """Whether a process that called `get` with `take_turns` is building the entry now."""
        try:
            with self._lock_file(name).open() as lock:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError:
            pass
        return False

    def _seal(self, name: str) -> Path:
        return self.directory / f"{name}.sha256"

    def _lock_file(self, name: str) -> Path:
        return self.directory / f".{name}.lock"

    @contextlib.contextmanager
    def _turn(self, name: str) -> Iterator[None]:
        """Wait until no other process builds the entry. The system releases the lock of a process that dies."""
        path = self._lock_file(name)
        with waiting.for_kernels(self.directory), path.open("w") as lock:
            # On a file system without locks, two processes may build the same entry, which only costs time. The same
            # happens if a process opened the lock file just before another one removed it.
            with contextlib.suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                yield
            finally:
                path.unlink(missing_ok=True)

    def _sound(self, library: Path, seal: Path) -> bool:
        try:
            return seal.read_text().strip() == digest_of(library)
        except (OSError, UnicodeDecodeError):
            return False

    def _store(self, library: Path, seal: Path, build: Callable[[Path], None]) -> None:
        # The temporary folder lies inside the cache, so that files are renamed within one file system.
        with tempfile.TemporaryDirectory(prefix=".build-", dir=self.directory) as scratch:
            fresh, fresh_seal = Path(scratch) / library.name, Path(scratch) / seal.name
            begin = time.monotonic()
            build(fresh)
            if not fresh.is_file():
                raise CompilerError(f"the compiler reported success, but it did not write {fresh}")
            fresh_seal.write_text(digest_of(fresh))
            os.replace(fresh, library)
            os.replace(fresh_seal, seal)
        _log.debug("%s was built in %.2f s", library, time.monotonic() - begin)


def check_owner(directory: Path) -> None:
    """Check that no other user of this machine decides what is in a directory of code that is loaded.

    The directory has to belong to this user or to root, and not everybody may write to it. Members of its group may,
    because groups share caches on purpose.

    Raises
    ------
    StorageError
        If another user could put code there.
    """
    about = directory.stat()
    if about.st_uid not in (os.getuid(), 0):
        found = f"belongs to user {about.st_uid}, who could put code there that runs as you"
    elif about.st_mode & stat.S_IWOTH:
        found = "can be written by everybody, so that others could put code there that runs as you"
    else:
        return
    raise StorageError(
        f"the cache of compiled kernels, {directory}, {found}: take the right to write from others (chmod o-w) if it "
        f"is yours, or set {DIRECTORY_VARIABLE} to a folder of your own"
    )


def _writable(directory: Path) -> str:
    """The reason why files cannot be written to a directory, or an empty string. A missing directory is created."""
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=directory):
            return ""
    except OSError as error:
        return str(error)


@functools.lru_cache(maxsize=8)
def _cache_at(directory: Path) -> Cache:
    problem = _writable(directory)
    if directory.is_dir():
        check_owner(directory)
    if not problem:
        return Cache(directory)
    private = Path(_temporary().name)
    warnings.warn(
        f"the cache of compiled kernels at {directory} is not writable ({problem}); this process compiles into "
        f"{private}, which is removed when it ends. Set {DIRECTORY_VARIABLE} to a writable folder to keep the kernels.",
        RuntimeWarning,
        stacklevel=4,
    )
    return Cache(private)


@functools.lru_cache(maxsize=1)
def _temporary() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="trnqc-cache-", dir=temporary_place())


def library_cache() -> Cache:
    """The cache in the user's cache directory. If that is not writable, a temporary one is used, with a warning.

    Raises
    ------
    StorageError
        If another user could put code into the directory.
    """
    return _cache_at(cache_directory())
