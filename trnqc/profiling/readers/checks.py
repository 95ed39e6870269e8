"""Access to decoded JSON. Errors name the file, the place, the expected and the actual value."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from trnqc.errors import InputError

# Clocks count nanoseconds in 64 bits, so larger numbers, infinities and NaN indicate a damaged file.
LARGEST = 2.0**63
_WORDS = {dict: "an object", list: "a list", str: "a string", (int, float): "a number"}


def is_of_schema(data: Any, schema: str) -> bool:
    """Return whether decoded JSON is of some version of a schema such as ``trnqc.timeline/1``."""
    return isinstance(data, Mapping) and str(data.get("schema", "")).startswith(schema.rpartition("/")[0] + "/")


def check_version(data: Mapping[str, Any], schema: str, path: Path) -> None:
    """Raise InputError if decoded JSON of a schema is of another version."""
    if data["schema"] != schema:
        raise InputError(f"{path}: expected schema {schema}, found {data['schema']!r}; use the trnqc that wrote it")


def need(record: Any, key: str, kind: Any, path: Path, where: str) -> Any:
    """Return ``record[key]`` and raise InputError if it is missing or not of type ``kind``."""
    if not isinstance(record, Mapping):
        raise InputError(f"{path}: {where}: expected an object, found {type(record).__name__}")
    if key not in record:
        raise InputError(f"{path}: {where}: expected the field {key!r}, found {_some(record)}")
    value = record[key]
    odd = isinstance(value, bool) or not isinstance(value, kind)
    if odd or (isinstance(value, int | float) and not abs(value) < LARGEST):
        raise InputError(f"{path}: {where}: {key!r}: expected {_WORDS[kind]}, found {value!r:.80}")
    return value


def numbers(records: Sequence[Any], key: str, path: Path, where: str) -> np.ndarray:
    """Return one field of every record as float64, or as int64 if all are whole (nanosecond clocks exceed 2^53)."""
    column = [need(record, key, (int, float), path, f"{where}[{k}]") for k, record in enumerate(records)]
    whole = all(isinstance(value, int) for value in column)
    return np.asarray(column, dtype=np.int64 if whole else np.float64)


def optional_numbers(records: Sequence[Any], key: str, path: Path, where: str) -> np.ndarray:
    """Return one optional field of every record as `numbers` does, with 0 where it is missing or null."""
    full = [record if record.get(key) is not None else {key: 0} for record in records]
    return numbers(full, key, path, where)


def strings(records: Sequence[Mapping[str, Any]], *keys: str) -> list[str]:
    """Return for every record the first of these fields that it has, or the empty string."""
    return [next((str(r[key]) for key in keys if r.get(key) not in (None, "")), "") for r in records]


def ordered(start: np.ndarray, end: np.ndarray, path: Path, where: str) -> None:
    """Raise InputError if an event is not a finite interval."""
    wrong = np.flatnonzero(~(np.isfinite(start) & np.isfinite(end) & (end >= start)))
    if len(wrong):
        k = int(wrong[0])
        raise InputError(
            f"{path}: {where}[{k}]: expected a start before the end, found start {start[k]} and end {end[k]}"
        )


def _some(record: Mapping[str, Any]) -> str:
    names = sorted(map(str, record))
    return ", ".join(names[:8]) + (", ..." if len(names) > 8 else "") if names else "no fields"
