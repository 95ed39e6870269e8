"""Readers of profile files in several formats.

path -> format, recognised from the content -> reader of that format -> one profile, or one per worker
"""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

from trnqc.errors import InputError
from trnqc.profiling.machines import machine
from trnqc.profiling.profile import Profile
from trnqc.profiling.readers import chrome, figures, nsight, pftrace, tables, timeline, vendor_json

# Readers of JSON formats, in the order in which they are tried.
JSON_FORMS = (timeline, figures, chrome, nsight, vendor_json)
# Formats that can be read, in words for errors.
READABLE = (
    "a trnqc timeline or analysis, the vendor's summary-json or json, a directory of its Parquet tables, a Perfetto "
    "trace (.pftrace or JSON), a torch.profiler trace or an Nsight Systems GPU trace in JSON"
)
# Endings of files that the vendor's tool has to convert first.
RAW = {".ntff": "a raw capture", ".neff": "a compiled program"}
CONVERT = "convert it first: neuron-explorer view -n A.neff -s A.ntff --output-format json --output-file A.json"


def read(path: str | Path, target: str | None = None) -> tuple[Profile, ...]:
    """Read all profiles of a file, or of a directory of Parquet tables.

    Parameters
    ----------
    path : str or Path
        The file or directory. Its format is recognised from the content.
    target : str, optional
        Target that overrides the one in the file.

    Returns
    -------
    tuple of Profile
        One profile, or one per worker.

    Raises
    ------
    InputError
        If the file does not exist, is of an unknown format, truncated or damaged.
    UnsupportedError
        If pyarrow is needed but not installed.
    """
    path = Path(path)
    if target is not None:
        machine(target)
    profiles = _read(path)
    return profiles if target is None else tuple(replace(profile, target=target) for profile in profiles)


def _read(path: Path) -> tuple[Profile, ...]:
    if path.is_dir():
        if not any(path.glob("*.parquet")):
            raise InputError(f"{path}: expected the vendor's Parquet tables in this directory, found no .parquet file")
        return tables.read(path)
    if path.suffix.lower() in RAW:
        raise InputError(f"{path}: expected {READABLE}; found {RAW[path.suffix.lower()]}; {CONVERT}")
    data = _bytes(path)
    if data[:4] == b"PAR1":
        return tables.read(path)
    if data.lstrip()[:1] in (b"{", b"["):
        return _json(data, path)
    if pftrace.matches(data[:16]):
        return pftrace.read(data, path)
    raise InputError(f"{path}: expected {READABLE}; found {_looks(data)}")


def _bytes(path: Path) -> bytes:
    try:
        data = path.read_bytes()
        return gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data
    except (gzip.BadGzipFile, EOFError) as error:
        raise InputError(f"{path}: expected a whole gzip file, found one that cannot be unpacked: {error}") from error
    except OSError as error:
        raise InputError(f"{path}: expected a readable file: {error.strerror or error}") from error


def _json(data: bytes, path: Path) -> tuple[Profile, ...]:
    try:
        decoded: Any = json.loads(data)
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: expected whole JSON, found {_broken(error, data)}") from error
    for form in JSON_FORMS:
        if form.matches(decoded):
            return form.read(decoded, path)
    if command := figures.command_of(decoded):
        raise InputError(
            f"{path}: expected a profile of a run, found a record of the figures of `{command}`: read it as JSON; "
            "profiles/modelled/analyses holds profiles, and scripts.model.profile makes them"
        )
    raise InputError(f"{path}: expected {READABLE}; found other JSON: {_keys(decoded)}")


def _broken(error: ValueError, data: bytes) -> str:
    # The decoder reports the opening quote of a string that never closes, so look at what follows it.
    at = getattr(error, "pos", len(data))
    cut = at >= len(data.rstrip()) - 1 or "Unterminated" in str(error)
    return f"a file that is cut short at byte {len(data)}" if cut else f"a fault: {error}"


def _keys(decoded: Any) -> str:
    if isinstance(decoded, dict):
        return f"an object with {', '.join(map(repr, list(decoded)[:6])) or 'no fields'}"
    return f"a list of {len(decoded)}" if isinstance(decoded, list) else type(decoded).__name__


def _looks(data: bytes) -> str:
    return "an empty file" if not data.strip() else f"a file that begins with {data[:16]!r}"
