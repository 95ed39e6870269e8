"""The cache of compiled files, each named by a digest of everything it depends on.

An entry is a file, and a seal that holds the digest of its bytes. Both are written aside and renamed into place. An
entry that is missing, unreadable, truncated or altered is a miss and is built again. If several processes ask for the
same entry at the same time, one of them builds it and the others wait.
"""

from __future__ import annotations

import contextlib
import fcntl
import functools
import hashlib
import os
import tempfile
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from trnqc.errors import CompilerError
from trnqc.host.files import DIRECTORY_VARIABLE, cache_directory


def key_of(*parts: str) -> str:
    """A digest of the parts; ("ab", "c") and ("a", "bc") differ."""
    digest = hashlib.sha256()
    for part in parts:
        data = part.encode()
        digest.update(f"{len(data)}:".encode() + data)
    return digest.hexdigest()[:32]


def _digest(path: Path) -> str:
    return hashlib.sha256(path.read_bytes()).hexdigest()


@dataclass(frozen=True)
class Cache:
    """Compiled files in `directory`, which must be writable."""

    directory: Path

    def get(self, name: str, build: Callable[[Path], None], suffix: str = ".so", *, take_turns: bool = True) -> Path:
        """The path of an entry, which is built first if there is no valid one.

        Parameters
        ----------
        name : str
            The name of the entry.
        build : callable
            build(path) writes the file.
        suffix : str
            The suffix of the file.
        take_turns : bool
            Whether other processes that ask for this entry wait for the build of this one. A process of low priority
            passes False, because others should not wait for it.
        """
        library, seal = self.directory / f"{name}{suffix}", self._seal(name)
        if not self._sound(library, seal):
            with self._turn(name) if take_turns else contextlib.nullcontext():
                if not self._sound(library, seal):
                    self._store(library, seal, build)
        return library

    def has(self, name: str) -> bool:
        """Whether there is an entry. Its bytes are not checked; `get` does that."""
        return self._seal(name).exists()

    def is_being_built(self, name: str) -> bool:
        """Whether a process that takes turns is building the entry now."""
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
        """Wait until no other process builds the entry. The lock of a process that dies is released."""
        path = self._lock_file(name)
        with path.open("w") as lock:
            # On a file system without locks an entry may be built twice, which costs only time. The same may happen to
            # a process that opened the file just before it was removed.
            with contextlib.suppress(OSError):
                fcntl.flock(lock, fcntl.LOCK_EX)
            try:
                yield
            finally:
                path.unlink(missing_ok=True)

    def _sound(self, library: Path, seal: Path) -> bool:
        try:
            return seal.read_text().strip() == _digest(library)
        except (OSError, UnicodeDecodeError):
            return False

    def _store(self, library: Path, seal: Path, build: Callable[[Path], None]) -> None:
        # The scratch folder lies inside the cache so that the renames stay on one file system.
        with tempfile.TemporaryDirectory(prefix=".build-", dir=self.directory) as scratch:
            fresh, fresh_seal = Path(scratch) / library.name, Path(scratch) / seal.name
            build(fresh)
            if not fresh.is_file():
                raise CompilerError(f"the compiler reported success but wrote nothing at {fresh}")
            fresh_seal.write_text(_digest(fresh))
            os.replace(fresh, library)
            os.replace(fresh_seal, seal)


def _writable(directory: Path) -> str:
    """The reason why files cannot be written to `directory`, which is created if missing; empty if they can."""
    try:
        directory.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryFile(dir=directory):
            return ""
    except OSError as error:
        return str(error)


@functools.lru_cache(maxsize=8)
def _cache_at(directory: Path) -> Cache:
    problem = _writable(directory)
    if not problem:
        return Cache(directory)
    private = _private_directory()
    warnings.warn(
        f"the cache of compiled kernels at {directory} cannot be written ({problem}); this process compiles into "
        f"{private} and removes it at its end. Set {DIRECTORY_VARIABLE} to a writable folder to keep them.",
        RuntimeWarning,
        stacklevel=4,
    )
    return Cache(private)


@functools.lru_cache(maxsize=1)
def _temporary() -> tempfile.TemporaryDirectory[str]:
    return tempfile.TemporaryDirectory(prefix="trnqc-cache-")


def _private_directory() -> Path:
    return Path(_temporary().name)


def library_cache() -> Cache:
    """The cache in the user's directory or, with a warning, in a temporary one if that is not writable."""
    return _cache_at(cache_directory())
