"""The immutable profile that readers return and that analyses and writers take.

Times are in ns from the first event of the profile. Summary fields have the names of the vendor's profiler; their
percentages run from 0 to 100 and their times are in seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from trnqc.errors import InputError

# Engines of a NeuronCore, in the order in which reports show them.
ENGINES = ("tensor", "vector", "scalar", "gpsimd", "sync")
# Clock of a profile: a simulated one, or that of a device.
MEASUREMENTS = ("modelled", "device")
# Cause of an event that did not wait.
NO_STALL = "none"

Value = float | int | str


@dataclass(frozen=True, eq=False)
class Labels:
    """A column of strings: ``names[codes[k]]`` is the k-th one. codes: int32 [n]."""

    codes: np.ndarray
    names: tuple[str, ...]

    @classmethod
    def of(cls, column: Iterable[object]) -> Labels:
        """Return the labels of a column of strings; None becomes the empty string."""
        index: dict[str, int] = {}
        codes = [index.setdefault("" if item is None else str(item), len(index)) for item in column]
        return cls(np.asarray(codes, dtype=np.int32), tuple(index))

    @classmethod
    def same(cls, name: str, n: int) -> Labels:
        return cls(np.zeros(n, dtype=np.int32), (name,))

    @classmethod
    def joined(cls, parts: Sequence[Labels]) -> Labels:
        """Return the concatenation of several columns."""
        index: dict[str, int] = {}
        codes = [
            np.asarray([index.setdefault(name, len(index)) for name in part.names], dtype=np.int32)[part.codes]
            for part in parts
        ]
        return cls(np.concatenate(codes), tuple(index))

    def take(self, index: np.ndarray) -> Labels:
        return Labels(self.codes[index], self.names)

    def __getitem__(self, k: int) -> str:
        return self.names[self.codes[k]]

    def __len__(self) -> int:
        return len(self.codes)

    def among(self, wanted: Iterable[str]) -> np.ndarray:
        """Return for each string whether it is one of ``wanted``, as bool [n]."""
        chosen = set(wanted)
        return np.asarray([name in chosen for name in self.names], dtype=bool)[self.codes]


@dataclass(frozen=True, eq=False)
class Lane:
    """The n events of one engine or DMA queue, sorted by their start.

    `engine` is one of ENGINES, ``dma...`` for a DMA engine or queue, otherwise the name in the source; times are in ns,
    float64 [n]. `op` are kinds of instructions or packets, `name` names in the source, `core` the physical core; the
    cause of the wait before an event is "none" without a wait.
    """

    engine: str
    start: np.ndarray
    end: np.ndarray
    op: Labels
    name: Labels
    stall: Labels
    stall_ns: np.ndarray
    core: int = 0

    def __post_init__(self) -> None:
        order = np.argsort(self.start, kind="stable")
        if np.any(order[1:] < order[:-1]):
            for name in ("start", "end", "stall_ns"):
                object.__setattr__(self, name, getattr(self, name)[order])
            for name in ("op", "name", "stall"):
                object.__setattr__(self, name, getattr(self, name).take(order))
        for name in ("start", "end", "stall_ns"):
            getattr(self, name).setflags(write=False)

    @classmethod
    def joined(cls, parts: Sequence[Lane]) -> Lane:
        """Return one lane with the events of several lanes and the engine and core of the first."""
        if len(parts) == 1:
            return parts[0]
        return cls(
            parts[0].engine,
            np.concatenate([part.start for part in parts]),
            np.concatenate([part.end for part in parts]),
            Labels.joined([part.op for part in parts]),
            Labels.joined([part.name for part in parts]),
            Labels.joined([part.stall for part in parts]),
            np.concatenate([part.stall_ns for part in parts]),
            parts[0].core,
        )

    def part(self, index: np.ndarray) -> Lane:
        """Return a lane with the events at these indices."""
        return Lane(
            self.engine,
            self.start[index],
            self.end[index],
            self.op.take(index),
            self.name.take(index),
            self.stall.take(index),
            self.stall_ns[index],
            self.core,
        )

    def __len__(self) -> int:
        return len(self.start)

    @property
    def intervals(self) -> np.ndarray:
        """Start and end of every event in ns, float64 [n, 2]."""
        return np.column_stack([self.start, self.end])


@dataclass(frozen=True, eq=False)
class Series:
    """A quantity sampled over time. time: float64 [n] ns; value: float64 [n]."""

    name: str
    unit: str
    time: np.ndarray
    value: np.ndarray


def _frozen(mapping: Mapping[str, Any]) -> Mapping[str, Any]:
    return MappingProxyType({k: _frozen(v) if isinstance(v, Mapping) else v for k, v in mapping.items()})


@dataclass(frozen=True, eq=False)
class Profile:
    """One run of one program on one (logical) core.

    Attributes
    ----------
    title
        Name of the kernel, graph or file.
    path, format
        File that was read, and its format.
    measurement
        "modelled" (simulated clock) or "device" (real clock).
    target
        "trn1", "trn2", "trn3", or None if the source does not say.
    summary
        Fields under the vendor's names; see the module docstring for units.
    lanes, series
        Events by engine or queue, and quantities sampled over time.
    stalls
        Idle time in ns by engine and cause.
    queues
        Number of queues of each engine that wait independently, if more than one.
    high_water
        Bytes per partition in use at most, for "sbuf" and "psum".
    provenance
        Versions, constants and similar information for display.
    notes
        Caveats for the interpretation of the figures.
    """

    title: str
    path: str
    format: str
    measurement: str
    target: str | None = None
    summary: Mapping[str, Value] = field(default_factory=dict)
    lanes: Sequence[Lane] = ()
    stalls: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    queues: Mapping[str, int] = field(default_factory=dict)
    series: Sequence[Series] = ()
    high_water: Mapping[str, float] = field(default_factory=dict)
    provenance: Mapping[str, str] = field(default_factory=dict)
    notes: Sequence[str] = ()

    def __post_init__(self) -> None:
        if self.measurement not in MEASUREMENTS:
            raise InputError(f"{self.path}: measurement: expected one of {MEASUREMENTS}, found {self.measurement!r}")
        for name in ("summary", "stalls", "queues", "high_water", "provenance"):
            object.__setattr__(self, name, _frozen(getattr(self, name)))
        for name in ("lanes", "series", "notes"):
            object.__setattr__(self, name, tuple(getattr(self, name)))

    def number(self, name: str) -> float | None:
        """Return a summary field as a number, or None if it is absent, not a number or not finite."""
        value = self.summary.get(name)
        if isinstance(value, bool | str) or value is None or not np.isfinite(value):
            return None
        return float(value)

    @property
    def cores(self) -> tuple[int, ...]:
        return tuple(sorted({lane.core for lane in self.lanes}))

    @property
    def span(self) -> tuple[float, float]:
        """First start and last end in ns over all lanes; (0, 0) without events."""
        busy = [lane for lane in self.lanes if len(lane)]
        if not busy:
            return 0.0, 0.0
        return min(float(lane.start[0]) for lane in busy), max(float(lane.end.max()) for lane in busy)
