"""What the parser gathers: the functions and classes that a function names, whether or not it comes to call them."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any

from trnqc.sim.parser.source import Source
from trnqc.sim.parser.values import of_numpy, of_simulator


def named_functions(source: Source) -> Iterator[FunctionType]:
    """Yield the functions with a source that another one names, methods of classes that it makes objects of included.

    Names of numpy are left out; they are errors where they are used.
    """
    local = _local(source.tree)
    for node in (n for statement in source.tree.body for n in ast.walk(statement)):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            target = _meaning(node, source, local)
            if isinstance(target, FunctionType) and not of_simulator(target) and not of_numpy(target):
                yield target
        elif isinstance(node, ast.Call):
            target = _meaning(node.func, source, local)
            if isinstance(target, type) and target.__module__ != "builtins" and not of_simulator(target):
                yield from _methods(target)


def _local(tree: ast.FunctionDef) -> set[str]:
    names = {n.id for n in ast.walk(tree) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    names |= {n.arg for n in ast.walk(tree) if isinstance(n, ast.arg)}
    return names | {n.name for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n is not tree}


def _meaning(node: ast.expr, source: Source, local: set[str]) -> Any:
    """The function, class or module that a dotted name stands for, or None."""
    if isinstance(node, ast.Name):
        found = None if node.id in local else source.names.get(node.id)
    elif isinstance(node, ast.Attribute) and isinstance(base := _meaning(node.value, source, local), ModuleType | type):
        found = getattr(base, node.attr, None)
    else:
        return None
    inner = getattr(found, "__wrapped__", None)
    return inner if isinstance(inner, FunctionType) else found


def _methods(cls: type) -> Iterator[FunctionType]:
    """Yield the methods that the source of a class contains, without the methods that Python has made for the class."""
    for value in vars(cls).values():
        method = value.fget if isinstance(value, property) else getattr(value, "__func__", value)
        method = getattr(method, "__wrapped__", method)
        if isinstance(method, FunctionType) and not method.__code__.co_filename.startswith("<"):
            yield method
