"""Normalisation of summary fields: percentages run from 0 to 100, and unavailable figures are dropped."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from trnqc.profiling.profile import Value
from trnqc.profiling.readers.checks import LARGEST

PERCENT = "_percent"
# Smallest magnitude of a non-zero figure. It is below any time or share; with LARGEST it keeps quotients of damaged
# figures finite.
SMALLEST = 1e-18


def available(raw: Mapping[str, Any]) -> tuple[dict[str, Value], list[str]]:
    """Return (fields, notes) of a source whose percentages run from 0 to 100; unavailable figures are dropped."""
    figures = {str(k): v for k, v in raw.items() if isinstance(v, int | float | str) and not isinstance(v, bool)}
    missing = sorted(k for k, v in figures.items() if not _available(k, v))
    fields = {k: v for k, v in figures.items() if k not in missing}
    return fields, [f"the source does not state {', '.join(missing)}"] if missing else []


def normal(raw: Mapping[str, Any]) -> tuple[dict[str, Value], list[str]]:
    """Return (fields, notes) of a summary of the vendor.

    The vendor's tools write percentages as fractions of one, and as negative values where a figure is unavailable.
    Whether a file uses fractions is inferred from the file itself where possible.
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
    """Return whether percentages are stored as fractions of one.

    This is decided by the largest active time that has a percentage, otherwise by the size of the percentages.
    """
    percent = {k: float(v) for k, v in fields.items() if k.endswith(PERCENT) and not isinstance(v, str) and v > 0}
    total = fields.get("total_time")
    if isinstance(total, int | float) and total > 0:
        pairs = [(float(fields[k.removesuffix(PERCENT)]) / total, p) for k, p in percent.items() if _timed(fields, k)]
        ratio, percent_of_pair = max(pairs, default=(0.0, 0.0))
        if ratio > 0:
            return abs(percent_of_pair - ratio) < abs(percent_of_pair - 100 * ratio)
    # No utilisation exceeds one and a half of the peak, so that larger values are percentages.
    return bool(percent) and max(percent.values()) <= 1.5


def _timed(fields: Mapping[str, Value], name: str) -> bool:
    value = fields.get(name.removesuffix(PERCENT))
    return name.endswith("_active_time_percent") and isinstance(value, int | float) and value > 0
