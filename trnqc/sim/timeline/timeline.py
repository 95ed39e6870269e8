"""A model of the time that a kernel takes on a NeuronCore. It needs no device, and every figure is an estimate.

    kernel, shapes --trace--> program --place, cost, hazards--> schedule --> Timeline

``timeline(kernel)(*args)`` accepts the same arguments as ``trace``: arrays, or a ``Spec`` where the values do not
matter. The constants of the model are those of `trnqc.sim.timeline.costs`.
"""

from __future__ import annotations

import os
import platform
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any

from trnqc.sim.launch.jit import Kernel
from trnqc.sim.launch.launch import execute
from trnqc.sim.machine.faults import NkiValidationError
from trnqc.sim.machine.machine import Trace
from trnqc.sim.machine.targets import Target, target_from_environment
from trnqc.sim.machine.version import parses
from trnqc.sim.timeline.costs import constants_for
from trnqc.sim.timeline.hazards import Hazards
from trnqc.sim.timeline.identities import IdentityRecorder
from trnqc.sim.timeline.loops import Runner
from trnqc.sim.timeline.placement import place
from trnqc.sim.timeline.record import Loop, Recorder, Step
from trnqc.sim.timeline.schedule import Schedule
from trnqc.sim.timeline.summary import stalls_of, summarise, waits_of
from trnqc.sim.timeline.totals import Event
from trnqc.sim.timeline.work import WorkTable

SCHEMA = "trnqc.timeline/1"


@dataclass(frozen=True, eq=False)
class Timeline:
    """The modelled execution of one kernel on one core.

    Attributes
    ----------
    kernel, target
        Name of the kernel, and the generation ("trn1", "trn2" or "trn3").
    total_ns
        Time in ns from the first instruction until the last result is in memory. Launch overhead is not included; see
        the summary.
    constants
        Constants of the model, by name.
    figures
        The summary, as returned by `summary`.
    events
        Events of the loop passes that were placed, up to the event limit.
    stalls
        Idle time in ns by engine and cause.
    waits
        Idle time in ns by engine and by cause with the awaited engine.
    extrapolation
        A sentence that says which loop passes were extrapolated.
    high_water
        Largest number of bytes per partition in use, for "sbuf" and "psum".
    versions
        Versions of trnqc and Python.
    """

    kernel: str
    target: str
    total_ns: float
    constants: Mapping[str, float]
    figures: Mapping[str, float | int | str]
    events: tuple[Event, ...]
    stalls: Mapping[str, Mapping[str, float]]
    waits: Mapping[str, Mapping[str, float]]
    extrapolation: str
    high_water: Mapping[str, int]
    versions: Mapping[str, str]

    def summary(self) -> dict[str, float | int | str]:
        """Return the figures under the names of the vendor's profiler. Times are in seconds."""
        return dict(self.figures)

    def to_dict(self) -> dict[str, Any]:
        """Return the timeline as a JSON-serialisable dictionary of schema trnqc.timeline/1."""
        fields = asdict(self)
        fields["summary"] = fields.pop("figures")
        fields["events"] = [event._asdict() for event in self.events]
        return {"schema": SCHEMA, "measurement": "modelled", **fields}

    @classmethod
    def from_dict(cls, data: Mapping[str, Any]) -> Timeline:
        """Inverse of `to_dict`.

        Raises
        ------
        NkiValidationError
            If ``data`` is of another schema.
        KeyError
            If a field is missing.
        """
        if data.get("schema") != SCHEMA:
            raise NkiValidationError(f"expected a timeline of schema {SCHEMA}, got {data.get('schema')!r}")
        fields = {name: data["summary" if name == "figures" else name] for name in cls.__dataclass_fields__}
        fields["events"] = tuple(Event(**{**e, "iteration": tuple(e["iteration"])}) for e in data["events"])
        return cls(**fields)


