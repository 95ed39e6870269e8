"""A tuning run: measures the default, then what the search proposes, each once, and records the best one."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from autotune import journal as journals
from autotune.instruments import GATED_LAST, Job, resolve
from autotune.measure import Trial, measure, reduced
from autotune.search import SEARCHES, expected, pick
from autotune.spaces import Space, space
from nki_kernels.descriptors import kernels
from trnqc import backends
from trnqc.errors import InputError, TrnqcError
from trnqc.tuning import records
from trnqc.tuning.conditions import chip_target, device_identity, model_identity
from trnqc.tuning.records import Record
from trnqc.tuning.sources import kernel_hash

Measure = Callable[[Job, float], Trial]
Progress = Callable[["Step", int, int], None]


class TuningFailed(TrnqcError):
    """Neither the default nor any candidate ran; the message holds the first reason."""


@dataclass(frozen=True)
class Request:
    """What to tune and how far: at most `budget` whole workloads, and `seconds` of measuring (None for no limit)."""

    kernel: str
    shape: dict[str, int]
    precision: str
    target: str
    instrument: str = "modelled"
    search: str = "auto"
    budget: int = 64
    seconds: float | None = None
    timeout: float = 120.0
    seed: int = 0


@dataclass(frozen=True)
class Step:
    """One measured candidate, for progress and reports. gate tells whether its result was compared."""

    constants: dict[str, int]
    fraction: float
    trial: Trial
    replayed: bool
    gate: bool


@dataclass(frozen=True)
class Outcome:
    """All steps, that of the default first; the record of the best one, and its file, None if it was not stored."""

    request: Request
    space: Space
    search: str
    why: str
    steps: tuple[Step, ...]
    record: Record
    path: Path | None


def identity(instrument: str) -> dict[str, str]:
    """The versions, flags or model on which a measurement by this instrument depends."""
    if instrument == "modelled":
        return model_identity()
    return device_identity() if instrument == "device" else {"instrument": instrument}


def tune(
    request: Request,
    progress: Progress | None = None,
    journal_directory: Path | None = None,
    record_directory: Path | None = None,
    fresh: bool = False,
    measure: Measure = measure,
) -> Outcome:
    """Run a tuning job, or resume it from its journal.

    Parameters
    ----------
    request
        What to tune. The same request and journal give the same outcome without another measurement.
    progress
        Called as progress(step, done, expected).
    journal_directory, record_directory
        By default those of the user. Only measurements by "device" and "modelled" are stored by default.
    fresh
        Whether to measure again what the journal holds.
    measure
        Runs one candidate.

    Raises
    ------
    InputError
        For a request that is not sound.
    BackendUnavailable
        If there is no device for it.
    TuningFailed
        If neither the default nor any candidate ran and was right.
    """
    resolve(request.instrument)
    if request.instrument == "device":
        backends.get("neuron")
        if chip_target() not in (None, request.target):
            raise InputError(f"this machine's chips are {chip_target()}; {request.target} cannot be timed on them")
    choices = space(request.kernel, request.shape, request.precision, request.target)
    name, why = pick(request.search, len(choices), request.budget)
    run = _run_name(request, name)
    with journals.opened(run, journal_directory, fresh) as journal:
        measurements = _Measurements(
            request, journal, measure, progress, expected(name, len(choices), request.budget) + 1
        )
        measurements.step(kernels()[request.kernel].default(request.shape, request.precision), 1.0)
        if len(choices):
            _search(measurements, choices, name)
        best = _verified(measurements, choices)
    record = _record(request, best, measurements.steps, choices, name, run)
    measured = request.instrument in records.MEASUREMENTS
    path = records.store(record, record_directory) if measured or record_directory else None
    return Outcome(request, choices, name, why, tuple(measurements.steps), record, path)


def _run_name(request: Request, search: str) -> dict[str, Any]:
    """All that decides which candidates are measured and with what result; equal for runs that share a journal."""
    name = dataclasses.asdict(request) | {"search": search}
    return name | {"source": kernel_hash(kernels()[request.kernel]), "depends": identity(request.instrument)}


class _Measurements:
    """Measures candidates that the journal does not hold, and keeps the list of steps."""

    def __init__(
        self, request: Request, journal: journals.Journal, measure: Measure, progress: Progress | None, expected: int
    ) -> None:
        self.request, self.journal, self.measure, self.progress = request, journal, measure, progress
        self.expected = expected
        self.steps: list[Step] = []
        self.spent = 0.0
        self.gates_all = request.instrument not in GATED_LAST

    def step(self, constants: dict[str, int], fraction: float, gate: bool = False) -> Trial:
        r, gate = self.request, gate or self.gates_all
        for step in self.steps:
            if (step.constants, step.fraction, step.gate) == (constants, fraction, gate):
                return step.trial
        trial = self.journal.get(constants, fraction, gate)
        replayed = trial is not None
        if trial is None:
            job = Job(r.kernel, r.shape, r.precision, r.target, constants, r.instrument, gate)
            trial = self.measure(reduced(job, fraction), r.timeout)
            self.journal.add(constants, fraction, trial, gate)
        self.spent += trial.seconds
        self.steps.append(Step(constants, fraction, trial, replayed, gate))
        if self.progress is not None:
            self.progress(self.steps[-1], len(self.steps), max(self.expected, len(self.steps)))
        return trial

    def out_of_time(self) -> bool:
        return self.request.seconds is not None and self.spent >= self.request.seconds


def _search(measurements: _Measurements, choices: Space, name: str) -> None:
    """Measure the proposals of the search until it or the time ends."""
    search = SEARCHES[name](choices.points, measurements.request.seed, measurements.request.budget)
    try:
        proposal = next(search)
        while not measurements.out_of_time():
            trial = measurements.step(choices.constants[proposal.index], proposal.fraction)
            proposal = search.send(trial.time_ns)
    except StopIteration:
        pass


def _verified(measurements: _Measurements, choices: Space) -> Step:
    """The fastest step whose result is right. Raises TuningFailed if there is none."""
    while True:
        bad = [step.constants for step in measurements.steps if step.gate and step.trial.status != "ok"]
        whole = [
            s for s in measurements.steps if s.fraction == 1.0 and s.trial.status == "ok" and s.constants not in bad
        ]
        if not whole:
            first = next(step.trial for step in measurements.steps if step.trial.status != "ok")
            why = f"the first one {first.status}: {first.detail}"
            raise TuningFailed(f"{measurements.request.kernel}: no candidate ran and was right; {why}")
        # Among equals a point of the space wins over the default's own constants, which may be no point.
        best = min(whole, key=lambda s: (s.trial.time_ns, s.constants not in choices.constants, not s.gate))
        if best.gate:
            return best
        measurements.step(best.constants, 1.0, gate=True)


def _record(
    request: Request, best: Step, steps: list[Step], choices: Space, search: str, run: dict[str, Any]
) -> Record:
    point = choices.points[choices.constants.index(best.constants)] if best.constants in choices.constants else {}
    failed = {s: sum(step.trial.status == s for step in steps) for s in ("wrong", "crashed", "timeout")}
    return Record(
        kernel=request.kernel,
        source=run["source"],
        target=request.target,
        precision=request.precision,
        shape=dict(request.shape),
        measurement=request.instrument,
        instrument=run["depends"],
        point=point,
        constants=best.constants,
        time_ns=float(best.trial.time_ns or 0.0),
        default_ns=float(steps[0].trial.time_ns or 0.0),
        workload=kernels()[request.kernel].workload,
        search={"method": search, "seed": request.seed, "measured": len(steps), "feasible": len(choices)} | failed,
    )
