"""A kernel as NKI 0.6 runs it: its syntax tree, interpreted by the rules of the vendor's parser.

    source -> form of every node -> statements and expressions, by type of node -> functions of ``nl`` and ``nisa``

The instructions of a kernel come from the same functions of the simulator as those of a kernel that runs as Python, so
that both ways give the same program, if the kernel means the same in both versions.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from types import FunctionType
from typing import Any

from trnqc.sim.machine.faults import NkiValidationError
from trnqc.sim.parser.operators import Unsupported
from trnqc.sim.parser.source import refusal
from trnqc.sim.parser.statements import Statements
from trnqc.sim.parser.values import constant


def interpreted(kernel: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that interprets a kernel with its arguments; it raises NkiValidationError if the kernel or a
    function that the kernel calls is outside of the language.
    """

    def run(*args: Any, **kwargs: Any) -> Any:
        function = inspect.unwrap(kernel)
        if not isinstance(function, FunctionType):
            raise NkiValidationError(f"a kernel is a function defined by def, got {kernel!r}")
        code = function.__code__
        try:
            arguments = tuple(constant(value, f"argument {n}") for n, value in enumerate(args))
            named = {name: constant(value, name) for name, value in kwargs.items()}
            return Statements().inline(function, arguments, named)
        except Unsupported as error:
            raise refusal((code.co_filename, code.co_firstlineno, code.co_name), str(error)) from None

    return run
