"""Rules about constructs that only one version of NKI has, that it will lose, or whose meaning it changes.

Sources: the migration guide from NKI 0.6.0 to 0.7.0, the announcement of 16 October 2026 about specialization, and the
pages "NKI Loops" and "NKI Scalar Values" of the documentation of Neuron 2.33.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import Any

from trnqc.sim.machine.version import ONLY_IN, VERSIONS

# What to use instead of a name that one version lacks or will lose.
_INSTEAD = {
    "dynamic_range": "nl.fori_loop",
    "NkiScalar": "nisa.VirtualRegister",
    "scalar_load": "nisa.register_load",
    "scalar_store": "nisa.register_store",
}
_ITERATORS = ("affine_range", "sequential_range", "static_range")


@dataclass(frozen=True)
class Violation:
    """A construct, the rule that it violates, the versions, and the effect (see `Finding`)."""

    node: ast.AST
    message: str
    versions: tuple[str, ...]
    effect: str = "rejected"


def violations(tree: ast.FunctionDef, meaning: Callable[[ast.expr], Any]) -> Iterator[Violation]:
    """Yield the violations in one function; ``meaning`` returns the object that an expression refers to, or None."""
    registers, objects = _registers(tree, meaning), own_objects(tree, meaning)
    for node in ast.walk(tree):
        if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Load):
            yield from _names(node, meaning(node))
        elif isinstance(node, ast.While) and isinstance(node.test, ast.Name) and node.test.id in registers:
            yield Violation(node, "while loops over a register are gone from NKI 0.7; use nl.while_loop", ("0.7",))
        elif isinstance(node, ast.Compare) and isinstance(node.ops[0], ast.Eq | ast.NotEq):
            yield from _comparison(node, objects)


def _names(node: ast.Name | ast.Attribute, target: Any) -> Iterator[Violation]:
    name = getattr(target, "__name__", "")
    if not (getattr(target, "__module__", "") or "").startswith("trnqc.sim"):
        return
    for (_, known), version in ONLY_IN.items():
        if name == known:
            others = tuple(v for v in VERSIONS if v != version)
            gone = "is gone from" if version < others[0] else "does not exist in"
            yield Violation(node, f"{ast.unparse(node)} {gone} NKI {others[0]}; use {_INSTEAD[name]}", others)
    if name in _ITERATORS or (isinstance(node, ast.Attribute) and node.attr in _ITERATORS):
        message = f"{ast.unparse(node)} is deprecated since NKI 0.7 and means range; use range"
        yield Violation(node, message, ("0.7",), "deprecated")


def _registers(tree: ast.FunctionDef, meaning: Callable[[ast.expr], Any]) -> set[str]:
    """Return the names that are assigned the result of ``nisa.register_alloc``."""
    return {n for n, call in _assigned_calls(tree) if getattr(meaning(call.func), "__name__", "") == "register_alloc"}


def own_objects(tree: ast.FunctionDef, meaning: Callable[[ast.expr], Any]) -> dict[str, str]:
    """Map the names that hold instances of classes outside NKI and Python to the names of the classes."""
    found = {}
    for name, call in _assigned_calls(tree):
        if own := _own_class(meaning(call.func)):
            found[name] = own
    for argument in (*tree.args.posonlyargs, *tree.args.args, *tree.args.kwonlyargs):
        if argument.annotation is not None and (own := _own_class(meaning(argument.annotation))):
            found[argument.arg] = own
    return found


def _assigned_calls(tree: ast.FunctionDef) -> Iterator[tuple[str, ast.Call]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            yield from ((t.id, node.value) for t in node.targets if isinstance(t, ast.Name))


def _own_class(target: Any) -> str:
    """Return the name of a class that neither Python nor NKI defines and that is no enumeration, else ""."""
    if not isinstance(target, type) or issubclass(target, Enum):
        return ""
    module = target.__module__
    return "" if module.split(".")[0] in ("builtins", "nki") or module.startswith("trnqc.sim") else target.__name__


def _comparison(node: ast.Compare, objects: dict[str, str]) -> Iterator[Violation]:
    sides = [side for side in (node.left, *node.comparators) if isinstance(side, ast.Name) and side.id in objects]
    none = any(isinstance(side, ast.Constant) and side.value is None for side in (node.left, *node.comparators))
    if sides and not none:
        message = (
            f"`{ast.unparse(node)}` compares instances of {objects[sides[0].id]}, which NKI 0.7 does as Python does "
            "and NKI 0.6 may do differently; compare their fields"
        )
        yield Violation(node, message, ("0.7",), "differs")
