"""A tuning run: measure the default and the proposals of a search, each once, and record the best candidate."""

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
Progress = Callable[["Measurement", int, int], None]


class TuningFailed(TrnqcError):
    """Neither the default nor any candidate ran with a correct result. The message contains the first reason."""


@dataclass(frozen=True)
class Request:
    """A request to tune a kernel.

    Attributes
    ----------
    kernel, shape, precision, target
        The name of the kernel, its extents, the precision, and the generation of the chip.
    instrument : str
        The instrument, see `instruments.resolve`.
    search : str
        The search, see `search.pick`.
    budget : int
        The largest number of measurements of the whole workload.
    seconds : float, optional
        The time limit of all measurements in seconds.
    timeout : float
        The time limit of one candidate in seconds.
    seed : int
        The seed of the search.
    """

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
class Measurement:
    """One measured candidate. `gate` tells whether its result was compared with the reference."""

    constants: dict[str, int]
    fraction: float
    trial: Trial
    replayed: bool
    gate: bool


@dataclass(frozen=True)
class Outcome:
    """All measurements, the default first, the record of the best one, and its file, or None if it is not stored."""

    request: Request
    space: Space
    search: str
    why: str
    measurements: tuple[Measurement, ...]
    record: Record
    path: Path | None


def identity(instrument: str) -> dict[str, str]:
    """The versions and flags, or the model, on which a measurement by this instrument depends."""
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
    """Tune a kernel, or continue a tuning run from its journal.

    Parameters
    ----------
    request
        The request. The same request with the same journal gives the same outcome without new measurements.
    progress
        Called as progress(measurement, done, expected).
    journal_directory, record_directory
        The directories of the journal and the record; by default, those of the user. Without `record_directory`, only
        the times of the instruments "device" and "modelled" are stored.
    fresh
        Whether to repeat the measurements in the journal.
    measure
        Measures one candidate.

    Returns
    -------
    Outcome
        All measurements and the record.

    Raises
    ------
    InputError
        If the request is not valid.
    BackendUnavailable
        If the instrument needs a device and there is none.
    TuningFailed
        If neither the default nor any candidate ran with a correct result.
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
        session = _Session(request, journal, measure, progress, expected(name, len(choices), request.budget) + 1)
        session.trial(kernels()[request.kernel].default(request.shape, request.precision), 1.0)
        if len(choices):
            _search(session, choices, name)
        best = _verified(session, choices)
    record = _record(request, best, session.measurements, choices, name, run)
    measured = request.instrument in records.MEASUREMENTS
    path = records.store(record, record_directory) if measured or record_directory else None
    return Outcome(request, choices, name, why, tuple(session.measurements), record, path)


def _run_name(request: Request, search: str) -> dict[str, Any]:
    """Everything that determines which candidates are measured, and with which result. It identifies the journal."""
    name = dataclasses.asdict(request) | {"search": search}
    return name | {"source": kernel_hash(kernels()[request.kernel]), "depends": identity(request.instrument)}


class _Session:
    """Measures candidates that are not in the journal, and collects all measurements."""

    def __init__(
        self, request: Request, journal: journals.Journal, measure: Measure, progress: Progress | None, expected: int
    ) -> None:
        self.request, self.journal, self.measure, self.progress = request, journal, measure, progress
        self.expected = expected
        self.measurements: list[Measurement] = []
        self.spent = 0.0
        self.gates_all = request.instrument not in GATED_LAST

    def trial(self, constants: dict[str, int], fraction: float, gate: bool = False) -> Trial:
        r, gate = self.request, gate or self.gates_all
        for m in self.measurements:
            if (m.constants, m.fraction, m.gate) == (constants, fraction, gate):
                return m.trial
        trial = self.journal.get(constants, fraction, gate)
        replayed = trial is not None
        if trial is None:
            job = Job(r.kernel, r.shape, r.precision, r.target, constants, r.instrument, gate)
            trial = self.measure(reduced(job, fraction), r.timeout)
            self.journal.add(constants, fraction, trial, gate)
        self.spent += trial.seconds
        self.measurements.append(Measurement(constants, fraction, trial, replayed, gate))
        if self.progress is not None:
            self.progress(self.measurements[-1], len(self.measurements), max(self.expected, len(self.measurements)))
        return trial

    def out_of_time(self) -> bool:
        return self.request.seconds is not None and self.spent >= self.request.seconds


def _search(session: _Session, choices: Space, name: str) -> None:
    """Measure the proposals of the search until it ends or the time is over."""
    search = SEARCHES[name](choices.points, session.request.seed, session.request.budget)
    try:
        proposal = next(search)
        while not session.out_of_time():
            trial = session.trial(choices.constants[proposal.index], proposal.fraction)
            proposal = search.send(trial.time_ns)
    except StopIteration:
        pass


def _verified(session: _Session, choices: Space) -> Measurement:
    """The fastest measurement with a correct result. Raises TuningFailed if there is none."""
    while True:
        bad = [m.constants for m in session.measurements if m.gate and m.trial.status != "ok"]
        whole = [
            m for m in session.measurements if m.fraction == 1.0 and m.trial.status == "ok" and m.constants not in bad
        ]
        if not whole:
            first = next(m.trial for m in session.measurements if m.trial.status != "ok")
            why = f"the first one {first.status}: {first.detail}"
            raise TuningFailed(f"{session.request.kernel}: no candidate ran with a correct result; {why}")
        # Among equally fast ones, prefer points of the space to the constants of the default, which may not be a point.
        best = min(whole, key=lambda m: (m.trial.time_ns, m.constants not in choices.constants, not m.gate))
        if best.gate:
            return best
        session.trial(best.constants, 1.0, gate=True)


def _record(
    request: Request,
    best: Measurement,
    measurements: list[Measurement],
    choices: Space,
    search: str,
    run: dict[str, Any],
) -> Record:
    point = choices.points[choices.constants.index(best.constants)] if best.constants in choices.constants else {}
    failed = {s: sum(m.trial.status == s for m in measurements) for s in ("wrong", "crashed", "timeout")}
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
        default_ns=float(measurements[0].trial.time_ns or 0.0),
        workload=kernels()[request.kernel].workload,
        search={"method": search, "seed": request.seed, "measured": len(measurements), "feasible": len(choices)}
        | failed,
    )
