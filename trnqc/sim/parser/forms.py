"""The form of statements and expressions: which nodes of a syntax tree the language has, and what they may contain.

These rules hold for a whole function, also where it is never run, because the vendor's parser reads all of it.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterator

Message = str | None

NODES: tuple[type[ast.AST], ...] = (
    *(ast.FunctionDef, ast.Return, ast.Assign, ast.AugAssign, ast.AnnAssign, ast.For, ast.While, ast.If, ast.With),
    *(ast.Assert, ast.Expr, ast.Pass, ast.Break, ast.Continue),
    *(
        ast.BoolOp,
        ast.BinOp,
        ast.UnaryOp,
        ast.IfExp,
        ast.Dict,
        ast.Compare,
        ast.Call,
        ast.FormattedValue,
        ast.JoinedStr,
    ),
    *(ast.Constant, ast.Attribute, ast.Subscript, ast.Name, ast.List, ast.Tuple, ast.Slice),
    *(ast.arguments, ast.arg, ast.keyword, ast.withitem, ast.expr_context, ast.boolop, ast.operator, ast.unaryop),
    *(ast.cmpop,),
)
"""The nodes that the language has; no other is interpreted."""

DECORATORS = ("jit", "staticmethod")
INTEGER_LIMITS = (-(2**63), 2**63 - 1)


def check_forms(tree: ast.FunctionDef) -> Iterator[tuple[ast.AST, str]]:
    """Yield the nodes of a function that the parser refuses whatever their values are, and why."""
    for node in _read(tree):
        if not isinstance(node, NODES):
            yield node, CONSTRUCTS.get(type(node), f"{type(node).__name__} is not in the language")
        elif (rule := _FORMS.get(type(node))) and (message := rule(node)):
            yield node, message
    for inner in tree.body:
        for node in ast.walk(inner):
            if isinstance(node, ast.FunctionDef) and any(
                isinstance(n, ast.FunctionDef) for s in node.body for n in ast.walk(s)
            ):
                yield node, f"inner function {node.name} is not only the body of a device loop beside it"


def _read(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield all nodes but annotations, which have no meaning in a kernel."""
    todo = [tree]
    while todo:
        node = todo.pop(0)
        yield node
        for name, value in ast.iter_fields(node):
            if name not in ("annotation", "returns", "decorator_list", "type_params"):
                values = value if isinstance(value, list) else [value]
                todo += [v for v in values if isinstance(v, ast.AST)]


def dotted(node: ast.expr) -> str:
    """The last part of a name, or of the name of a called function, or ""."""
    node = node.func if isinstance(node, ast.Call) else node
    return node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")


def _function(node: ast.FunctionDef) -> Message:
    for decorator in node.decorator_list:
        if dotted(decorator) not in DECORATORS:
            return f"decorator {ast.unparse(decorator)} is not in the language"
    if node.args.vararg:
        return f"*{node.args.vararg.arg} in a signature is not in the language; pass a tuple"
    return None


def _for(node: ast.For) -> Message:
    if node.orelse:
        return "else of a loop is not in the language"
    if not isinstance(node.target, ast.Name):
        target = ast.unparse(node.target)
        return f"a loop has one simple variable, not {target}; assign its parts in the body"
    return None


def _while(node: ast.While) -> Message:
    return "else of a loop is not in the language" if node.orelse else None


def _with(node: ast.With) -> Message:
    item = node.items[0]
    call = item.context_expr
    plain = isinstance(call, ast.Call) and dotted(call) == "no_reorder" and not call.args and not call.keywords
    if len(node.items) > 1 or item.optional_vars or not plain:
        return f"with {', '.join(map(ast.unparse, node.items))} is not in the language; only with no_reorder()"
    return None


def _assign(node: ast.Assign) -> Message:
    several = len(node.targets) > 1 or not isinstance(node.targets[0], ast.Name | ast.Attribute | ast.Subscript)
    if several and any(isinstance(part, ast.Attribute | ast.Subscript) for t in node.targets for part in parts(t)):
        return f"`{ast.unparse(node)}`: elements and attributes are assigned to one by one"
    return None


def parts(target: ast.expr) -> Iterator[ast.expr]:
    """Yield the names, elements and attributes that an assignment sets."""
    if isinstance(target, ast.Tuple | ast.List):
        for element in target.elts:
            yield from parts(element)
    else:
        yield target


def _operator(node: ast.BinOp | ast.AugAssign) -> Message:
    return "@ is not in the language; multiply with nisa.nc_matmul" if isinstance(node.op, ast.MatMult) else None


def _formatted(node: ast.FormattedValue) -> Message:
    return "format specifications of f-strings are not in the language" if node.format_spec is not None else None


def _compare(node: ast.Compare) -> Message:
    if len(node.ops) > 1 and any(isinstance(op, ast.In | ast.NotIn) for op in node.ops):
        return "`in` inside a chain of comparisons is not in the language; compare one by one"
    return None


def _dict(node: ast.Dict) -> Message:
    for key in node.keys:
        if key is None:
            return "** in a dictionary is not in the language"
        if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
            return f"keys of dictionaries are strings, not {ast.unparse(key)}"
    return None


def _call(node: ast.Call) -> Message:
    return "** in a call is not in the language" if any(k.arg is None for k in node.keywords) else None


def _constant(node: ast.Constant) -> Message:
    if isinstance(node.value, bytes | complex):
        return f"{node.value!r} is not in the language; constants are None, booleans, integers, floats and strings"
    if type(node.value) is int and not INTEGER_LIMITS[0] <= node.value <= INTEGER_LIMITS[1]:
        return f"{node.value} is no 64-bit integer"
    return None


_FORMS: dict[type[ast.AST], Callable[..., Message]] = {
    ast.FunctionDef: _function,
    ast.For: _for,
    ast.While: _while,
    ast.With: _with,
    ast.Assign: _assign,
    ast.BinOp: _operator,
    ast.AugAssign: _operator,
    ast.FormattedValue: _formatted,
    ast.Compare: _compare,
    ast.Dict: _dict,
    ast.Call: _call,
    ast.Constant: _constant,
}


CONSTRUCTS: dict[type[ast.AST], str] = {
    ast.Try: "try is not in the language",
    ast.TryStar: "try is not in the language",
    ast.Lambda: "lambda is not in the language; define a function",
    ast.Yield: "generators are not in the language",
    ast.YieldFrom: "generators are not in the language",
    ast.GeneratorExp: "generators are not in the language; write a loop",
    ast.ListComp: "comprehensions are not in the language; write a loop and append",
    ast.DictComp: "comprehensions are not in the language; write a loop",
    ast.SetComp: "sets are not in the language",
    ast.Set: "sets are not in the language",
    ast.ClassDef: "classes stand outside of kernels",
    ast.AsyncFunctionDef: "async is not in the language",
    ast.AsyncWith: "async is not in the language",
    ast.AsyncFor: "async is not in the language",
    ast.Await: "async is not in the language",
    ast.Global: "kernels must be pure in their arguments: no global",
    ast.Nonlocal: "nonlocal is not in the language; carry state through SBUF or HBM",
    ast.Import: "imports stand outside of kernels",
    ast.ImportFrom: "imports stand outside of kernels",
    ast.Starred: "star-unpacking is not in the language",
    ast.Match: "match is not in the language",
    ast.NamedExpr: ":= is not in the language",
    ast.Raise: "raise is not in the language; use assert",
    ast.Delete: "del is not in the language",
}
"""Nodes that are refused wherever they stand, and what to say about them."""
