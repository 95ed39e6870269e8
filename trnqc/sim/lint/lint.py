"""Check that a kernel uses only the Python that the vendor's compiler front ends accept (NKI 0.6 and 0.7).

The front end of 0.6 accepts a subset of Python. That of 0.7 runs the kernel, so that any Python may specialise it, but
tensors, device loops and names of the interface keep their rules. `trnqc.sim.lint.versions` has the rules about
constructs that only one version has or that it treats differently.

``lint(kernel)`` reads the source of the kernel and of every plain function that it calls, without running them. The
simulator itself runs any Python, as the vendor's simulator does; the check is meant for kernels to be compiled.
"""

from __future__ import annotations

import ast
import inspect
import textwrap
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FunctionType, ModuleType
from typing import Any

from trnqc.sim.functions.objects import NKIObject
from trnqc.sim.launch.jit import Kernel
from trnqc.sim.launch.version import VERSIONS, checked_version
from trnqc.sim.lint.tensor_names import TensorNames
from trnqc.sim.lint.versions import violations
from trnqc.sim.nki import isa, language

# Built-in functions that the kernel language has.
_BUILTINS = {
    "range",
    "len",
    "min",
    "max",
    "abs",
    "print",
    "int",
    "float",
    "bool",
    "str",
    "tuple",
    "list",
    "dict",
    "isinstance",
    "slice",
}
_SEQUENCES = ("range", "list", "tuple")
_DEVICE_LOOPS = ("fori_loop", "while_loop", "dynamic_range")
_BANNED: dict[type[ast.AST], str] = {
    ast.Try: "try is not in the language",
    ast.Lambda: "lambda is not in the language; define a function",
    ast.Yield: "generators are not in the language",
    ast.YieldFrom: "generators are not in the language",
    ast.GeneratorExp: "generators are not in the language; write a loop",
    ast.SetComp: "sets are not in the language",
    ast.Set: "sets are not in the language",
    ast.Await: "async is not in the language",
    ast.AsyncFor: "async is not in the language",
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


@dataclass(frozen=True, order=True)
class Finding:
    """A violation of the kernel language, with its place in the source and the versions of NKI that it concerns.

    Attributes
    ----------
    effect
        "rejected" if these versions do not compile the construct, "differs" if its meaning changed with them, and
        "deprecated" if they compile it, but a later one will not.
    """

    file: str
    line: int
    function: str
    message: str
    versions: tuple[str, ...] = VERSIONS
    effect: str = "rejected"

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.function}: {self.message}"


def lint(kernel: Kernel | Callable[..., Any], version: str | None = None) -> tuple[Finding, ...]:
    """Check a kernel and the functions that it calls against the kernel language.

    Parameters
    ----------
    kernel : Kernel or callable
        The kernel. Its source must be available.
    version : str, optional
        "0.6" or "0.7" for findings that concern this version of NKI only; by default those of either, so that a kernel
        without findings compiles in both and means the same.

    Returns
    -------
    tuple of Finding
        The violations, sorted by file and line; empty if there are none.

    Raises
    ------
    NkiValidationError
        If there is no such version.
    """
    asked = VERSIONS if version is None else (checked_version(version, "version of lint"),)
    entry = kernel.func if isinstance(kernel, Kernel) else kernel
    todo, seen, findings = [entry], {entry}, []
    while todo:
        function = todo.pop()
        source = _Source.of(function)
        findings += _check(source, is_kernel=function is entry)
        for helper in _helpers(source):
            if helper not in seen:
                seen.add(helper)
                todo.append(helper)
    return tuple(sorted({finding for finding in findings if set(finding.versions) & set(asked)}))


