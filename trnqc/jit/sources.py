"""A digest of the Python sources that generate a program, which changes whenever the program could.

Generating a large program takes much longer than loading a compiled one. Its cache entry is therefore named after the
sources of the module that makes it, and of all modules of this package that this one imports, and not after its text.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import re
from pathlib import Path

# Parsing with `ast` takes a hundred times as long. An import that stands in a docstring is followed as well: harmless.
_IMPORT = re.compile(r"^[ \t]*from (trnqc\.[\w.]+) import (\([^)]*\)|[^\n(]*)", re.MULTILINE)

# How programs are compiled and kept does not change what they are; the compiler is part of the key by itself.
_IGNORED = "trnqc.jit"


@functools.cache
def sources(module: str) -> str:
    """A digest of a module and of all modules of this package that it imports, directly or not."""
    digest, seen, waiting = hashlib.sha256(), set[str](), [module]
    while waiting:
        name = waiting.pop()
        text = "" if name in seen or name.startswith(_IGNORED) else _text(name)
        seen.add(name)
        if text:
            digest.update(f"{name}\n{text}".encode())
            waiting += sorted(imported(text))
    return digest.hexdigest()


def _text(module: str) -> str:
    """The source of a module; empty if it has none."""
    spec = importlib.util.find_spec(module)
    return Path(spec.origin).read_text(encoding="utf-8") if spec and spec.origin else ""


@functools.cache
def imported(text: str) -> tuple[str, ...]:
    """Modules of this package that a source imports; what is imported from a package may be a module itself."""
    modules = []
    for module, names in _IMPORT.findall(text):
        modules.append(module)
        modules += [f"{module}.{name}" for name in re.findall(r"\w+", names) if _is_module(module, name)]
    return tuple(modules)


def _is_module(package: str, name: str) -> bool:
    spec = importlib.util.find_spec(package)
    inside = spec.submodule_search_locations if spec else None
    return any((Path(place) / f"{name}.py").is_file() or (Path(place) / name).is_dir() for place in inside or ())
