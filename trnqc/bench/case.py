"""What is measured: a piece of work that trnqc and another program both do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

OURS = "trnqc"
"""The name of our side in every case."""

Work = Callable[[], Any]
"""The work that is timed. It returns the result: a number, an array or a tensor."""


@dataclass(frozen=True)
class Case:
    """A piece of work that two contestants do.

    Attributes
    ----------
    name
        The name on the command line.
    group
        The heading below which it is shown.
    what
        What is computed, for a reader.
    rival
        The other program.
    packages
        Distributions that the case needs beside those that trnqc requires. Without one of them it is left out.
    contestants
        For each contestant a function that prepares its input and returns the work. Only the work is timed.
    tolerance
        The largest difference of both results that is accepted, relative to the largest element of the rival's result.
    full
        Whether the case takes too long for a quick run.
    blas
        Whether the other program spends time in its BLAS.
    """

    name: str
    group: str
    what: str
    rival: str
    packages: tuple[str, ...]
    contestants: Mapping[str, Callable[[], Work]]
    tolerance: float
    full: bool = False
    blas: bool = True

    def missing(self) -> tuple[str, ...]:
        """The distributions that the case needs and that are not installed."""
        return tuple(name for name in self.packages if installed(name) is None)


def installed(distribution: str) -> str | None:
    """The version of an installed distribution; None if it is not installed."""
    try:
        return version(distribution)
    except PackageNotFoundError:
        return None
