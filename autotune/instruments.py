"""The two ways to time a candidate: on the simulator's timeline, and on a device.

An instrument takes a Job and returns a Reading. Before it times a candidate, it compares the result of a small launch
with the same constants with the reference of the kernel (the gate). `resolve` returns an instrument by name, or by
"module:function".
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
from trnqc.backends.nki.launch import launch
from trnqc.errors import InputError

WARM_UP = 2
"""The number of launches before the first timed one."""
REPEATS = 11
"""The number of timed launches, of which the median is taken."""
GATED_LAST = ("modelled",)
"""Instruments whose gate takes much longer than timing. Only candidates that would be recorded have to pass it."""


@dataclass(frozen=True)
class Job:
    """One candidate: a kernel with constants at a shape. `gate` tells whether its result is compared first."""

    kernel: str
    shape: dict[str, int]
    precision: str
    target: str
    constants: dict[str, int]
    instrument: str
    gate: bool = True


@dataclass(frozen=True)
class Reading:
    """The time in nanoseconds, or None for a wrong result, and the deviation from the reference if there was a gate."""

    time_ns: float | None
    error: float | None
    detail: str = ""


def resolve(name: str) -> Callable[[Job], Reading]:
    """The instrument with this name. Raises InputError if there is none."""
    if name in _INSTRUMENTS:
        return _INSTRUMENTS[name]
    module, colon, function = name.partition(":")
    if not colon:
        raise InputError(f"an instrument is one of {', '.join(_INSTRUMENTS)}, or module:function; found {name!r}")
    return getattr(importlib.import_module(module), function)


def modelled(job: Job) -> Reading:
    """The time on the timeline of the simulator, without data. The gate simulates a launch with data."""
    from trnqc import sim

    error, kernel = None, kernels()[job.kernel]
    if job.gate:
        gate = kernel.gate(job.shape, job.precision, job.constants, 1, random_fill(0))
        error = kernel.error(gate, launch(kernel, *gate.args, **gate.constants))
        if not error <= GATE:
            return _wrong(error)
    example = kernel.example(job.shape, job.precision, job.constants, 1, sim.Spec)
    line = sim.timeline(kernel.function, target=job.target)(*example.args, **example.constants)
    return Reading(float(line.total_ns), error, line.extrapolation)


def device(job: Job) -> Reading:
    """The median time of synchronised launches on the first Trainium device of this machine, after the gate."""
    from trnqc.backends.neuron.device import open_device

    return clock(open_device(), kernels()[job.kernel], job)


def clock(device: Any, kernel: NkiKernel, job: Job) -> Reading:
    """Run the gate and time the workload on a `trnqc.backends.neuron.device.NeuronDevice`."""
    gate = kernel.gate(job.shape, job.precision, job.constants, device.cores, random_fill(0))
    error = kernel.error(gate, _launcher(device, kernel, gate)(fetch=True))
    if not error <= GATE:
        return _wrong(error)
    workload = kernel.example(job.shape, job.precision, job.constants, device.cores, random_fill(1))
    run = _launcher(device, kernel, workload)
    for _ in range(WARM_UP):
        run()
    times = []
    for _ in range(REPEATS):
        start = time.perf_counter_ns()
        run()
        times.append(time.perf_counter_ns() - start)
    spread = (max(times) - min(times)) / statistics.median(times)
    return Reading(float(statistics.median(times)), error, f"median of {REPEATS}, spread {100 * spread:.0f} %")


def _launcher(device: Any, kernel: NkiKernel, operands: Launch) -> Callable[..., Any]:
    """A function run(fetch) that launches the kernel once on operands in the memory of the device and waits for it."""
    from trnqc.backends.nki.vendor import fetched, synchronize

    args = [device.put(arg) for arg in operands.args]
    kind = args[0].device.type

    def run(fetch: bool = False) -> Any:
        out = launch(kernel, *args, **operands.constants)
        synchronize(kind)
        return fetched(out) if fetch else None

    return run


def _wrong(error: float) -> Reading:
    return Reading(None, error, f"the result deviates from the reference by {error:.1e}; {GATE:.0e} is allowed")


_INSTRUMENTS: dict[str, Callable[[Job], Reading]] = {"modelled": modelled, "device": device}
