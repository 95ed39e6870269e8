"""The source of a function as the parser sees it: a syntax tree, its place, and what its free names refer to."""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from types import CodeType, FunctionType
from typing import Any, NoReturn

from trnqc.sim.machine.faults import NkiValidationError
from trnqc.sim.machine.rules import Place
from trnqc.sim.parser.forms import check_forms


@dataclass(frozen=True)
class Source:
    """One function of a kernel; ``names`` are the globals of its module and the variables that it captures."""

    tree: ast.FunctionDef
    file: str
    first: int
    names: Mapping[str, Any]

    def place(self, node: ast.AST) -> Place:
        """File, line and function of a node."""
        return self.file, self.first + getattr(node, "lineno", 1) - 1, self.tree.name


@dataclass
class Frame:
    """A function while it is interpreted: its variables, and the frame around the body of a device loop."""

    source: Source
    names: dict[str, Any] = field(default_factory=dict[str, Any])
    outer: Frame | None = None

    def refuse(self, node: ast.AST, message: str) -> NoReturn:
        """Raise the error of a rule that a node breaks."""
        raise refusal(self.source.place(node), message)


def refusal(place: Place, message: str) -> NkiValidationError:
    """The error that says what NKI 0.6 does not accept, and where."""
    file, line, function = place
    return NkiValidationError(f"{file}:{line}: {function}: {message} (the language of NKI 0.6, docs/nki.md)")


def source_of(function: FunctionType) -> Source:
    """The source of a function that was defined by ``def``, after a check of its form. Raises NkiValidationError if
    there is no source, or it has a construct that the language lacks.
    """
    tree, file, first = _tree(function.__code__)
    captured = zip(function.__code__.co_freevars, function.__closure__ or (), strict=True)
    names = dict(function.__globals__)
    for name, cell in captured:
        try:
            names[name] = cell.cell_contents
        except ValueError:  # a variable that has no value yet
            continue
    return Source(tree, file, first, names)


@lru_cache(maxsize=1024)
def _tree(code: CodeType) -> tuple[ast.FunctionDef, str, int]:
    place = code.co_filename, code.co_firstlineno, code.co_name
    try:
        lines, first = inspect.getsourcelines(code)
        tree = ast.parse(textwrap.dedent("".join(lines))).body[0]
    except (OSError, SyntaxError):
        raise refusal(
            place, "the parser reads source, and there is none; define the function by def in a file"
        ) from None
    if not isinstance(tree, ast.FunctionDef):
        raise refusal(place, "lambda is not in the language; define a function")
    for node, message in check_forms(tree):
        raise refusal((code.co_filename, first + getattr(node, "lineno", 1) - 1, code.co_name), message)
    return tree, code.co_filename, first
