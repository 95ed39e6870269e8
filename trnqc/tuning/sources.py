"""Digests of the sources of kernels. They do not depend on comments, docstrings, layout or the version of Python.

A digest covers the kernel and all definitions that it uses, directly or not, in any module of `nki_kernels`. Other
definitions in the same files do not matter. The module ``lang``, which selects the vendor's package or the simulator,
is left out.
"""

from __future__ import annotations

import ast
import functools
import hashlib
import importlib.util
from pathlib import Path

from nki_kernels.descriptors import NkiKernel
from trnqc.errors import InputError

# The module that selects the vendor's package or the simulator.
BINDING = "lang"
# In a wheel the package of kernels lies inside trnqc (setup.py); its records are those of a checkout.
WHEEL = "trnqc."
# Fields of syntax trees that do not change the meaning of a program.
_LAYOUT = ("ctx", "type_comment", "kind", "returns", "annotation")


def kernel_hash(kernel: NkiKernel) -> str:
    """The digest of a kernel's source."""
    return source_hash(kernel.module, kernel.name)


def source_hash(module: str, name: str) -> str:
    """The digest, 16 hexadecimal digits, of a definition in a module and all definitions that it uses.

    Raises
    ------
    InputError
        If the module has no such definition.
    """
    package = module[: module.index(".", len(WHEEL) if module.startswith(WHEEL) else 0)]
    todo, seen = [(module, name)], {}
    while todo:
        where, what = todo.pop()
        if (where, what) in seen:
            continue
        definitions, imports = _module(where, package)
        if what not in definitions:
            raise InputError(f"module {where} defines {', '.join(sorted(definitions))}, but not {what!r}")
        node = definitions[what]
        seen[where, what] = canonical(node)
        for used in sorted({n.id for n in ast.walk(node) if isinstance(n, ast.Name)}):
            if used in definitions:
                todo.append((where, used))
            elif used in imports:
                todo.append(imports[used])
    named = {f"{where.removeprefix(WHEEL)}.{what}": code for (where, what), code in seen.items()}
    text = "\n".join(f"{name} {code}" for name, code in sorted(named.items()))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


@functools.cache
def _module(module: str, package: str) -> tuple[dict[str, ast.AST], dict[str, tuple[str, str]]]:
    """The top-level definitions of a module, and the names that it imports from its package as (module, name)."""
    spec = importlib.util.find_spec(module)
    if spec is None or spec.origin is None:
        raise InputError(f"module {module} has no source")
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
    """The text of a syntax tree without positions, annotations, docstrings and empty fields."""
    if isinstance(node, list):
        return "[" + ",".join(canonical(item) for item in node) + "]"
    if not isinstance(node, ast.AST):
        return repr(node)
    fields = {name: value for name, value in ast.iter_fields(node) if name not in _LAYOUT and value not in (None, [])}
    if isinstance(node, (ast.FunctionDef, ast.ClassDef)) and ast.get_docstring(node, clean=False) is not None:
        fields["body"] = node.body[1:]
    return f"{type(node).__name__}({','.join(f'{name}={canonical(value)}' for name, value in fields.items())})"
