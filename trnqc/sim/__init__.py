"""A strict stand-in for the vendor's ``nki`` where that is not installed: same names, same rules, on NumPy.

    kernel -> its source, interpreted (TRNQC_NKI=0.6) or run as Python -> functions of ``language`` and ``isa``
    kernel -> launch (target, cores) -> instructions, checked and counted -> arrays (`simulate`) or counts (`trace`)
    kernel -> recorded instructions -> costs -> schedule on the engines -> modelled time (`timeline`)
    kernel -> its source -> findings (`lint`)

A kernel is ordinary Python that calls ``language`` and ``isa``. Each instruction checks its operands against the rules
of the selected NeuronCore generation, is counted by the run in progress, and computes in fp32 on views of HBM, SBUF and
PSUM, with one rounding per store.
"""

from __future__ import annotations

from trnqc.sim.launch.install import find_real_nki, install, uninstall
from trnqc.sim.launch.jit import Kernel, jit, last_trace, simulate, trace
from trnqc.sim.launch.launch import Spec
from trnqc.sim.lint.lint import lint
from trnqc.sim.machine.faults import NkiValidationError, RangeWarning
from trnqc.sim.machine.machine import Trace
from trnqc.sim.machine.rules import Finding, RuleWarning, forget, reported
from trnqc.sim.nki import isa, language, typing
from trnqc.sim.timeline.timeline import Timeline, timeline

__all__ = [
    "Finding",
    "Kernel",
    "NkiValidationError",
    "RangeWarning",
    "RuleWarning",
    "Spec",
    "Timeline",
    "Trace",
    "find_real_nki",
    "forget",
    "install",
    "isa",
    "jit",
    "language",
    "last_trace",
    "lint",
    "reported",
    "simulate",
    "timeline",
    "trace",
    "typing",
    "uninstall",
]
