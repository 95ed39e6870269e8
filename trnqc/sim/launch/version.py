"""The version of NKI whose front end the simulator stands for.

``TRNQC_NKI`` is 0.6 (the default) or 0.7. The front end of 0.6 parses the source of a kernel and accepts a subset of
Python. That of 0.7 runs the kernel as Python to specialise it, and no longer has ``nl.dynamic_range``.
"""

from __future__ import annotations

import os

from trnqc.sim.faults import NkiValidationError

VARIABLE = "TRNQC_NKI"
# Versions that the simulator stands for; the first is the default.
VERSIONS = ("0.6", "0.7")


def version_from_environment() -> str:
    """Return the version named by ``TRNQC_NKI``, or 0.6 if it is unset or empty.

    Raises
    ------
    NkiValidationError
        If it is neither of `VERSIONS`.
    """
    return checked_version(os.environ.get(VARIABLE, "") or VERSIONS[0], VARIABLE)


def checked_version(version: str, what: str) -> str:
    """Return a version if it is one of `VERSIONS`; ``what`` names its source in the error message."""
    if version not in VERSIONS:
        raise NkiValidationError(f"{what} must be one of {', '.join(VERSIONS)}, got {version!r}")
    return version