@dataclass(frozen=True)
class _Source:
    """One function: its syntax tree, its place in the source, what its free names refer to, and its local names."""

    tree: ast.FunctionDef
    file: str
    first_line: int
    names: dict[str, Any]
    local: frozenset[str]

    @staticmethod
    def of(function: Callable[..., Any]) -> _Source:
        lines, first = inspect.getsourcelines(function)
        tree = ast.parse(textwrap.dedent("".join(lines))).body[0]
        assert isinstance(tree, ast.FunctionDef)
        closure = inspect.getclosurevars(function)
        names = {**closure.builtins, **closure.globals, **closure.nonlocals, **getattr(function, "__globals__", {})}
        return _Source(tree, inspect.getsourcefile(function) or "?", first, names, frozenset(_locals(tree)))

    def at(
        self, node: ast.AST, message: str, versions: tuple[str, ...] = ("0.6",), effect: str = "rejected"
    ) -> Finding:
        line = self.first_line + getattr(node, "lineno", 1) - 1
        return Finding(self.file, line, self.tree.name, message, versions, effect)

    def meaning(self, node: ast.expr) -> Any:
        """The object that a dotted name refers to outside of the function, or None."""
        if isinstance(node, ast.Name):
            return None if node.id in self.local else self.names.get(node.id)
        if isinstance(node, ast.Attribute):
            base = self.meaning(node.value)
            return getattr(base, node.attr, None) if base is not None else None
        return None


def _locals(tree: ast.FunctionDef) -> set[str]:
    bound = {node.id for node in ast.walk(tree) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)}
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    arguments = {a.arg for f in functions for a in (*f.args.posonlyargs, *f.args.args, *f.args.kwonlyargs)}
    return bound | arguments | {f.name for f in functions if f is not tree}


def _helpers(source: _Source) -> Iterator[FunctionType]:
    """Yield the plain Python functions outside the simulator that the source refers to."""
    for node in ast.walk(source.tree):
        if isinstance(node, (ast.Name, ast.Attribute)):
            target = source.meaning(node)
            target = target.func if isinstance(target, Kernel) else target
            if isinstance(target, FunctionType) and not _is_interface(target.__module__):
                yield target


def _is_interface(module: str) -> bool:
    return module.split(".")[0] == "nki" or module.startswith("trnqc.sim")


def _check(source: _Source, is_kernel: bool) -> list[Finding]:
    findings = [*_check_signatures(source, is_kernel), *_check_nested_loops(source)]
    for node in ast.walk(source.tree):
        message = _BANNED.get(type(node))
        if message:
            findings.append(source.at(node, message))
        for rule in _RULES:
            findings += rule(source, node)
    for violation in violations(source.tree, source.meaning):
        findings.append(source.at(violation.node, violation.message, violation.versions, violation.effect))
    for node, message in TensorNames(source.tree, lambda n: source.meaning(n)).operators():
        findings.append(source.at(node, message, VERSIONS))
    return findings


def _check_signatures(source: _Source, is_kernel: bool) -> Iterator[Finding]:
    for function in (n for n in ast.walk(source.tree) if isinstance(n, ast.FunctionDef)):
        if function.args.kwonlyargs:
            yield source.at(function, "keyword-only arguments (bare *) are not in the language")
        if function is not source.tree and function.decorator_list:
            yield source.at(function, "helpers are plain functions, without decorators")
    if not is_kernel:
        return
    arguments = source.tree.args
    for argument in (*arguments.posonlyargs, *arguments.args):
        text = "" if argument.annotation is None else ast.unparse(argument.annotation)
        if text.startswith(("list", "List", "typing.List")):
            yield source.at(argument, f"kernel argument {argument.arg} is a list; use a tuple")
    for default in arguments.defaults:
        if isinstance(default, ast.List):
            yield source.at(default, "kernel argument default is a list; use a tuple")


def _identity(source: _Source, node: ast.AST) -> Iterator[Finding]:
    if isinstance(node, ast.Compare) and any(isinstance(op, (ast.Is, ast.IsNot)) for op in node.ops):
        yield source.at(node, "`is` is not in the language; use == or !=")


def _interface_names(source: _Source, node: ast.AST) -> Iterator[Finding]:
    if not isinstance(node, ast.Attribute):
        return
    module = source.meaning(node.value)
    name = getattr(module, "__name__", "")
    known = {"language": language, "isa": isa}.get(name.rsplit(".", 1)[-1])
    if isinstance(module, ModuleType) and known is not None and _is_interface(name) and not hasattr(known, node.attr):
        yield source.at(node, f"{ast.unparse(node)} does not exist", VERSIONS)


