"""The words of the text of a program, line by line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trnqc.errors import ExpressionError

TOKEN = re.compile(
    r"\s*(?:(?P<number>\d+\.?\d*(?:[eE][-+]?\d+)?)|(?P<name>[^\W\d]\w*'*)|(?P<sign>\+=|-=|[-+*/=()\[\],:|]))"
)


@dataclass(frozen=True)
class Token:
    """A word of the text ("number", "name", "sign" or "end") and its position, counted from 0."""

    kind: str
    text: str
    line: int
    column: int


def logical_lines(lines: Sequence[str]) -> Iterator[list[Token]]:
    """Yield the tokens of each line together with the lines that continue it, and a token of kind "end".

    Raises ExpressionError if a character cannot begin a word.
    """
    group: list[Token] = []
    for number, line in enumerate(lines):
        tokens = _scan(line.partition("#")[0].rstrip(), number)
        if tokens and group and tokens[0].text not in ("+", "-", "*", "/"):
            yield [*group, _end(group[-1])]
            group = []
        group += tokens
    if group:
        yield [*group, _end(group[-1])]


def _end(last: Token) -> Token:
    return Token("end", "the end", last.line, last.column + len(last.text))


def _scan(line: str, number: int) -> list[Token]:
    """Return the tokens of one line, which has the number `number` counted from 0."""
    tokens, column = [], 0
    while column < len(line):
        match = TOKEN.match(line, column)
        if match is None:
            start = len(line) - len(line[column:].lstrip())
            raise error_at(f"unexpected character {line[start]!r}", line, start, number + 1)
        kind = str(match.lastgroup)
        tokens.append(Token(kind, match.group(kind), number, match.start(kind)))
        column = match.end()
    return tokens


def error_at(message: str, line: str, column: int, number: int | None = None) -> ExpressionError:
    """Return an error that shows line `number` (from 1) of a text, with a caret under a column (from 0)."""
    where = "" if number is None else f"line {number}: "
    return ExpressionError(f"{where}{message}\n  {line}\n  {' ' * column}^")
