"""Calls: functions of kernels are interpreted in place, those of the simulator are called as they are."""

from __future__ import annotations

import ast
import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FunctionType
from typing import Any, NoReturn

from trnqc.sim.functions.loops import fori_loop, while_loop
from trnqc.sim.machine import machine
from trnqc.sim.machine.faults import NkiValidationError
from trnqc.sim.memory.tensor import NkiTensor
from trnqc.sim.parser.builtins import BUILTINS, BY_OBJECT, KEYWORDS, MATHS_BY_OBJECT
from trnqc.sim.parser.classes import make
from trnqc.sim.parser.gather import named_functions
from trnqc.sim.parser.methods import Method
from trnqc.sim.parser.operators import Unsupported, named
from trnqc.sim.parser.source import Frame, Source, refusal, source_of
from trnqc.sim.parser.values import Bound, constant, of_simulator

_DEVICE_LOOPS = (fori_loop, while_loop)


@dataclass(frozen=True)
class LoopBody:
    """An inner function, which may only be the body of a device loop."""

    tree: ast.FunctionDef
    frame: Frame


@contextmanager
def at(node: ast.AST, frame: Frame) -> Iterator[None]:
    """Errors and findings of the simulator say where in the kernel they arose."""
    run, place = machine.current(), frame.source.place(node)
    before, run.place = run.place, place
    try:
        yield
    except TypeError as error:
        raise refusal(place, str(error)) from error
    except NkiValidationError as error:
        if not getattr(error, "__notes__", None) and f"{place[0]}:" not in str(error):
            error.add_note(f"in {place[2]}, {place[0]}:{place[1]}")
        raise
    finally:
        run.place = before


