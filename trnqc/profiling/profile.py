"""One profile as an immutable value: what every reader makes and every analysis and writer takes.

Times are nanoseconds from the profile's first event; summary fields bear the names of the vendor's profiler, with
percentages running from 0 to 100 and times in seconds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from trnqc.errors import InputError

ENGINES = ("tensor", "vector", "scalar", "gpsimd", "sync")
MEASUREMENTS = ("modelled", "device")
NO_STALL = "none"

Value = float | int | str


@dataclass(frozen=True, eq=False)
class Labels:
    """A column of strings: ``names[codes[k]]`` is the k-th one. codes: int32 [n]."""

    codes: np.ndarray
    names: tuple[str, ...]

    @classmethod
    def of(cls, column: Iterable[object]) -> Labels:
        """From any strings; None becomes the empty string."""
        index: dict[str, int] = {}
        codes = [index.setdefault("" if item is None else str(item), len(index)) for item in column]
        return cls(np.asarray(codes, dtype=np.int32), tuple(index))

    @classmethod
    def same(cls, name: str, n: int) -> Labels:
        return cls(np.zeros(n, dtype=np.int32), (name,))

    @classmethod
    def joined(cls, parts: Sequence[Labels]) -> Labels:
        """End to end, with one vocabulary."""
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
        """bool [n]: whether each string is one of ``wanted``."""
        chosen = set(wanted)
        return np.asarray([name in chosen for name in self.names], dtype=bool)[self.codes]


@dataclass(frozen=True, eq=False)
class Lane:
    """What one engine or DMA queue did: n events in order of their start.

    engine: one of ENGINES, ``dma...`` for a DMA engine or queue, else the source's own name. core: which physical core.
    start, end: float64 [n] ns. op: instruction or packet kind. name: what the source calls the event.
    stall, stall_ns: why and how long [n] the event waited before ``start`` (cause ``none`` where it did not).
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
        """The events of several lanes in one, which takes the first one's engine and core."""
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
        """The events of these indices."""
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
        """float64 [n, 2]."""
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

    title: kernel, graph or file. path, format: where it was read and in which form. measurement: ``modelled`` (a
    simulated clock) or ``device`` (a real one). target: trn1, trn2, trn3 or None where the source does not say.
    summary: fields under the vendor's names (module docstring for units). stalls: engine -> cause -> ns.
    queues: engine -> queues that wait at the same time under its name, where they are more than one.
    high_water: ``sbuf``, ``psum`` bytes per partition. provenance: versions, constants and the like, for the eye.
    notes: what must be known to read the figures rightly.
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
        """A summary field as a finite number, None where absent or not a number."""
        value = self.summary.get(name)
        if isinstance(value, bool | str) or value is None or not np.isfinite(value):
            return None
        return float(value)

    @property
    def cores(self) -> tuple[int, ...]:
        return tuple(sorted({lane.core for lane in self.lanes}))

    @property
    def span(self) -> tuple[float, float]:
        """First start and last end over all lanes in ns; (0, 0) without events."""
        busy = [lane for lane in self.lanes if len(lane)]
        if not busy:
            return 0.0, 0.0
        return min(float(lane.start[0]) for lane in busy), max(float(lane.end.max()) for lane in busy)
