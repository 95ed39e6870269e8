"""The two ways to time a candidate. Each first compares a small launch of the same constants with the reference.

An instrument takes a Job and returns a Reading; `resolve` finds one by name, which may also be "module:function".
"""

from __future__ import annotations

import importlib
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from trnqc.errors import InputError
from trnqc.tuning.calls import GATE, Call, example_call, gate_call

WARM_UP = 2
REPEATS = 11
GATED_LAST = ("modelled",)  # where the gate costs far more than the timing, only what would be recorded passes it


@dataclass(frozen=True)
class Job:
    """One candidate: a kernel with its constants at a shape. gate: compare its result with the reference."""

    kernel: str
    shape: dict[str, int]
    precision: str
    target: str
    constants: dict[str, int]
    instrument: str
    gate: bool = True


@dataclass(frozen=True)
class Reading:
    """time_ns is None where the result was wrong; error: the deviation found by the gate, if it was asked for."""

    time_ns: float | None
    error: float | None
    detail: str = ""


def resolve(name: str) -> Callable[[Job], Reading]:
    """The instrument of that name; raises InputError."""
    if name in _INSTRUMENTS:
        return _INSTRUMENTS[name]
    module, colon, function = name.partition(":")
    if not colon:
        raise InputError(f"instruments are {', '.join(_INSTRUMENTS)} or module:function; {name!r} was asked for")
    return getattr(importlib.import_module(module), function)


def modelled(job: Job) -> Reading:
    """Timed without data on the simulator's timeline; for the gate simulated with data."""
    from trnqc import sim

    error = None
    if job.gate:
        gate = gate_call(job.kernel, job.shape, job.precision, job.constants)
        error = gate.error(sim.simulate(gate.kernel)(*gate.args, **gate.constants))
        if not error <= GATE:
            return _wrong(error)
    call = example_call(job.kernel, job.shape, job.precision, job.constants)
    line = sim.timeline(call.kernel, target=job.target)(*call.args, **call.constants)
    return Reading(float(line.total_ns), error, line.extrapolation)


def device(job: Job) -> Reading:
    """On the first Trainium device of this machine: the gate (always), warm-up, the median of synchronised launches."""
    from trnqc.backends.neuron.device import open_device
    from trnqc.neff_cache import program, watch

    here = open_device()
    what = (job.kernel, job.shape, job.precision)
    gate = gate_call(*what, job.constants, here.cores)
    with watch(program(*what, job.target, job.constants)):
        return clock(here, gate, lambda fill: example_call(*what, job.constants, here.cores, fill))


def clock(here: Any, gate: Call, workload: Callable[..., Call]) -> Reading:
    """Gate and median time of `workload(fill)` on an opened device (`trnqc.backends.neuron.device.NeuronDevice`)."""
    from trnqc.tuning.calls import random_fill

    error = gate.error(_launcher(here, gate)(fetch=True))
    if not error <= GATE:
        return _wrong(error)
    launch = _launcher(here, workload(random_fill(1)))
    for _ in range(WARM_UP):
        launch()
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter_ns()
        launch()
        times.append(time.perf_counter_ns() - start)
    spread = (max(times) - min(times)) / statistics.median(times)
    return Reading(float(statistics.median(times)), error, f"median of {REPEATS}, spread {100 * spread:.0f} %")


def _launcher(here: Any, call: Call) -> Callable[..., Any]:
    """launch(fetch) runs the call once over operands already on the device and waits for it."""
    from trnqc.backends.neuron.launch import launch, synchronize, to_numpy

    args = [here.put(arg) for arg in call.args]
    kind = args[0].device.type

    def run(fetch: bool = False) -> Any:
        out = launch(call.kernel, call.reference, *args, **call.constants)
        synchronize(kind)
        return to_numpy(out.cpu()) if fetch else None

    return run


def _wrong(error: float) -> Reading:
    return Reading(None, error, f"the result deviates from the reference by {error:.1e}, {GATE:.0e} is allowed")


_INSTRUMENTS: dict[str, Callable[[Job], Reading]] = {"modelled": modelled, "device": device}
