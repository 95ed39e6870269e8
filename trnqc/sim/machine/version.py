"""The version of NKI whose front end the simulator stands for.

``TRNQC_NKI`` is 0.6 or 0.7. The front end of 0.6 parses the source of a kernel and accepts a subset of Python; with
``TRNQC_NKI=0.6`` the simulator does the same (`trnqc.sim.parser`). If the variable is unset, the rules are those of
0.6, but kernels run as Python, which is faster. The front end of 0.7 runs the kernel as Python to specialise it. It no
longer has ``nl.dynamic_range``, passes indices of device loops as `NkiScalar`, and does not launch a kernel on another
number of cores than the compiler uses. Source: the migration guide from NKI 0.6.0 to 0.7.0 and the release notes of NKI
0.7.0 in the documentation of Neuron 2.33.
"""

from __future__ import annotations

import os

from trnqc.sim.machine.faults import NkiValidationError

VARIABLE = "TRNQC_NKI"
# Versions that the simulator stands for; the first is the default.
VERSIONS = ("0.6", "0.7")
# Names that only one version has, by module of ``nki``, with that version.
ONLY_IN = {
    ("language", "dynamic_range"): "0.6",
    ("isa", "NkiScalar"): "0.7",
    ("isa", "scalar_load"): "0.7",
    ("isa", "scalar_store"): "0.7",
}


def version_from_environment() -> str:
    """Return the version named by ``TRNQC_NKI``, or 0.6 if it is unset or empty; raises NkiValidationError if it is not
    in `VERSIONS`.
    """
    return checked_version(os.environ.get(VARIABLE, "") or VERSIONS[0], VARIABLE)


def parses() -> bool:
    """Return whether kernels are interpreted as the parser of NKI 0.6 does, which ``TRNQC_NKI=0.6`` asks for."""
    return os.environ.get(VARIABLE) == "0.6"


def checked_version(version: str, what: str) -> str:
    """Return a version if it is one of `VERSIONS`; ``what`` names its source in the error message."""
    if version not in VERSIONS:
        raise NkiValidationError(f"{what} must be one of {', '.join(VERSIONS)}, got {version!r}")
    return version


def needs_version(name: str, version: str, instead: str) -> None:
    """Check that the simulator stands for ``version``, which has ``name``; ``instead`` is what the other one has."""
    if version_from_environment() != version:
        raise NkiValidationError(f"{name} does not exist in NKI {version_from_environment()}; use {instead}")
