"""Error messages that point at a place in a text."""

from __future__ import annotations

from trnqc.errors import ExpressionError


def error_at(message: str, line: str, column: int, number: int | None = None) -> ExpressionError:
    """Return an error that shows the line with a caret under the column; number: of the line, from 1."""
    where = "" if number is None else f"line {number}: "
    return ExpressionError(f"{where}{message}\n  {line}\n  {' ' * column}^")
