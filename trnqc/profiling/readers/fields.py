"""Summary fields as the sources write them -> ours: numbers, percentages from 0 to 100, unavailable ones left out."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trnqc.profiling.profile import Value
from trnqc.profiling.readers.checks import LARGEST

PERCENT = "_percent"
SMALLEST = 1e-18  # below any time or share; like LARGEST it keeps quotients of damaged figures finite


def available(raw: Mapping[str, Any]) -> tuple[dict[str, Value], list[str]]:
    """(fields, notes) of a source that writes percentages as they are called: what is no figure is left out."""
    given = {str(k): v for k, v in raw.items() if isinstance(v, int | float | str) and not isinstance(v, bool)}
    missing = sorted(k for k, v in given.items() if not _available(k, v))
    fields = {k: v for k, v in given.items() if k not in missing}
    return fields, [f"the source could not give {', '.join(missing)}"] if missing else []


def normal(raw: Mapping[str, Any]) -> tuple[dict[str, Value], list[str]]:
    """(fields, notes) of the vendor's.

    The vendor's tools write percentages as fractions of one, and negative ones where a figure could not be
    had; whether a file's are fractions is settled from the file itself where it can be.
    """
    fields, notes = available(raw)
    if _fractions(fields):
        fields = {k: v * 100 if k.endswith(PERCENT) and not isinstance(v, str) else v for k, v in fields.items()}
        notes.append("percentages stand as fractions of one in the source")
    return fields, notes


def _available(name: str, value: Value) -> bool:
    if isinstance(value, str) or value == 0:
        return True
    return SMALLEST < abs(value) < LARGEST and not (value < 0 and name.endswith(PERCENT))


def _fractions(fields: Mapping[str, Value]) -> bool:
    """By the pair (active time, its percentage) that says most, else by the size of the percentages."""
    percent = {k: float(v) for k, v in fields.items() if k.endswith(PERCENT) and not isinstance(v, str) and v > 0}
    total = fields.get("total_time")
    if isinstance(total, int | float) and total > 0:
        pairs = [(float(fields[k.removesuffix(PERCENT)]) / total, p) for k, p in percent.items() if _timed(fields, k)]
        ratio, found = max(pairs, default=(0.0, 0.0))
        if ratio > 0:
            return abs(found - ratio) < abs(found - 100 * ratio)
    # A utilisation above one and a half of the peak is no fraction; all below: nothing but fractions looks like that.
    return bool(percent) and max(percent.values()) <= 1.5


def _timed(fields: Mapping[str, Value], name: str) -> bool:
    value = fields.get(name.removesuffix(PERCENT))
    return name.endswith("_active_time_percent") and isinstance(value, int | float) and value > 0
