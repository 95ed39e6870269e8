"""A digest of a kernel's source: changes with its meaning, not with comments, docstrings, layout or Python's version.

It covers the kernel and every definition that the kernel names, followed through the modules of the kernel's package;
what merely stands in the same file does not count. The binding module ``lang`` is left out: it names the vendor.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
from pathlib import Path

from nki_kernels.descriptors import NkiKernel
from trnqc.errors import InputError

BINDING = "lang"
_LAYOUT = ("ctx", "type_comment", "kind", "returns", "annotation")


def kernel_hash(kernel: NkiKernel) -> str:
    """The digest of a kernel's source."""
    return source_hash(kernel.module, kernel.name)


def source_hash(module: str, name: str) -> str:
    """16 hex digits for the definition `name` in `module` and all that it reaches; InputError for an unknown one."""
    package = module.rpartition(".")[0]
    todo, seen = [(module, name)], {}
    while todo:
        here = todo.pop()
        if here in seen:
            continue
        definitions, imports = _module(here[0], package)
        if here[1] not in definitions:
            raise InputError(f"module {here[0]} defines {', '.join(sorted(definitions))}; {here[1]!r} was asked for")
        node = definitions[here[1]]
        seen[here] = canonical(node)
        for used in sorted({n.id for n in ast.walk(node) if isinstance(n, ast.Name)}):
            if used in definitions:
                todo.append((here[0], used))
            elif used in imports:
                todo.append(imports[used])
    text = "\n".join(f"{where}.{what} {code}" for (where, what), code in sorted(seen.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@functools.cache
def _module(module: str, package: str) -> tuple[dict[str, ast.AST], dict[str, tuple[str, str]]]:
    """Top-level definitions by name, and names imported from the same package as (module, name)."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise InputError(f"no source is found for module {module}")
    definitions: dict[str, ast.AST] = {}
    imports: dict[str, tuple[str, str]] = {}
    for node in ast.parse(Path(spec.origin).read_text(encoding="utf-8")).body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            definitions[node.name] = node
        elif isinstance(node, ast.Assign):
            definitions |= {t.id: node for t in node.targets if isinstance(t, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            definitions[node.target.id] = node
        elif isinstance(node, ast.ImportFrom) and _followed(node.module or "", package):
            imports |= {a.asname or a.name: (node.module or "", a.name) for a in node.names}
    return definitions, imports


def _followed(module: str, package: str) -> bool:
    return module.startswith(f"{package}.") and module != f"{package}.{BINDING}"


def canonical(node: object) -> str:
    """A text of a syntax tree without positions, annotations, docstrings and empty fields."""
    if isinstance(node, list):
        return "[" + ",".join(canonical(item) for item in node) + "]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = {name: value for name, value in ast.iter_fields(node) if name not in _LAYOUT and value not in (None, [])}
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and ast.get_docstring(node, clean=False) is not None:
        fields["body"] = node.body[1:]
    return f"{type(node).__name__}({','.join(f'{name}={canonical(value)}' for name, value in fields.items())})"
