"""Digests of the Python sources that generate a program. They change whenever the program could change.

Generating a large program takes much longer than loading a compiled one. The key of its cache entry is therefore
computed from the sources of the module that generates it, and of all modules of this package that this module imports,
and not from the generated text.
"""

from __future__ import annotations

import functools
import hashlib
import importlib.util
import re
from pathlib import Path

# An import statement. Parsing with `ast` would take a hundred times as long. An import in a docstring is followed too,
# which does no harm.
_IMPORT = re.compile(r"^[ \t]*from (trnqc\.[\w.]+) import (\([^)]*\)|[^\n(]*)", re.MULTILINE)

# Modules that are left out. They compile and store programs but do not change them, and the compiler has its own place
# in the key.
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
    """The source of a module. Empty if there is no such module."""
    spec = importlib.util.find_spec(module)
    return Path(spec.origin).read_text(encoding="utf-8") if spec and spec.origin else ""


@functools.cache
def imported(text: str) -> tuple[str, ...]:
    """The modules of this package that a source imports. A name that is imported from a package may be a module."""
    modules = []
    for module, names in _IMPORT.findall(text):
        modules.append(module)
        modules += [f"{module}.{name}" for name in re.findall(r"\w+", names) if _is_module(module, name)]
    return tuple(modules)


def _is_module(package: str, name: str) -> bool:
    spec = importlib.util.find_spec(package)
    inside = spec.submodule_search_locations if spec else None
    return any((Path(place) / f"{name}.py").is_file() or (Path(place) / name).is_dir() for place in inside or ())
