"""Choose the constants of a launch from the user's records, the shipped records, or the default.

A note says where they come from. It is part of the results.
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
"""The largest |log| of the ratio of two extents for which the record of another shape is used."""


@dataclass(frozen=True)
class LaunchChoice:
    """The compile-time constants of a launch, a note that says where they come from, and the record if there is one."""

    constants: dict[str, int]
    note: str
    record: Record | None = None


def choose(
    kernel: str, shape: Values, precision: str, target: str, instrument: Mapping[str, str] | None = None
) -> LaunchChoice:
    """Choose the constants of a launch.

    Parameters
    ----------
    kernel, shape, precision, target
        The name of the kernel, its extents, the precision, and the generation of the chip.
    instrument
        `trnqc.tuning.conditions.device_identity` of this machine. Records that were measured on a device with other
        versions or flags are not used. With None, no records that were measured on a device are used.

    Returns
    -------
    LaunchChoice
        The constants of the best record, or the default of the kernel.

    Raises
    ------
    InputError
        If the kernel, shape, precision or target is unknown.
    """
    descriptor = check(kernel, shape, precision, target)
    source = kernel_hash(descriptor)
    valid = [
        (origin, path, record)
        for origin, path, record in _records(kernel)
        if (record.source, record.target, record.precision) == (source, target, precision)
        and tuple(record.shape) == descriptor.dims
        and (record.measurement == "modelled" or record.instrument == instrument)
    ]
    for origin, path, record in sorted(valid, key=lambda candidate: _rank(candidate, shape)):
        distance = _distance(record.shape, shape)
        if distance[0] > NEAR:
            continue
        try:
            constants = descriptor.realise(record.point, shape, precision, target)
        except (Infeasible, KeyError):  # Its knobs do not exist any more, or do not fit this shape.
            continue
        return LaunchChoice(constants, _note(origin, path, record, shape), record)
    return LaunchChoice(descriptor.default(shape, precision), "default tiles (no tuning record)")


def _records(kernel: str) -> Iterator[tuple[str, Path, Record]]:
    for path, record in records.read_all(records.user_directory(), kernel):
        yield "user", path, record
    for path, record in records.read_all(records.shipped_directory(), kernel, writable=False):
        yield "shipped", path, record


def _distance(shape: Values, other: Values) -> tuple[float, float]:
    """The largest |log| of the ratios of extents, and the sum over all extents."""
    logs = [abs(math.log(shape[dim] / other[dim])) for dim in other]
    return max(logs), sum(logs)


def _rank(candidate: tuple[str, Path, Record], shape: Values) -> tuple[Any, ...]:
    """The sort key of a record: exact before other shapes, user before shipped, then distance, trust and time."""
    origin, path, record = candidate
    distance = _distance(record.shape, shape)[1]
    trust = records.MEASUREMENTS.index(record.measurement)
    return distance > 0, origin != "user", distance, trust, record.time_ns, path.name


def _note(origin: str, path: Path, record: Record, shape: Values) -> str:
    tiles = ", ".join(f"{name} {value}" for name, value in record.constants.items())
    note = f"{record.measurement} tuning, {origin} record {path.name}"
    if record.shape == dict(shape):
        return f"tiles {tiles} ({note})"
    extents = ", ".join(f"{dim} {extent}" for dim, extent in record.shape.items())
    return f"tiles by the nearest record, of {extents} ({note})"
