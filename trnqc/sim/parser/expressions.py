"""Values of expressions: one method for each kind of node."""

from __future__ import annotations

import ast
import warnings
from collections.abc import Callable
from typing import Any

from trnqc.sim.machine.rules import RuleWarning
from trnqc.sim.memory.tensor import NkiTensor
from trnqc.sim.parser import operators
from trnqc.sim.parser.builtins import OBJECTS
from trnqc.sim.parser.calls import Calls, at
from trnqc.sim.parser.methods import METHODS, method, string_key
from trnqc.sim.parser.operators import Unsupported, named
from trnqc.sim.parser.source import Frame, Source
from trnqc.sim.parser.values import attribute, constant

_UNARY: dict[type[ast.unaryop], Callable[[Any], Any]] = {
    ast.Not: lambda value: not operators.truth(value),
    ast.USub: operators.negate,
    ast.UAdd: lambda value: value,
    ast.Invert: operators.invert,
}


class Expressions(Calls):
    """The part of the interpreter that evaluates expressions."""

    def value(self, node: ast.expr, frame: Frame) -> Any:
        """The value of an expression."""
        try:
            return _EXPRESSIONS[type(node)](self, node, frame)
        except Unsupported as error:
            frame.refuse(node, str(error) if str(error).startswith("`") else f"`{ast.unparse(node)}`: {error}")

    def _constant(self, node: ast.Constant, frame: Frame) -> Any:
        return node.value

    def _name(self, node: ast.Name, frame: Frame) -> Any:
        scope: Frame | None = frame
        while scope is not None:
            if node.id in scope.names:
                return scope.names[node.id]
            scope = scope.outer
        if node.id in frame.source.names:
            return self.outside(frame.source, node.id)
        if node.id in OBJECTS:
            return OBJECTS[node.id]
        raise Unsupported(f"{node.id} is not in the language, and the kernel does not define it")

    def _attribute(self, node: ast.Attribute, frame: Frame) -> Any:
        base = self.value(node.value, frame)
        if type(base) in METHODS:
            return method(base, node.attr, _shown(node.value))
        return attribute(base, node.attr, _shown(node))

    def _tuple(self, node: ast.Tuple, frame: Frame) -> Any:
        return tuple([self.value(element, frame) for element in node.elts])

    def _list(self, node: ast.List, frame: Frame) -> Any:
        return [self.value(element, frame) for element in node.elts]

    def _dict(self, node: ast.Dict, frame: Frame) -> Any:
        keys = [self.value(key, frame) for key in node.keys if key is not None]
        return {string_key(k): self.value(v, frame) for k, v in zip(keys, node.values, strict=True)}

    def _subscript(self, node: ast.Subscript, frame: Frame) -> Any:
        base, key = self.value(node.value, frame), self.value(node.slice, frame)
        if isinstance(base, list | tuple):
            if type(key) is not slice and type(key) is not int:
                raise Unsupported(f"an element of a list or tuple has an integer as its number, not {named(key)}")
            self._check_bounds(base, key)
            return base[key]
        if type(base) is dict:
            if string_key(key) not in base:
                raise Unsupported(f"the dictionary has no key {key!r}")
            return base[key]
        if isinstance(base, NkiTensor):
            self._check_nested(key)
            with at(node, frame):
                return base[key]
        return self.subscripted(base, key)

    @staticmethod
    def _check_bounds(base: Any, key: Any) -> None:
        if type(key) is int and not -len(base) <= key < len(base):
            raise Unsupported(f"element {key} of {len(base)}")

    @staticmethod
    def _check_nested(key: Any) -> None:
        if any(isinstance(part, list | tuple) for part in (key if isinstance(key, tuple) else (key,))):
            raise Unsupported("indices of a tensor are integers and slices, and no lists")

    def _slice(self, node: ast.Slice, frame: Frame) -> Any:
        return slice(
            *(None if part is None else self.value(part, frame) for part in (node.lower, node.upper, node.step))
        )

    def _bool_op(self, node: ast.BoolOp, frame: Frame) -> Any:
        stop = isinstance(node.op, ast.Or)
        for part in node.values[:-1]:
            value = self.value(part, frame)
            if operators.truth(value) is stop:
                return value
        return self.value(node.values[-1], frame)

    def _bin_op(self, node: ast.BinOp, frame: Frame) -> Any:
        left, right = self.value(node.left, frame), self.value(node.right, frame)
        return self.operator(node.op, left, right)

    def operator(self, op: ast.operator, left: Any, right: Any) -> Any:
        """The value of a binary operator, with the arithmetic errors of numbers."""
        try:
            return operators.apply(op, left, right)
        except (ZeroDivisionError, OverflowError, ValueError) as error:
            raise Unsupported(str(error)) from None

    def _unary_op(self, node: ast.UnaryOp, frame: Frame) -> Any:
        return _UNARY[type(node.op)](self.value(node.operand, frame))

    def _compare(self, node: ast.Compare, frame: Frame) -> Any:
        """All parts of a chain are evaluated, where Python stops at the first that fails."""
        values = [self.value(part, frame) for part in (node.left, *node.comparators)]
        for op, right in zip(node.ops, node.comparators, strict=True):
            none = isinstance(right, ast.Constant) and right.value is None
            if isinstance(op, ast.Is | ast.IsNot) and not none:
                text = f"`{ast.unparse(node)}`: is and is not mean == and != in NKI 0.6"
                warnings.warn(text, RuleWarning, stacklevel=2)
        results = [operators.compare(op, a, b) for op, a, b in zip(node.ops, values, values[1:], strict=False)]
        return False not in results

    def _if_exp(self, node: ast.IfExp, frame: Frame) -> Any:
        return self.value(node.body if operators.truth(self.value(node.test, frame)) else node.orelse, frame)

    def _joined(self, node: ast.JoinedStr, frame: Frame) -> Any:
        return "".join(str(self.value(part, frame)) for part in node.values)

    def _formatted(self, node: ast.FormattedValue, frame: Frame) -> Any:
        value = self.value(node.value, frame)
        return repr(value) if node.conversion == ord("r") else str(value)

    def _call(self, node: ast.Call, frame: Frame) -> Any:
        function = self.value(node.func, frame)
        args = tuple([self.value(argument, frame) for argument in node.args])
        kwargs = {str(k.arg): self.value(k.value, frame) for k in node.keywords}
        return self.call(function, args, kwargs, node, frame)

    def outside(self, source: Source, name: str) -> Any:
        """A constant of the module or of a captured variable, the same object whenever the kernel names it."""
        original = source.names[name]
        if id(original) not in self.constants:
            self.constants[id(original)] = original, constant(original, name)
        return self.constants[id(original)][1]


def _shown(node: Any) -> str:
    """The source of a node; it is kept, because writing it takes longer than most expressions."""
    if not hasattr(node, "shown"):
        node.shown = ast.unparse(node)
    return str(node.shown)


_EXPRESSIONS: dict[type[ast.expr], Callable[[Any, Any, Frame], Any]] = {
    ast.Constant: Expressions._constant,
    ast.Name: Expressions._name,
    ast.Attribute: Expressions._attribute,
    ast.Tuple: Expressions._tuple,
    ast.List: Expressions._list,
    ast.Dict: Expressions._dict,
    ast.Subscript: Expressions._subscript,
    ast.Slice: Expressions._slice,
    ast.BoolOp: Expressions._bool_op,
    ast.BinOp: Expressions._bin_op,
    ast.UnaryOp: Expressions._unary_op,
    ast.Compare: Expressions._compare,
    ast.IfExp: Expressions._if_exp,
    ast.JoinedStr: Expressions._joined,
    ast.FormattedValue: Expressions._formatted,
    ast.Call: Expressions._call,
}
