"""Check that a kernel uses only the Python that the vendor's compiler front ends accept (NKI 0.6 and 0.7).

The front end of 0.6 accepts a subset of Python. That of 0.7 runs the kernel, so that any Python may specialise it, but
tensors, device loops and names of the interface keep their rules. `trnqc.sim.lint.versions` has the rules about
constructs that only one version has or that it treats differently.

`trnqc.sim.lint.parser` has what only the parser of 0.6 refuses.

``lint(kernel)`` reads the source of the kernel, of every plain function that it names, and of the classes of which it
makes instances, in whatever file they stand, without running them, because the parser gathers these as well. The
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

from trnqc.sim.launch.jit import Kernel
from trnqc.sim.lint.parser import class_refusals, last_name, refusals
from trnqc.sim.lint.scopes import BODIES, misuses
from trnqc.sim.lint.tensor_names import TensorNames
from trnqc.sim.lint.versions import violations
from trnqc.sim.machine.objects import NKIObject
from trnqc.sim.machine.rules import Finding
from trnqc.sim.machine.version import VERSIONS, checked_version
from trnqc.sim.nki import isa, language

_DEVICE_LOOPS = (*BODIES, "dynamic_range")


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
    todo, seen, findings = [entry], set[Any]({entry}), []
    while todo:
        function = todo.pop()
        source = _Source.of(function)
        findings += _check(source, is_kernel=function is entry)
        classes = [one for one in _classes(source) if one not in seen]
        for one in classes:
            findings += _check_class(one)
        for helper in (*_helpers(source), *(method for one in classes for method in _methods(one))):
            if helper not in seen:
                seen.add(helper)
                todo.append(helper)
        seen.update(classes)
    return tuple(sorted({finding for finding in findings if set(finding.versions) & set(asked)}))


@dataclass(frozen=True)
class _Source:
    """One function: its syntax tree, its place in the source, the objects of its free names, and its local names."""

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

    def nodes(self) -> Iterator[ast.AST]:
        """Yield the nodes of the signature and the body; decorators act before a kernel is compiled."""
        for part in (self.tree.args, *self.tree.body):
            yield from ast.walk(part)

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
    for node in source.nodes():
        if isinstance(node, (ast.Name, ast.Attribute)):
            target = source.meaning(node)
            target = target.func if isinstance(target, Kernel) else getattr(target, "__wrapped__", target)
            if isinstance(target, FunctionType) and not _is_interface(target.__module__, "numpy"):
                yield target


def _classes(source: _Source) -> Iterator[type]:
    """Yield the classes outside Python and the simulator of which the source makes instances, each once."""
    found = dict.fromkeys(source.meaning(node.func) for node in source.nodes() if isinstance(node, ast.Call))
    for target in found:
        if isinstance(target, type) and target.__module__ != "builtins" and not _is_interface(target.__module__):
            yield target


def _check_class(target: type) -> Iterator[Finding]:
    lines, first = inspect.getsourcelines(target)
    tree = ast.parse(textwrap.dedent("".join(lines))).body[0]
    assert isinstance(tree, ast.ClassDef)
    for violation in class_refusals(tree):
        line = first + getattr(violation.node, "lineno", 1) - 1
        file = inspect.getsourcefile(target) or "?"
        yield Finding(file, line, tree.name, violation.message, violation.versions, violation.effect)


def _methods(target: type) -> Iterator[FunctionType]:
    """Yield the methods that the source of a class contains, without the methods that Python has made for the class."""
    for value in vars(target).values():
        method = value.fget if isinstance(value, property) else getattr(value, "__wrapped__", value)
        if isinstance(method, FunctionType) and not method.__code__.co_filename.startswith("<"):
            yield method


def _is_interface(module: str, *more: str) -> bool:
    return module.split(".")[0] in ("nki", *more) or module.startswith("trnqc.sim")


def _check(source: _Source, is_kernel: bool) -> list[Finding]:
    findings = [*_check_signatures(source, is_kernel), *_check_nested_loops(source)]
    for node in ast.walk(source.tree):
        for rule in _RULES:
            findings += rule(source, node)
    for rules in (violations, refusals, misuses):
        for violation in rules(source.tree, source.meaning):
            findings.append(source.at(violation.node, violation.message, violation.versions, violation.effect))
    for node, message in TensorNames(source.tree, lambda n: source.meaning(n)).operators():
        findings.append(source.at(node, message, VERSIONS))
    return findings


def _check_signatures(source: _Source, is_kernel: bool) -> Iterator[Finding]:
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
    target = source.meaning(node.func)
    target = target if isinstance(target, type) else source.names.get(root.id)
    shown = ast.unparse(node.func)
    if isinstance(target, ModuleType) and target.__name__ != "math":
        own = _is_interface(target.__name__) or isinstance(source.meaning(node.func), FunctionType | Kernel)
        if target.__name__.split(".")[0] == "numpy" or not own or not _local_code(source.meaning(node.func)):
            yield source.at(node, f"{shown}: calls into {target.__name__} are not in the language")
    elif isinstance(target, type) and not _allowed_class(target) and target.__module__ != "builtins":
        yield source.at(node, f"{shown}: classes in kernels derive from nl.NKIObject")


def _local_code(target: Any) -> bool:
    """Return whether a call target belongs to the simulator or is plain Python that can be checked and inlined."""
    module = getattr(target, "__module__", "") or ""
    return _is_interface(module) or module.startswith("trnqc.sim") or isinstance(target, FunctionType | Kernel)


def _allowed_class(target: type) -> bool:
    return issubclass(target, NKIObject) or _is_interface(target.__module__)


_RULES = (_interface_names, _calls)


def _check_nested_loops(source: _Source) -> Iterator[Finding]:
    """Report device loops inside the body of a device loop, including those in local functions that it calls."""
    bodies = {n.name: n for n in ast.walk(source.tree) if isinstance(n, ast.FunctionDef)}

    def loops_in(function: ast.FunctionDef, seen: frozenset[str]) -> bool:
        for call in (n for n in ast.walk(function) if isinstance(n, ast.Call)):
            name = last_name(call)
            if name in _DEVICE_LOOPS:
                return True
            if name in bodies and name not in seen and loops_in(bodies[name], seen | {name}):
                return True
        return False

    for call in (n for n in ast.walk(source.tree) if isinstance(n, ast.Call)):
        if last_name(call) not in BODIES:
            continue
        for argument in (*call.args, *(k.value for k in call.keywords)):
            body = bodies.get(argument.id) if isinstance(argument, ast.Name) else None
            if body is not None and loops_in(body, frozenset({body.name})):
                yield source.at(call, "nested device loops do not compile; use one loop over a work list", VERSIONS)
