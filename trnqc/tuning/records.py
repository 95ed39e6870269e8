"""Records of tuned choices, each a readable JSON file, found again by what they are valid for.

Two directories hold them: the user's (`user_directory`) and the one that comes with the package (`shipped_directory`).
A file is written aside and renamed into place under a lock, so that readers see whole records and concurrent writers
keep the better one. A damaged file is set aside with a warning; other files are left alone.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from trnqc.host.files import cache_directory, locked, write_aside

SCHEMA = "trnqc.tuning/1"
MEASUREMENTS = ("device", "modelled")
"""Kinds of measurement, the more trusted first."""


class BadRecord(ValueError):
    """A file that should hold a record and does not."""


@dataclass(frozen=True)
class Record:
    """One tuned choice.

    Parameters
    ----------
    kernel, source, target, precision, shape, measurement, instrument
        What the record is valid for, over which `key` is taken. `source` is the digest of the kernel's source,
        `instrument` what the measurement depends on (`trnqc.tuning.conditions`).
    point, constants
        The choice, as knobs and as the kernel's compile-time constants.
    time_ns, default_ns
        Nanoseconds of the `workload` with the choice, and with the kernel's own default.
    search
        How the choice was found.
    """

    kernel: str
    source: str
    target: str
    precision: str
    shape: dict[str, int]
    measurement: str
    instrument: dict[str, str]
    point: dict[str, int]
    constants: dict[str, int]
    time_ns: float
    default_ns: float
    workload: str
    search: dict[str, Any]

    def key(self) -> str:
        """12 hex digits over the identity."""
        parts = [self.kernel, self.source, self.target, self.precision, self.shape, self.measurement, self.instrument]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]

    def file_name(self) -> str:
        """A readable name, made unique by the key."""
        shape = "-".join(f"{dim}{extent}" for dim, extent in self.shape.items())
        return f"{self.kernel}-{self.target}-{self.precision}-{shape}-{self.measurement}-{self.key()}.json"


def user_directory() -> Path:
    """tuning/records in the cache directory ($TRNQC_CACHE_DIR, else the user's)."""
    return cache_directory() / "tuning" / "records"


def shipped_directory() -> Path:
    """The records that come with the package."""
    return Path(__file__).parent / "shipped"


def dumps(record: Record) -> str:
    """A record as readable JSON, with a digest of its content as the last entry."""
    body = {"schema": SCHEMA} | dataclasses.asdict(record)
    return json.dumps(body | {"digest": _digest(body)}, indent=1) + "\n"


def loads(text: str) -> Record | None:
    """The record in a text, or None for one of another schema. Raises BadRecord for a damaged one."""
    try:
        body = json.loads(text)
    except ValueError as error:
        raise BadRecord(f"no JSON: {error}") from None
    if not isinstance(body, dict) or not str(body.get("schema", "")).startswith("trnqc.tuning/"):
        schema = body.get("schema") if isinstance(body, dict) else type(body).__name__
        raise BadRecord(f"schema {SCHEMA} was expected, found {schema}")
    if body.pop("schema") != SCHEMA:
        return None
    if body.pop("digest", None) != _digest({"schema": SCHEMA} | body):
        raise BadRecord("its digest does not match its content: it was truncated or edited")
    try:
        return Record(**body)
    except TypeError as error:
        raise BadRecord(str(error)) from None


def _digest(body: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(body, sort_keys=True).encode()).hexdigest()[:16]


def read_all(directory: Path, kernel: str = "", writable: bool = True) -> list[tuple[Path, Record]]:
    """All sound records of a kernel (or of all) in order of their names.

    A damaged file is set aside with a warning if the directory is writable, else only named.
    """
    try:
        paths = sorted(path for path in directory.iterdir() if path.name.startswith(kernel) and path.suffix == ".json")
    except FileNotFoundError:
        return []
    except OSError as error:
        warnings.warn(f"tuning records in {directory} cannot be read: {error}", RuntimeWarning, stacklevel=3)
        return []
    sound = []
    for path in paths:
        record = _read(path, directory, writable)
        if record is not None and (not kernel or record.kernel == kernel):
            sound.append((path, record))
    return sound


def _read(path: Path, directory: Path, writable: bool) -> Record | None:
    try:
        return loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except OSError as error:
        warnings.warn(f"tuning record {path} cannot be read ({error}); it is not used", RuntimeWarning, stacklevel=4)
        return None
    except (BadRecord, UnicodeDecodeError) as error:
        if writable:
            return _set_aside(path, directory, str(error))
        _complain(path, str(error), "it is not used")
        return None


def _complain(path: Path, problem: str, done: str) -> None:
    warnings.warn(f"tuning record {path} is damaged ({problem}); {done}", RuntimeWarning, stacklevel=5)


def _set_aside(path: Path, directory: Path, problem: str) -> Record | None:
    try:
        with locked(directory / ".lock"):
            try:  # a sound record may have taken its place since
                return loads(path.read_text(encoding="utf-8"))
            except (BadRecord, UnicodeDecodeError):
                aside = path.with_suffix(".damaged")
                os.replace(path, aside)
        _complain(path, problem, f"it was moved to {aside.name} and is not used")
    except OSError as error:
        _complain(path, problem, f"it could not be moved away ({error}) and is not used")
    return None


def store(record: Record, directory: Path | None = None) -> Path:
    """Write a record, unless one with its key is as good, and return its path. Raises OSError."""
    directory = directory or user_directory()
    directory.mkdir(parents=True, exist_ok=True)
    path = directory / record.file_name()
    with locked(directory / ".lock"):
        try:
            old = loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            old = None
        if old is None or record.time_ns < old.time_ns:
            write_aside(path, dumps(record), sync=True)
    return path
