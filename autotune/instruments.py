"""The two ways to time a candidate: on the simulator's timeline, and on a device.

An instrument takes a Job and returns a Reading. Before it times anything it compares a small launch with the same
constants with the kernel's reference (the gate). `resolve` returns an instrument by name, or by "module:function".
"""

from __future__ import annotations

import importlib
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from nki_kernels.descriptors import NkiKernel, kernels
from nki_kernels.descriptors.descriptor import GATE, Launch, random_fill
from trnqc.errors import InputError

WARM_UP = 2
"""Launches before the first that is timed."""
REPEATS = 11
"""Launches that are timed; the median counts."""
GATED_LAST = ("modelled",)
"""Instruments whose gate costs far more than their timing: only a candidate that would be recorded has to pass it."""


@dataclass(frozen=True)
class Job:
    """One candidate: a kernel with its constants at a shape. gate tells whether to compare its result first."""

    kernel: str
    shape: dict[str, int]
    precision: str
    target: str
    constants: dict[str, int]
    instrument: str
    gate: bool = True


@dataclass(frozen=True)
class Reading:
    """Nanoseconds, None for a wrong result; and the deviation from the reference, if the gate was asked for."""

    time_ns: float | None
    error: float | None
    detail: str = ""


def resolve(name: str) -> Callable[[Job], Reading]:
    """The instrument of that name. Raises InputError."""
    if name in _INSTRUMENTS:
        return _INSTRUMENTS[name]
    module, colon, function = name.partition(":")
    if not colon:
        raise InputError(f"instruments are {', '.join(_INSTRUMENTS)} or module:function; {name!r} was asked for")
    return getattr(importlib.import_module(module), function)


def modelled(job: Job) -> Reading:
    """Time on the simulator's timeline, without data; the gate simulates a launch with data."""
    from trnqc import sim

    error, kernel = None, kernels()[job.kernel]
    if job.gate:
        gate = kernel.gate(job.shape, job.precision, job.constants, 1, random_fill(0))
        error = kernel.error(gate, sim.simulate(kernel.function)(*gate.args, **gate.constants))
        if not error <= GATE:
            return _wrong(error)
    example = kernel.example(job.shape, job.precision, job.constants, 1, sim.Spec)
    line = sim.timeline(kernel.function, target=job.target)(*example.args, **example.constants)
    return Reading(float(line.total_ns), error, line.extrapolation)


def device(job: Job) -> Reading:
    """Median time of synchronised launches on the first Trainium device of this machine, always after the gate."""
    from trnqc.backends.neuron.device import open_device
    from trnqc.backends.neuron.neff import program, watch

    with watch(program(job.kernel, job.shape, job.precision, job.target, job.constants)):
        return clock(open_device(), kernels()[job.kernel], job)


def clock(here: Any, kernel: NkiKernel, job: Job) -> Reading:
    """Pass the gate, then time the workload, on an opened `trnqc.backends.neuron.device.NeuronDevice`."""
    gate = kernel.gate(job.shape, job.precision, job.constants, here.cores, random_fill(0))
    error = kernel.error(gate, _launcher(here, kernel, gate)(fetch=True))
    if not error <= GATE:
        return _wrong(error)
    workload = kernel.example(job.shape, job.precision, job.constants, here.cores, random_fill(1))
    launch = _launcher(here, kernel, workload)
    for _ in range(WARM_UP):
        launch()
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter_ns()
        launch()
        times.append(time.perf_counter_ns() - start)
    spread = (max(times) - min(times)) / statistics.median(times)
    return Reading(float(statistics.median(times)), error, f"median of {REPEATS}, spread {100 * spread:.0f} %")


def _launcher(here: Any, kernel: NkiKernel, operands: Launch) -> Callable[..., Any]:
    """run(fetch) launches the kernel once over operands already on the device and waits for it."""
    from trnqc.backends.neuron.launch import launch, synchronize, to_numpy

    args = [here.put(arg) for arg in operands.args]
    kind = args[0].device.type

    def run(fetch: bool = False) -> Any:
        out = launch(kernel, *args, **operands.constants)
        synchronize(kind)
        return to_numpy(out.cpu()) if fetch else None

    return run


def _wrong(error: float) -> Reading:
    return Reading(None, error, f"the result deviates from the reference by {error:.1e}, {GATE:.0e} is allowed")


_INSTRUMENTS: dict[str, Callable[[Job], Reading]] = {"modelled": modelled, "device": device}
