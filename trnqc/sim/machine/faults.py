"""The one error that a kernel's broken rule raises."""

from __future__ import annotations

from trnqc.errors import SimulationError


class NkiValidationError(SimulationError, AssertionError):
    """A hardware or interface rule is broken. The message says operand, rule, what was found and what is allowed."""


class RangeWarning(RuntimeWarning):
    """A ScalarE function met arguments outside its documented input range; those results are NaN here."""
