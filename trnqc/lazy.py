"""Public names of a package whose modules are imported when a name is first used (PEP 562)."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Mapping
from typing import Any


def lazy_names(
    package: str, homes: Mapping[str, str], modules: Mapping[str, str] | None = None
) -> tuple[Callable[[str], Any], Callable[[], list[str]]]:
    """Return the functions `__getattr__` and `__dir__` of a package.

    Parameters
    ----------
    package : str
        The name of the package.
    homes : mapping of str to str
        For each public name, the module that defines it.
    modules : mapping of str to str, optional
        Public names of modules, and the modules.
    """
    module, modules = sys.modules[package], modules or {}

    def get(name: str) -> Any:
        if name in modules:
            return importlib.import_module(modules[name])
        if name not in homes:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        value = getattr(importlib.import_module(homes[name]), name)
        setattr(module, name, value)
        return value

    return get, lambda: sorted([*module.__all__, *modules])
