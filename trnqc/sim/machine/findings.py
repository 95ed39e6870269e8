"""What the lint and lenient runs report about a kernel."""

from __future__ import annotations

from dataclasses import dataclass

from trnqc.sim.machine.version import VERSIONS


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
