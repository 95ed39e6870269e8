"""Rules that a lenient run reports instead of raising an error, so that kernels of other projects can be migrated.

    TRNQC_SIM_RULES=strict|warn

With ``strict``, the default, a kernel that breaks a rule stops with an error. With ``warn``, it goes on where the
simulator can still say what the vendor's simulator computes, and the finding is kept. The device may compute something
else, or the compiler may reject the kernel. Rules after which there is no such result are errors in both modes.
"""

from __future__ import annotations

import os
import sys
import warnings
from dataclasses import dataclass
from pathlib import Path

from trnqc.sim.machine.faults import NkiValidationError
from trnqc.sim.machine.machine import running
from trnqc.sim.machine.version import VERSIONS

VARIABLE = "TRNQC_SIM_RULES"
# Values of the variable; the first is the default.
MODES = ("strict", "warn")
Place = tuple[str, int, str]
_SIMULATOR = str(Path(__file__).resolve().parents[1])
_findings: dict[Finding, None] = {}


class RuleWarning(UserWarning):
    """A lenient run met a construct that NKI rejects or leaves undefined."""


def lenient() -> bool:
    """Return whether ``TRNQC_SIM_RULES`` is ``warn``; raises NkiValidationError for a value that is not in `MODES`."""
    mode = os.environ.get(VARIABLE, "") or MODES[0]
    if mode not in MODES:
        raise NkiValidationError(f"{VARIABLE} must be one of {', '.join(MODES)}, got {mode!r}")
    return mode == "warn"


def kernel_place() -> Place:
    """Return file, line and function of the interpreted call, or of the innermost frame outside of the simulator."""
    run = running()
    if run is not None and run.place is not None:
        return run.place
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_SIMULATOR):
        frame = frame.f_back
    return frame.f_code.co_filename, frame.f_lineno, frame.f_code.co_name


def broken(
    message: str,
    effect: str,
    versions: tuple[str, ...] = VERSIONS,
    error: type[Exception] = NkiValidationError,
    place: Place | None = None,
) -> None:
    """Raise ``error`` in a strict run; in a lenient one keep a finding with the place in the kernel, and warn once.

    `message` says what the rule demands and what the kernel does; `effect` and `versions` are as in `Finding`; and
    `place` is a result of `kernel_place`, by default the place of the caller.
    """
    if not lenient():
        raise error(message)
    finding = Finding(*(place or kernel_place()), message, versions, effect)
    if finding not in _findings:
        _findings[finding] = None
        warnings.warn(str(finding), RuleWarning, stacklevel=2)


def reported() -> tuple[Finding, ...]:
    """Return the distinct findings of all lenient runs of this process since `forget`, sorted by place."""
    return tuple(sorted(_findings))


def forget() -> None:
    """Forget the findings of earlier runs."""
    _findings.clear()


@dataclass(frozen=True, order=True)
class Finding:
    """A construct of a kernel that NKI rejects, changes or leaves undefined, with its place in the source.

    Attributes
    ----------
    versions
        The versions of NKI that it concerns.
    effect
        "rejected" if these versions do not compile it, "undefined" if the result on the device is not defined,
        "differs" if its meaning changed with them, and "deprecated" if they compile it, but a later one will not.
    """

    file: str
    line: int
    function: str
    message: str
    versions: tuple[str, ...] = VERSIONS
    effect: str = "rejected"

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.function}: {self.message}"
