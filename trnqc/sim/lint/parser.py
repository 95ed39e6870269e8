"""What the parser front end of NKI 0.3 to 0.6 refuses: constructs, calls and targets outside its subset of Python.

The front end gathers the kernel and every function and class that it names, simplifies the statements, and interprets
the rest. Its public source is the project KLR (`interop/klr/gather.c`, `KLR/NKI/Simplify.lean`, `KLR/Trace`). A rule
that needs only the type of a node is a row of `parser.constructs`, and one that needs a single node a function in
`RULES`. `trnqc.sim.lint.scopes` has those that need a whole function.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator
from types import ModuleType
from typing import Any

from trnqc.sim.lint.versions import Violation
from trnqc.sim.parser.forms import CONSTRUCTS

Meaning = Callable[[ast.expr], Any]
"""Returns the object that an expression refers to outside of the function, or None."""

BUILTINS = frozenset(
    (
        "range",
        "len",
        "min",
        "max",
        "abs",
        "str",
        "bool",
        "int",
        "float",
        "divmod",
        "print",
        "isinstance",
        "type",
        "tuple",
        "list",
        "dict",
        "slice",
    )
)
"""The functions of Python that the language has."""

MATHS = frozenset(
    (
        "ceil",
        "floor",
        "gcd",
        "log2",
        "log10",
        "pow",
        "sqrt",
    )
)
"""The functions of the module ``math`` that the language has."""

_SEQUENCES = ("range", "list", "tuple")


def refusals(tree: ast.FunctionDef, meaning: Meaning) -> Iterator[Violation]:
    """Yield the constructs of one function that the parser front end refuses."""
    for node in ast.walk(tree):
        if message := CONSTRUCTS.get(type(node)):
            yield refused(node, message)
        for rule in RULES:
            yield from rule(node, meaning)


def class_refusals(tree: ast.ClassDef) -> Iterator[Violation]:
    """Yield the constructs that the parser front end refuses in the head of a class that a kernel names."""
    for base in tree.bases:
        if last_name(base) not in ("NKIObject", "Enum", "NamedTuple"):
            yield refused(tree, f"class {tree.name} derives from {ast.unparse(base)}; only NKIObject, Enum, NamedTuple")
    for decorator in tree.decorator_list:
        if last_name(decorator) != "dataclass":
            yield refused(tree, f"decorator {ast.unparse(decorator)} of a class is not in the language")


def last_name(node: ast.expr) -> str:
    """The last part of a dotted name, or of the name of a called function, or ""."""
    node = node.func if isinstance(node, ast.Call) else node
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def refused(node: ast.AST, message: str) -> Violation:
    """The violation of a rule that only the parser has."""
    return Violation(node, message, ("0.6",))


def _loops(node: ast.AST, meaning: Meaning) -> Iterator[Violation]:
    if isinstance(node, ast.For | ast.While) and node.orelse:
        yield refused(node, "else of a loop is not in the language")
    if not isinstance(node, ast.For):
        return
    if not isinstance(node.target, ast.Name):
        target = ast.unparse(node.target)
        yield refused(node, f"a loop has one simple variable, not {target}; assign its parts in the body")
    if isinstance(node.iter, ast.Call):
        target, name = meaning(node.iter.func), last_name(node.iter)
        if getattr(target, "__module__", "") == "builtins" and name not in _SEQUENCES:
            yield refused(node, f"loops run over ranges, lists and tuples, not over {ast.unparse(node.iter)}")


def _contexts(node: ast.AST, meaning: Meaning) -> Iterator[Violation]:
    if not isinstance(node, ast.With):
        return
    shown = ", ".join(map(ast.unparse, node.items))
    if len(node.items) > 1 or node.items[0].optional_vars or not shown.endswith("no_reorder()"):
        yield refused(node, f"with {shown} is not in the language; only with no_reorder()")


def _signatures(node: ast.AST, meaning: Meaning) -> Iterator[Violation]:
    if not isinstance(node, ast.FunctionDef):
        return
    for decorator in node.decorator_list:
        if last_name(decorator) not in ("jit", "staticmethod"):
            yield refused(node, f"decorator {ast.unparse(decorator)} is not in the language")
    if node.args.vararg:
        yield refused(node, f"*{node.args.vararg.arg} in a signature is not in the language; pass a tuple")


def _assignments(node: ast.AST, meaning: Meaning) -> Iterator[Violation]:
    if not isinstance(node, ast.Assign):
        return
    several = len(node.targets) > 1 or isinstance(node.targets[0], ast.Tuple | ast.List)
    parts = [part for target in node.targets for part in _parts(target)]
    if several and any(isinstance(part, ast.Attribute | ast.Subscript) for part in parts):
        yield refused(node, f"`{ast.unparse(node)}`: elements and attributes are assigned to one by one")


def _parts(target: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, ast.Tuple | ast.List):
        for element in target.elts:
            yield from _parts(element)
    else:
        yield target


def _expressions(node: ast.AST, meaning: Meaning) -> Iterator[Violation]:
    if isinstance(node, ast.FormattedValue) and node.format_spec is not None:
        yield refused(node, "format specifications of f-strings are not in the language")
    elif isinstance(node, ast.BinOp | ast.AugAssign) and isinstance(node.op, ast.MatMult):
        yield refused(node, "@ is not in the language; multiply with nisa.nc_matmul")
    elif isinstance(node, ast.Constant) and type(node.value) is int and node.value >= 2**63:
        yield refused(node, f"{node.value} is no 64-bit integer")
    elif isinstance(node, ast.Attribute) and getattr(meaning(node), "__module__", "") == "numpy":
        yield from _of_numpy(node, meaning(node))


def _of_numpy(node: ast.Attribute, named: Any) -> Iterator[Violation]:
    if isinstance(named, type):
        yield refused(node, f"{ast.unparse(node)} is of numpy, which the language lacks; use nl.{named.__name__}")


def _comparisons(node: ast.AST, meaning: Meaning) -> Iterator[Violation]:
    if isinstance(node, ast.Compare):
        none = isinstance(node.comparators[0], ast.Constant) and node.comparators[0].value is None
        if any(isinstance(op, ast.Is | ast.IsNot) for op in node.ops) and not (none and len(node.ops) == 1):
            message = "`is` means == in NKI 0.6 and identity in 0.7; use == or !="
            yield Violation(node, message, ("0.6",), "differs")
        if len(node.ops) > 1 and any(isinstance(op, ast.In | ast.NotIn) for op in node.ops):
            yield refused(node, "`in` inside a chain of comparisons is not in the language")


def _dictionaries(node: ast.AST, meaning: Meaning) -> Iterator[Violation]:
    if isinstance(node, ast.Dict):
        for key in node.keys:
            other = isinstance(key, ast.Constant) and not isinstance(key.value, str)
            if key is None:
                yield refused(node, "** in a dictionary is not in the language")
            elif other or isinstance(key, ast.Tuple):
                yield refused(node, f"keys of dictionaries are strings, not {ast.unparse(key)}")


def _calls(node: ast.AST, meaning: Meaning) -> Iterator[Violation]:
    if not isinstance(node, ast.Call):
        return
    if any(keyword.arg is None for keyword in node.keywords):
        yield refused(node, "** in a call is not in the language")
    target, shown = meaning(node.func), ast.unparse(node.func)
    if isinstance(node.func, ast.Attribute) and _is_maths(meaning(node.func.value)) and node.func.attr not in MATHS:
        yield refused(node, f"{shown}: of math, the language has {', '.join(sorted(MATHS))}")
    if not isinstance(node.func, ast.Name) or getattr(target, "__module__", None) not in ("builtins", "math"):
        return
    if node.func.id not in (BUILTINS if target.__module__ == "builtins" else MATHS):
        yield refused(node, f"{shown} is not in the language")
    elif shown in ("min", "max") and (len(node.args) not in (1, 2) or node.keywords):
        yield refused(node, f"`{ast.unparse(node)}`: {shown} takes one sequence or two numbers")


def _is_maths(target: Any) -> bool:
    return isinstance(target, ModuleType) and target.__name__ == "math"


RULES = (_loops, _contexts, _signatures, _assignments, _expressions, _comparisons, _dictionaries, _calls)
