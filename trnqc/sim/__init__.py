"""A strict stand-in for the vendor's ``nki`` where that is not installed: same names, same rules, on NumPy.

``simulate(kernel)(*arrays)`` runs a kernel with data; ``trace(kernel)(*args)`` checks and counts its instructions
without. A kernel is ordinary Python calling ``language`` and ``isa``; every instruction checks its operands against
the rules of the selected NeuronCore generation (``targets``), is counted by the current run (``machine``), and
computes on views (``tensor``) of storages (``memory``) in fp32 arithmetic with one rounding per store (``values``).
"""

from __future__ import annotations

from trnqc.sim.faults import NkiValidationError, RangeWarning
from trnqc.sim.launch.install import find_real_nki, install, uninstall
from trnqc.sim.launch.jit import Kernel, jit
from trnqc.sim.launch.launch import Spec
from trnqc.sim.launch.machine import Trace
from trnqc.sim.launch.simulate import last_trace, simulate, trace
from trnqc.sim.lint.lint import lint
from trnqc.sim.nki import isa, language, typing
from trnqc.sim.timeline.timeline import Timeline, timeline

__all__ = [
    "Kernel", "NkiValidationError", "RangeWarning", "Spec", "Timeline", "Trace", "find_real_nki", "install", "isa",
    "jit", "language", "last_trace", "lint", "simulate", "timeline", "trace", "typing", "uninstall",
]  # fmt: skip