class Calls:
    """The part of the interpreter that calls functions."""

    def __init__(self) -> None:
        # The objects from outside by identity, and what the kernel has of them; the sources of functions.
        self.constants: dict[int, tuple[Any, Any]] = {}
        self.sources: dict[FunctionType, Source] = {}
        self.tensors: set[str] = set()

    def value(self, node: ast.expr, frame: Frame) -> Any:
        """The value of an expression."""
        raise AssertionError("Expressions defines it")

    def body(self, statements: list[ast.stmt], frame: Frame) -> Any:
        """The value that a function returns."""
        raise AssertionError("Statements defines it")

    def call(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], node: ast.Call, frame: Frame) -> Any:
        """The value of a call, by the kind of the called object."""
        bodies = [value for value in (function, *args, *kwargs.values()) if isinstance(value, LoopBody)]
        if bodies and not any(function is loop for loop in _DEVICE_LOOPS):
            _refuse_use(bodies[0])
        if id(function) in BY_OBJECT or id(function) in MATHS_BY_OBJECT or isinstance(function, Method):
            return _of_table(function, args, kwargs)
        if isinstance(function, Bound):
            return self.inline(function.function, (function.receiver, *args), kwargs)
        # A kernel is the function that it wraps.
        if of_simulator(function) and inspect.unwrap(function) is function:
            return self._simulated(function, args, kwargs, node, frame)
        if isinstance(function, type):
            return make(function, args, kwargs, self.inline)
        target = inspect.unwrap(function) if callable(function) else function
        if isinstance(target, FunctionType):
            return self.inline(target, args, kwargs)
        return self._object(function, args, kwargs)

    def inline(self, function: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Interpret a function with these arguments."""
        self.gather(function)
        source = self.sources[function]
        return self.body(source.tree.body, Frame(source, self._bind(function, args, kwargs)))

    def gather(self, function: FunctionType) -> None:
        """Read a function and all functions and classes that it names, so that constructs outside of the language are
        errors before anything runs.
        """
        todo = [function]
        while todo:
            one = todo.pop()
            if one not in self.sources:
                self.sources[one] = source_of(one)
                todo += named_functions(self.sources[one])

    def _bind(self, function: FunctionType, args: tuple[Any, ...], kwargs: dict[str, Any]) -> dict[str, Any]:
        """The arguments by name. A function may take ``**kwargs`` as long as none arrive."""
        parameters = inspect.signature(function).parameters
        named_ones = [p for p in parameters.values() if p.kind is not p.VAR_KEYWORD]
        empty = [p.name for p in parameters.values() if p.kind is p.VAR_KEYWORD]
        names = [p.name for p in named_ones]
        unknown = [name for name in kwargs if name not in names]
        if unknown or len(args) > len(names):
            what = f"an argument {unknown[0]}" if unknown else f"{len(args)} arguments"
            raise Unsupported(f"{function.__name__} does not take {what}; it takes {', '.join(names) or 'none'}")
        bound = dict(zip(names, args, strict=False))
        if twice := [name for name in kwargs if name in bound]:
            raise Unsupported(f"{function.__name__} gets two values of {twice[0]}")
        bound |= kwargs
        for parameter in named_ones:
            if parameter.name not in bound:
                if parameter.default is parameter.empty:
                    raise Unsupported(f"{function.__name__} gets no value of {parameter.name}")
                bound[parameter.name] = constant(parameter.default, parameter.name)
        return bound | {name: dict[str, Any]() for name in empty}

    def _simulated(
        self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any], node: ast.Call, frame: Frame
    ) -> Any:
        """Call a function of the simulator; its errors say where in the kernel they arose."""
        self._check_view(function, kwargs)
        with at(node, frame):
            result = function(*map(self._callable, args), **{k: self._callable(v) for k, v in kwargs.items()})
        if machine.current().counting and isinstance(result, NkiTensor):
            self._register(kwargs.get("name"))
        return result

    def _register(self, name: Any) -> None:
        """Refuse a second tensor with the name that a kernel gives."""
        if not isinstance(name, str) or not name:
            return
        if name in self.tensors:
            raise Unsupported(f"there is a tensor {name} already; names of tensors are unique in a program")
        self.tensors.add(name)

    @staticmethod
    def _check_view(function: Any, kwargs: dict[str, Any]) -> None:
        """Refuse a runtime offset into a view that is a part of its memory."""
        tensor = getattr(function, "__self__", None)
        if getattr(function, "__name__", "") != "ap" or not isinstance(tensor, NkiTensor):
            return
        if kwargs.get("scalar_offset") is not None and tensor.size * tensor.dtype.itemsize != tensor.storage.nbytes:
            raise Unsupported("ap with scalar_offset takes a whole tensor, and none that is indexed already")

    def _callable(self, value: Any) -> Any:
        """Turn a function of a kernel into one that Python can call; return every other value unchanged."""
        if isinstance(value, LoopBody):
            return self._loop_body(value)
        if isinstance(value, FunctionType) and not of_simulator(value):
            return lambda *args: self.inline(value, args, {})
        return value

    def _loop_body(self, loop: LoopBody) -> Callable[..., Any]:
        names = [a.arg for a in (*loop.tree.args.posonlyargs, *loop.tree.args.args)]

        def run(*args: Any) -> Any:
            if len(args) != len(names):
                loop.frame.refuse(loop.tree, f"the body of a device loop takes {len(args)} argument, not {len(names)}")
            bound = dict(zip(names, args, strict=True))
            return self.body(loop.tree.body, Frame(loop.frame.source, bound, loop.frame))

        return run

    def subscripted(self, base: Any, key: Any) -> Any:
        """An element of an object that has ``__getitem__`` in its source."""
        getter = getattr(type(base), "__getitem__", None)
        if isinstance(getter, FunctionType) and not of_simulator(base):
            return self.inline(getter, (base, key), {})
        if of_simulator(base) and getter is not None:
            return base[key]
        raise Unsupported(f"{named(base)} has no elements in the language")

    def _object(self, function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        method = inspect.getattr_static(type(function), "__call__", None)
        if not isinstance(method, FunctionType):
            raise Unsupported(f"{named(function)} cannot be called in the language")
        return self.inline(method, (function, *args), kwargs)


def _refuse_use(inner: LoopBody) -> NoReturn:
    name = inner.tree.name
    inner.frame.refuse(inner.tree, f"inner function {name} is not only the body of a device loop beside it")


def _of_table(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call a function of Python, of ``math``, or a method of a list or dictionary."""
    name = getattr(function, "name", getattr(function, "__name__", ""))
    allowed = KEYWORDS.get(name, ())
    if any(keyword not in allowed for keyword in kwargs):
        rule = "min takes one sequence or two numbers" if name == "min" else "max takes one sequence or two numbers"
        raise Unsupported(rule if name in ("min", "max") else f"{name} takes no argument {', '.join(kwargs)}")
    call = BUILTINS[name] if id(function) in BY_OBJECT else MATHS_BY_OBJECT.get(id(function), function)
    try:
        return call(*args, **kwargs)
    except (TypeError, ValueError, IndexError, OverflowError) as error:
        raise Unsupported(f"{name}: {error}") from None
