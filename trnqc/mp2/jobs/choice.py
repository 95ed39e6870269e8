"""Which backend a job takes, and in which precision."""

from __future__ import annotations

from dataclasses import dataclass

from trnqc import backends
from trnqc.backends.base import Backend
from trnqc.errors import InputError
from trnqc.types import PRECISIONS


@dataclass(frozen=True)
class Choice:
    """A backend, the precision it will use and a note that says why it was taken."""

    backend: Backend
    precision: str
    note: str


def choose(backend: str = "auto", precision: str | None = "fp64") -> Choice:
    """The backend for a request; precision None is the best of whichever is taken: fp64 if it has that, else fp32.

    ``auto`` is a usable Trainium device that has the precision, else the CPU.
    """
    if precision is not None and precision not in PRECISIONS:
        raise InputError(f"precision must be one of {', '.join(PRECISIONS)}, got {precision!r}")
    if precision is None:
        chosen = backends.select(backend, "fp32").backend
        precision = "fp64" if "fp64" in chosen.precisions else "fp32"
    selection = backends.select(backend, precision)
    return Choice(selection.backend, precision, selection.note)
