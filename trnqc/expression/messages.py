"""Error messages that point at a place in a text."""

from __future__ import annotations

from trnqc.errors import ExpressionError


def error_at(message: str, line: str, column: int, number: int | None = None) -> ExpressionError:
    """Return an error that shows a line of text with a caret under a column.

    Parameters
    ----------
    message : str
        What is wrong.
    line : str
        The line.
    column : int
        The column, counted from 0.
    number : int, optional
        The number of the line, counted from 1, if the text has several.
    """
    where = "" if number is None else f"line {number}: "
    return ExpressionError(f"{where}{message}\n  {line}\n  {' ' * column}^")
