"""The constants of a launch: from a user's record, a shipped one or that of a neighbouring shape, or the default.

The note says which of these it was, in words that go into results.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from nki_kernels.descriptors.descriptor import Infeasible, Values
from trnqc.tuning import records
from trnqc.tuning.records import Record
from trnqc.tuning.requests import check
from trnqc.tuning.sources import kernel_hash

NEAR = math.log(1.5)
"""Largest |log| of the ratio of each extent to that of a neighbouring shape; farther off, other tiles are best."""


@dataclass(frozen=True)
class Choice:
    """The compile-time constants of one launch, a note on where they come from, and the record if there is one."""

    constants: dict[str, int]
    note: str
    record: Record | None = None


def choose(
    kernel: str, shape: Values, precision: str, target: str, instrument: Mapping[str, str] | None = None
) -> Choice:
    """Choose the constants of a launch.

    Parameters
    ----------
    kernel, shape, precision, target
        Name of the kernel, its extents, and what the launch is compiled for.
    instrument
        `trnqc.tuning.conditions.device_identity` of this machine; records measured on a device with other versions or
        flags do not count. None: no record of a device counts.

    Raises
    ------
    InputError
        For an unknown kernel, shape, precision or target.
    """
    known = check(kernel, shape, precision, target)
    source = kernel_hash(known)
    valid = [
        (origin, path, record)
        for origin, path, record in _records(kernel)
        if (record.source, record.target, record.precision) == (source, target, precision)
        and tuple(record.shape) == known.dims
        and (record.measurement == "modelled" or record.instrument == instrument)
    ]
    for origin, path, record in sorted(valid, key=lambda candidate: _rank(candidate, shape)):
        distance = _distance(record.shape, shape)
        if distance[0] > NEAR:
            continue
        try:
            constants = known.realise(record.point, shape, precision, target)
        except (Infeasible, KeyError):  # knobs that this version does not have, or a point that does not fit this shape
            continue
        return Choice(constants, _note(origin, path, record, shape), record)
    return Choice(known.default(shape, precision), "default tiles (no tuning record)")


def _records(kernel: str) -> Iterator[tuple[str, Path, Record]]:
    for path, record in records.read_all(records.user_directory(), kernel):
        yield "user", path, record
    for path, record in records.read_all(records.shipped_directory(), kernel, writable=False):
        yield "shipped", path, record


def _distance(here: Values, there: Values) -> tuple[float, float]:
    """Largest and summed |log| of the ratios of extents."""
    logs = [abs(math.log(here[dim] / there[dim])) for dim in there]
    return max(logs), sum(logs)


def _rank(candidate: tuple[str, Path, Record], shape: Values) -> tuple[Any, ...]:
    """Exact before near; user before shipped; device before modelled; then by distance; faster first."""
    origin, path, record = candidate
    far = _distance(record.shape, shape)[1]
    trust = records.MEASUREMENTS.index(record.measurement)
    return far > 0, origin != "user", far, trust, record.time_ns, path.name


def _note(origin: str, path: Path, record: Record, shape: Values) -> str:
    tiles = ", ".join(f"{name} {value}" for name, value in record.constants.items())
    note = f"{record.measurement} tuning, {origin} record {path.name}"
    if record.shape == dict(shape):
        return f"tiles {tiles} ({note})"
    theirs = ", ".join(f"{dim} {extent}" for dim, extent in record.shape.items())
    return f"tiles by the nearest record, of {theirs} ({note})"