def timeline(
    kernel: Kernel | Callable[..., Any],
    constants: Mapping[str, float] | None = None,
    target: str | None = None,
    data: bool = False,
    extrapolate: bool = True,
    event_limit: int = 50_000,
) -> Callable[..., Timeline]:
    """Model the execution of a kernel on one core (core 0 of a launch on two).

    Parameters
    ----------
    kernel : Kernel or callable
        The kernel.
    constants : mapping, optional
        Values that override those of `trnqc.sim.timeline.costs.TABLE`, by name.
    target : str, optional
        "trn1", "trn2" or "trn3". By default the target is taken from the environment.
    data : bool
        If true, the results are computed as well; all arguments must then be arrays.
    extrapolate : bool
        If false, every pass of every device loop is placed.
    event_limit : int
        Largest number of events that are kept.

    Returns
    -------
    callable
        A function that takes the arguments of the kernel and returns its `Timeline`.
    """

    def run(*args: Any, **kwargs: Any) -> Timeline:
        function = kernel.func if isinstance(kernel, Kernel) else kernel
        with _targeting(target):
            chosen = target_from_environment()
            values = constants_for(chosen.name, {"transpose_identity": float(parses()), **(constants or {})})
            recorder = IdentityRecorder() if values["transpose_identity"] else Recorder()
            lnc = getattr(kernel, "lnc", 1)
            trace = execute(function, args, kwargs, lnc, dry=not data, target=chosen, observer=recorder)[1]
        if isinstance(recorder, IdentityRecorder):
            trace = replace(trace, sbuf_high_water=trace.sbuf_high_water + recorder.identity_bytes)
        schedule, words = _place(recorder, chosen, values, extrapolate, event_limit)
        return _finish(function, chosen, values, trace, schedule, words)

    return run


@contextmanager
def _targeting(name: str | None) -> Iterator[None]:
    """Set the target in the environment for the whole run, because kernels query its limits while they are built."""
    key = "NEURON_PLATFORM_TARGET_OVERRIDE"
    before = os.environ.get(key)
    if name is not None:
        os.environ[key] = name
    try:
        yield
    finally:
        if name is not None:
            os.environ.pop(key) if before is None else os.environ.__setitem__(key, before)


def _place(
    recorder: Recorder, target: Target, values: dict[str, float], extrapolate: bool, event_limit: int
) -> tuple[Schedule, str]:
    placement = place(recorder.tiles, target, bool(values["rotate_addresses"]))
    own = [values["dependent_cycles"] / values[f"{e}_ghz"] for e in ("tensor", "vector", "scalar", "gpsimd")] + [0.0]
    written, read = _hbm_use(recorder.program)
    hazards = Hazards(recorder.tiles, placement.before, written & read, values["semaphore_ns"], own)
    schedule = Schedule(WorkTable(values), hazards, placement.address, values, event_limit)
    runner = Runner(schedule, extrapolate)
    runner.run(recorder.program)
    words = "; ".join(runner.words.values()) or "every instruction was placed"
    if schedule.dropped:
        words += f"; {schedule.dropped} events beyond the limit of {event_limit} are not listed"
    return schedule, words


def _hbm_use(body: list[Step | Loop]) -> tuple[set[int], set[int]]:
    """Return the HBM storages that the program writes, and the HBM storages that it reads."""
    written: set[int] = set()
    read: set[int] = set()
    for item in body:
        if isinstance(item, Step):
            written.update(o.storage for o in item.outputs if o.space == "hbm")
            read.update(o.storage for o in item.inputs if o.space == "hbm")
        else:
            inner = _hbm_use(item.body)
            written |= inner[0]
            read |= inner[1]
    return written, read


def _finish(
    function: Callable[..., Any], target: Target, values: dict[str, float], trace: Trace, schedule: Schedule, words: str
) -> Timeline:
    from trnqc.version import __version__

    return Timeline(
        kernel=getattr(function, "__name__", str(function)),
        target=target.name,
        total_ns=schedule.end,
        constants=values,
        figures=summarise(schedule.totals.sums, schedule.end, values, trace),
        events=tuple(schedule.events),
        stalls=stalls_of(schedule.totals.sums),
        waits=waits_of(schedule.totals.sums),
        extrapolation=words,
        high_water={"sbuf": trace.sbuf_high_water, "psum": trace.psum_high_water},
        versions={"trnqc": __version__, "python": platform.python_version()},
    )