def _calls(source: _Source, node: ast.AST) -> Iterator[Finding]:
    if not isinstance(node, ast.Call):
        return
    root: ast.expr = node.func
    while isinstance(root, ast.Attribute):
        root = root.value
    if not isinstance(root, ast.Name) or root.id in source.local:
        return
    target = source.names.get(root.id)
    shown = ast.unparse(node.func)
    if isinstance(target, ModuleType):
        own = _is_interface(target.__name__) or isinstance(source.meaning(node.func), FunctionType | Kernel)
        if target.__name__.split(".")[0] == "numpy" or not own or not _local_code(source.meaning(node.func)):
            yield source.at(node, f"{shown}: calls into {target.__name__} are not in the language")
    elif getattr(target, "__module__", None) == "builtins" and root.id not in _BUILTINS:
        yield source.at(node, f"{shown} is not in the language")
    elif isinstance(target, type) and not _allowed_class(target) and target.__module__ != "builtins":
        yield source.at(node, f"{shown}: classes in kernels derive from nl.NKIObject")


def _local_code(target: Any) -> bool:
    """Return whether a call target belongs to the simulator or is plain Python that can be checked and inlined."""
    module = getattr(target, "__module__", "") or ""
    return _is_interface(module) or module.startswith("trnqc.sim") or isinstance(target, FunctionType | Kernel)


def _allowed_class(target: type) -> bool:
    return issubclass(target, NKIObject) or _is_interface(target.__module__)


def _loops(source: _Source, node: ast.AST) -> Iterator[Finding]:
    if not isinstance(node, ast.For) or not isinstance(node.iter, ast.Call):
        return
    name = node.iter.func.attr if isinstance(node.iter.func, ast.Attribute) else getattr(node.iter.func, "id", "")
    if getattr(source.meaning(node.iter.func), "__module__", "") == "builtins" and name not in _SEQUENCES:
        yield source.at(node, f"loops run over ranges, lists and tuples, not over {ast.unparse(node.iter)}")


def _comprehensions(source: _Source, node: ast.AST) -> Iterator[Finding]:
    if not isinstance(node, (ast.ListComp, ast.DictComp)):
        return
    for inner in ast.walk(node):
        if isinstance(inner, ast.Call) and isinstance(inner.func, ast.Attribute):
            name = getattr(source.meaning(inner.func.value), "__name__", "")
            if _is_interface(name):
                yield source.at(node, f"{ast.unparse(inner.func)} inside a comprehension; write a loop and append")
                return


def _contexts(source: _Source, node: ast.AST) -> Iterator[Finding]:
    if isinstance(node, ast.With):
        for item in node.items:
            if not ast.unparse(item.context_expr).endswith("no_reorder()"):
                yield source.at(node, f"with {ast.unparse(item.context_expr)} is not in the language")


_RULES = (_identity, _interface_names, _calls, _loops, _comprehensions, _contexts)


def _check_nested_loops(source: _Source) -> Iterator[Finding]:
    """Report device loops inside the body of a device loop, including those in local functions that it calls."""
    bodies = {n.name: n for n in ast.walk(source.tree) if isinstance(n, ast.FunctionDef)}

    def loops_in(function: ast.FunctionDef, seen: frozenset[str]) -> bool:
        for call in (n for n in ast.walk(function) if isinstance(n, ast.Call)):
            name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
            if name in _DEVICE_LOOPS:
                return True
            if name in bodies and name not in seen and loops_in(bodies[name], seen | {name}):
                return True
        return False

    for call in (n for n in ast.walk(source.tree) if isinstance(n, ast.Call)):
        name = call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")
        if name not in _DEVICE_LOOPS[:2]:
            continue
        for argument in (*call.args, *(k.value for k in call.keywords)):
            body = bodies.get(argument.id) if isinstance(argument, ast.Name) else None
            if body is not None and loops_in(body, frozenset({body.name})):
                yield source.at(call, "nested device loops do not compile; use one loop over a work list", VERSIONS)
