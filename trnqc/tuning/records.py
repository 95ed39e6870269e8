"""Records of tuned choices. Each record is a readable JSON file.

They are stored in two directories: that of the user (`user_directory`) and one in the package (`shipped_directory`). A
file is written under a temporary name and renamed under a lock, so that readers see complete records, and the better of
two records is kept. A damaged file is renamed with a warning. Other files are not touched.
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
"""The kinds of measurement, in the order of decreasing trust."""


class BadRecord(ValueError):
    """A file does not contain a valid record."""


@dataclass(frozen=True)
class Record:
    """One tuned choice.

    Parameters
    ----------
    kernel, source, target, precision, shape, measurement, instrument
        The launches for which the record is valid; `key` is a digest of these. `source` is the digest of the source of
        the kernel, and `instrument` contains the conditions of the measurement (`trnqc.tuning.conditions`).
    point, constants
        The choice, as knobs and as compile-time constants of the kernel.
    time_ns, default_ns
        The time of `workload` in nanoseconds, with this choice and with the default of the kernel.
    workload
        What was timed, in words.
    search
        The method, the seed and the counts of the search.
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
        """A digest of 12 hexadecimal digits of what the record is valid for."""
        parts = [self.kernel, self.source, self.target, self.precision, self.shape, self.measurement, self.instrument]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()[:12]

    def file_name(self) -> str:
        """A readable name, which the key makes unique."""
        shape = "-".join(f"{dim}{extent}" for dim, extent in self.shape.items())
        return f"{self.kernel}-{self.target}-{self.precision}-{shape}-{self.measurement}-{self.key()}.json"


def user_directory() -> Path:
    """The folder tuning/records in the cache directory ($TRNQC_CACHE_DIR, else that of the user)."""
    return cache_directory() / "tuning" / "records"


def shipped_directory() -> Path:
    """The folder of the records that are part of the package."""
    return Path(__file__).parent / "shipped"


def dumps(record: Record) -> str:
    """A record as readable JSON, with a digest of its content as the last entry."""
    body = {"schema": SCHEMA} | dataclasses.asdict(record)
    return json.dumps(body | {"digest": _digest(body)}, indent=1) + "\n"


def loads(text: str) -> Record | None:
    """The record in a text, or None if it has another schema. Raises BadRecord if the text is damaged."""
    try:
        body = json.loads(text)
    except ValueError as error:
        raise BadRecord(f"it is not JSON: {error}") from None
    if not isinstance(body, dict) or not str(body.get("schema", "")).startswith("trnqc.tuning/"):
        schema = body.get("schema") if isinstance(body, dict) else type(body).__name__
        raise BadRecord(f"expected the schema {SCHEMA}, found {schema}")
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
    """All valid records of a kernel, or of all kernels, in the order of the file names.

    A damaged file gives a warning. If the directory is writable, the file is also renamed.
    """
    try:
        paths = sorted(path for path in directory.iterdir() if path.name.startswith(kernel) and path.suffix == ".json")
    except FileNotFoundError:
        return []
    except OSError as error:
        warnings.warn(f"tuning records in {directory} cannot be read: {error}", RuntimeWarning, stacklevel=3)
        return []
    valid = []
    for path in paths:
        record = _read(path, directory, writable)
        if record is not None and (not kernel or record.kernel == kernel):
            valid.append((path, record))
    return valid


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
        _warn(path, str(error), "it is not used")
        return None


def _warn(path: Path, problem: str, outcome: str) -> None:
    warnings.warn(f"tuning record {path} is damaged ({problem}); {outcome}", RuntimeWarning, stacklevel=5)


def _set_aside(path: Path, directory: Path, problem: str) -> Record | None:
    try:
        with locked(directory / ".lock"):
            try:  # Another process may have written a valid record meanwhile.
                return loads(path.read_text(encoding="utf-8"))
            except (BadRecord, UnicodeDecodeError):
                aside = path.with_suffix(".damaged")
                os.replace(path, aside)
        _warn(path, problem, f"it was moved to {aside.name} and is not used")
    except OSError as error:
        _warn(path, problem, f"it could not be moved away ({error}) and is not used")
    return None


def store(record: Record, directory: Path | None = None) -> Path:
    """Write a record, unless there is one with the same key that is as fast. Returns its path. Raises OSError."""
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
