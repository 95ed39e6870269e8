"""What a source refers to: imports wherever they stand, attributes of imported modules, and names in strings.

Names in strings count, because tests start programs and packages import modules by name when they are first used. Type
hints and docstrings do not.
"""

from __future__ import annotations

import ast
import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass

PACKAGES = ("trnqc", "nki_kernels", "autotune", "scripts", "examples", "tests")
_DOTTED = re.compile(rf"\b(?:{'|'.join(PACKAGES)})(?:\.\w+)+(?![\w/])")
_IMPORT = re.compile(rf"\bfrom ((?:{'|'.join(PACKAGES)})[\w.]*) import (\([^)]*\)|[^\n;(]*)")
_BLOCK = re.compile(r"```python\n(.*?)```", re.DOTALL)
# The name of a file, or a pattern of names, at the end of a string.
_FILE = re.compile(r"(?:^|[/ ])([\w*.-]+\.\w+)$")


@dataclass(frozen=True)
class Source:
    """The references of a source.

    Attributes
    ----------
    names : frozenset of str
        Dotted names of modules or of what they contain. ``package.*`` stands for all modules below a package.
    files : frozenset of str
        Names of files and patterns of names, without folders.
    own : frozenset of str
        The names that the module defines itself.
    homes : dict, optional
        Only of a package with `trnqc.lazy`: the modules of the names that are imported when they are first used.
    """

    names: frozenset[str]
    files: frozenset[str]
    own: frozenset[str]
    homes: dict[str, str] | None


def source_of(text: str, module: str, package: bool) -> Source:
    """Read a source. `package` says whether it is an ``__init__.py``. Raises SyntaxError."""
    tree = ast.parse(text)
    lazy = any(isinstance(n, ast.ImportFrom) and n.module == "trnqc.lazy" for n in tree.body)
    homes = dict(_homes(tree)) if lazy else None
    names, bound, files = set[str](), dict[str, str](), set[str]()
    nodes = list(_nodes(tree))
    for node in nodes:
        for name, full in _imports(node, module, package):
            names.add(full)
            bound[name] = full
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and homes is None:
            names |= set(_in_string(node.value))
            files |= set(_FILE.findall(node.value))
        if isinstance(node, ast.JoinedStr) and homes is None:
            names |= set(_below(node))
    names |= {full for node in nodes if (full := _attribute(node, bound))}
    if '"-m", "trnqc"' in text:
        names.add("trnqc.__main__")
    if "iter_modules(__path__)" in text:
        names.add(f"{module}.*")
    own = {name for node in tree.body for name in _defined(node)}
    return Source(frozenset(names), frozenset(files), frozenset(own), homes)


def page_of(text: str) -> Source:
    """Read a page of the documents, whose Python blocks tests run. Blocks that are no Python have no references."""
    names, program = set(_in_string(text)), "\n".join(_BLOCK.findall(text))
    with contextlib.suppress(SyntaxError):
        names |= source_of(program, "", False).names
    return Source(frozenset(names), frozenset(), frozenset(), None)


def _nodes(node: ast.AST) -> Iterator[ast.AST]:
    """The nodes below a node, without docstrings, annotations and what is for type checkers only."""
    for field, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            if not isinstance(child, ast.AST) or field in ("annotation", "returns"):
                continue
            if isinstance(child, ast.Expr) and isinstance(child.value, ast.Constant):
                continue
            if isinstance(child, ast.If) and isinstance(child.test, ast.Name) and child.test.id == "TYPE_CHECKING":
                continue
            yield child
            yield from _nodes(child)


def _imports(node: ast.AST, module: str, package: bool) -> Iterator[tuple[str, str]]:
    """The names that an import binds, and the dotted names of what they stand for."""
    if isinstance(node, ast.Import):
        for alias in node.names:
            if alias.asname:
                yield alias.asname, alias.name
            else:
                yield alias.name, alias.name
                yield alias.name.split(".")[0], alias.name.split(".")[0]
    elif isinstance(node, ast.ImportFrom):
        base = node.module or ""
        if node.level:
            above = module.split(".")[: None if package and node.level == 1 else package - node.level]
            base = ".".join([*above, *[base] * bool(base)])
        for alias in node.names:
            yield alias.asname or alias.name, f"{base}.{alias.name}"


def _attribute(node: ast.AST, bound: dict[str, str]) -> str:
    """The dotted name of an attribute of an imported module, or an empty string."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if parts and isinstance(node, ast.Name) and node.id in bound:
        return ".".join([bound[node.id], *reversed(parts)])
    return ""


def _in_string(text: str) -> Iterator[str]:
    """The dotted names in a string, which may be a program."""
    yield from _DOTTED.findall(text)
    for base, names in _IMPORT.findall(text):
        yield from (f"{base}.{name}" for name in re.findall(r"\w+", names))


def _below(node: ast.JoinedStr) -> Iterator[str]:
    """All modules of a package, where their names are put together."""
    for part in node.values:
        text = part.value if isinstance(part, ast.Constant) else ""
        if isinstance(text, str) and text.endswith(".") and text.split(".")[0] in PACKAGES:
            yield f"{text}*"


def _homes(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """The pairs of strings in the tables of a module: public names, and the modules that define them."""
    for node in tree.body:
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Dict):
            for key, value in zip(node.value.keys, node.value.values):
                if isinstance(key, ast.Constant) and isinstance(value, ast.Constant):
                    yield str(key.value), str(value.value)


def _defined(node: ast.stmt) -> Iterator[str]:
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        yield node.name
    elif isinstance(node, ast.Import | ast.ImportFrom):
        yield from (alias.asname or alias.name for alias in node.names)
    elif isinstance(node, ast.Assign):
        yield from (n.id for target in node.targets for n in ast.walk(target) if isinstance(n, ast.Name))
    elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
        yield node.target.id
