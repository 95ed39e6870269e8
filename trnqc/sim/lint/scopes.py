"""What the parser front end of NKI 0.3 to 0.6 refuses in a function as a whole: how its names are used."""

from __future__ import annotations

import ast
from collections.abc import Iterator

from trnqc.sim.lint.parser import Meaning, last_name, refused
from trnqc.sim.lint.versions import Violation, own_objects

METHODS = frozenset(
    (
        "append",
        "clear",
        "copy",
        "count",
        "extend",
        "index",
        "pop",
        "remove",
        "reverse",
        "get",
        "items",
        "keys",
        "values",
        "setdefault",
    )
)
"""The methods of lists and dictionaries that the language has; it has none of strings."""

BODIES = ("fori_loop", "while_loop")
"""The device loops whose body is a function."""

_OTHER_METHODS = (
    frozenset(name for kind in (list, dict, str) for name in dir(kind) if not name.startswith("_")) - METHODS
)


def misuses(tree: ast.FunctionDef, meaning: Meaning) -> Iterator[Violation]:
    """Yield the ranges, methods and inner functions of one function that the parser refuses."""
    yield from _ranges(tree, meaning)
    yield from _methods(tree, meaning)
    yield from _inner_functions(tree)


def _ranges(tree: ast.FunctionDef, meaning: Meaning) -> Iterator[Violation]:
    """Report ranges outside of loop heads, for which the language has no value."""
    of_loops = {id(node.iter) for node in ast.walk(tree) if isinstance(node, ast.For)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and id(node) not in of_loops and meaning(node.func) is range:
            yield refused(node, f"`{ast.unparse(node)}`: a range stands only in the head of a for loop")


def _methods(tree: ast.FunctionDef, meaning: Meaning) -> Iterator[Violation]:
    """Report methods of lists, dictionaries and strings that the language lacks; own classes may have such names."""
    own = own_objects(tree, meaning)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in _OTHER_METHODS:
            receiver = node.func.value
            is_own = isinstance(receiver, ast.Name) and receiver.id in own
            if not is_own and meaning(receiver) is None:
                yield refused(node, f"method {node.func.attr} of {ast.unparse(receiver)} is not in the language")


def _inner_functions(tree: ast.FunctionDef) -> Iterator[Violation]:
    """Report inner functions that are anything else than the body of a device loop of the function around them."""
    bodies = {id(value) for call in ast.walk(tree) if isinstance(call, ast.Call) for value in _bodies(call)}
    for inner in (n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef) and n is not tree):
        uses = [
            node
            for node in ast.walk(tree)
            if isinstance(node, ast.Name) and node.id == inner.name and isinstance(node.ctx, ast.Load)
        ]
        nested = any(node is not inner and inner in ast.walk(node) for node in _functions_inside(tree))
        if nested or not uses or any(id(use) not in bodies for use in uses):
            yield refused(inner, f"inner function {inner.name} is not only the body of a device loop beside it")
        if inner.decorator_list:
            yield refused(inner, "helpers are plain functions, without decorators")


def _functions_inside(tree: ast.FunctionDef) -> Iterator[ast.FunctionDef]:
    yield from (node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef) and node is not tree)


def _bodies(call: ast.Call) -> Iterator[ast.expr]:
    """Yield the argument of a device loop that is its body."""
    name = last_name(call)
    if name in BODIES:
        at = 2 if name == "fori_loop" else 1
        yield from call.args[at : at + 1]
        yield from (keyword.value for keyword in call.keywords if keyword.arg == "body_fun")
