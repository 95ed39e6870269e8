"""Statements: one method for each kind of node. A method returns how the statement ends."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from types import GeneratorType
from typing import Any

from trnqc.sim.functions.loops import no_reorder, while_loop
from trnqc.sim.machine import machine
from trnqc.sim.memory.registers import VirtualRegister
from trnqc.sim.memory.tensor import NkiTensor
from trnqc.sim.parser import operators
from trnqc.sim.parser.calls import LoopBody, at
from trnqc.sim.parser.expressions import Expressions
from trnqc.sim.parser.forms import dotted
from trnqc.sim.parser.methods import string_key
from trnqc.sim.parser.operators import Unsupported, named
from trnqc.sim.parser.source import Frame


@dataclass(frozen=True)
class End:
    """How a statement ends that does not go on to the next: ``break``, ``continue`` or ``return``."""

    word: str
    value: Any = None


_BREAK, _CONTINUE = End("break"), End("continue")


class Statements(Expressions):
    """The part of the interpreter that runs statements."""

    def body(self, statements: list[ast.stmt], frame: Frame) -> Any:
        """The value that a function returns."""
        end = self.block(statements, frame)
        return None if end is None else end.value

    def block(self, statements: list[ast.stmt], frame: Frame) -> End | None:
        """Run statements in order, until one ends the block."""
        for node in statements:
            try:
                end = _STATEMENTS[type(node)](self, node, frame)
            except Unsupported as error:
                frame.refuse(node, f"`{ast.unparse(node).splitlines()[0]}`: {error}")
            if end is not None:
                return end
        return None

    def _function(self, node: ast.FunctionDef, frame: Frame) -> None:
        used = [n for s in frame.source.tree.body for n in ast.walk(s) if isinstance(n, ast.Name) and n.id == node.name]
        if not used:
            frame.refuse(node, f"inner function {node.name} is not only the body of a device loop beside it")
        frame.names[node.name] = LoopBody(node, frame)

    def _return(self, node: ast.Return, frame: Frame) -> End:
        return End("return", None if node.value is None else self.value(node.value, frame))

    def _assign(self, node: ast.Assign, frame: Frame) -> None:
        value = self.value(node.value, frame)
        for target in node.targets:
            self._set(target, value, frame)

    def _aug_assign(self, node: ast.AugAssign, frame: Frame) -> None:
        """``a += b`` is ``a = a + b``: a list that another name holds as well stays as it was."""
        right = self.value(node.value, frame)
        self._set(node.target, self.operator(node.op, self.value(node.target, frame), right), frame)

    def _ann_assign(self, node: ast.AnnAssign, frame: Frame) -> None:
        if node.value is not None:
            self._set(node.target, self.value(node.value, frame), frame)

    def _set(self, target: ast.expr, value: Any, frame: Frame) -> None:
        if isinstance(target, ast.Name):
            frame.names[target.id] = value
        elif isinstance(target, ast.Tuple | ast.List):
            self._unpack(target.elts, value, frame)
        elif isinstance(target, ast.Attribute):
            self._set_attribute(self.value(target.value, frame), target.attr, value)
        elif isinstance(target, ast.Subscript):
            base, key = self.value(target.value, frame), self.value(target.slice, frame)
            with at(target, frame):
                self._set_element(base, key, value)

    def _unpack(self, targets: list[ast.expr], value: Any, frame: Frame) -> None:
        if not isinstance(value, list | tuple) or len(value) != len(targets):
            count = len(value) if isinstance(value, list | tuple) else named(value)
            raise Unsupported(f"{len(targets)} values are expected, and there are {count}")
        for target, one in zip(targets, value, strict=True):
            self._set(target, one, frame)

    def _set_attribute(self, base: Any, name: str, value: Any) -> None:
        if not hasattr(base, "__dict__") or isinstance(base, NkiTensor | type) or callable(base):
            raise Unsupported(f"attributes of {named(base)} cannot be assigned to")
        object.__setattr__(base, name, value)

    def _set_element(self, base: Any, key: Any, value: Any) -> None:
        if isinstance(base, NkiTensor):
            base[key] = value
        elif type(base) is dict:
            base[string_key(key)] = value
        elif type(base) is list and type(key) is int:
            self._check_bounds(base, key)
            base[key] = value
        elif setter := getattr(type(base), "__setitem__", None) if type(base) is not list else None:
            self.inline(setter, (base, key, value), {})
        else:
            raise Unsupported(f"elements of {named(base)} cannot be assigned to with {named(key)} as their number")

    def _for(self, node: ast.For, frame: Frame) -> End | None:
        assert isinstance(node.target, ast.Name)
        values = self._iterated(node.iter, frame)
        device = isinstance(values, GeneratorType)
        for value in values:
            frame.names[node.target.id] = value
            end = self.block(node.body, frame)
            if end is not None and device:
                raise Unsupported(f"{end.word} in a device loop is not in the language")
            if end is _BREAK:
                return None
            if end is not None and end is not _CONTINUE:
                return end
        return None

    def _iterated(self, node: ast.expr, frame: Frame) -> Iterable[Any]:
        """The iterable of a loop; only here may a range stand."""
        if isinstance(node, ast.Call) and self.value(node.func, frame) is range:
            numbers = [self.value(argument, frame) for argument in node.args]
            if node.keywords or any(type(n) is not int for n in numbers) or not 1 <= len(numbers) <= 3:
                raise Unsupported(f"`{ast.unparse(node)}`: a range takes one to three integers")
            return range(*numbers)
        values = self.value(node, frame)
        if not isinstance(values, list | tuple | range | GeneratorType):
            raise Unsupported(f"loops run over ranges, lists and tuples, not over {ast.unparse(node)}")
        return values

    def _while(self, node: ast.While, frame: Frame) -> End | None:
        test = self.value(node.test, frame)
        if isinstance(test, VirtualRegister):
            self._device_while(node, test, frame)
            return None
        while operators.truth(test):
            end = self.block(node.body, frame)
            if end is _BREAK:
                return None
            if end is not None and end is not _CONTINUE:
                return end
            test = self.value(node.test, frame)
        return None

    def _device_while(self, node: ast.While, test: VirtualRegister, frame: Frame) -> None:
        def once(_: VirtualRegister) -> VirtualRegister:
            end = self.block(node.body, frame)
            if end is not None:
                frame.refuse(node, f"{end.word} in a device loop is not in the language")
            after = self.value(node.test, frame)
            assert isinstance(after, VirtualRegister)
            return after

        machine.current().place = frame.source.place(node)
        while_loop(test, once)

    def _if(self, node: ast.If, frame: Frame) -> End | None:
        test = self.value(node.test, frame)
        if isinstance(test, VirtualRegister):
            raise Unsupported(
                "the simulator has no branches on registers; use nl.while_loop, or a loop of 0 or 1 passes"
            )
        return self.block(node.body if operators.truth(test) else node.orelse, frame)

    def _with(self, node: ast.With, frame: Frame) -> End | None:
        call = node.items[0].context_expr
        assert isinstance(call, ast.Call) and dotted(call) == "no_reorder"
        if self.value(call.func, frame) is not no_reorder:
            raise Unsupported("only with no_reorder() is in the language")
        with no_reorder():
            return self.block(node.body, frame)

    def _assert(self, node: ast.Assert, frame: Frame) -> None:
        if operators.truth(self.value(node.test, frame)):
            return
        message = None if node.msg is None else self.value(node.msg, frame)
        if message is not None and not isinstance(message, str):
            raise Unsupported(f"the message of an assertion is a string, not {named(message)}")
        file, line, function = frame.source.place(node)
        raise AssertionError(message or f"{file}:{line}: {function}: `{ast.unparse(node.test)}` does not hold")

    def _expression(self, node: ast.Expr, frame: Frame) -> None:
        self.value(node.value, frame)

    def _pass(self, node: ast.Pass, frame: Frame) -> None:
        return None

    def _break(self, node: ast.Break, frame: Frame) -> End:
        return _BREAK

    def _continue(self, node: ast.Continue, frame: Frame) -> End:
        return _CONTINUE


_STATEMENTS: dict[type[ast.stmt], Callable[[Any, Any, Frame], End | None]] = {
    ast.FunctionDef: Statements._function,
    ast.Return: Statements._return,
    ast.Assign: Statements._assign,
    ast.AugAssign: Statements._aug_assign,
    ast.AnnAssign: Statements._ann_assign,
    ast.For: Statements._for,
    ast.While: Statements._while,
    ast.If: Statements._if,
    ast.With: Statements._with,
    ast.Assert: Statements._assert,
    ast.Expr: Statements._expression,
    ast.Pass: Statements._pass,
    ast.Break: Statements._break,
    ast.Continue: Statements._continue,
}
