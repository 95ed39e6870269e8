"""Make ``import nki`` resolve to the simulator, so that third-party kernels run unchanged.

The vendor's own ``nki`` always takes precedence where it is installed.
"""

from __future__ import annotations

import importlib
import importlib.metadata
import sys
from importlib.machinery import ModuleSpec
from types import ModuleType

from trnqc.errors import PackageTooOld
from trnqc.sim.launch.jit import jit, simulate
from trnqc.sim.machine import enums
from trnqc.sim.machine.version import version_from_environment
from trnqc.sim.memory import dtypes
from trnqc.sim.nki import compiler, isa, language, typing

# Oldest version that counts as the vendor's NKI; unrelated packages of that name have lower versions.
_MINIMUM = (0, 3)
KERNELS_NEED = (0, 6)
"""The oldest version of the vendor's NKI with which our kernels run: the first one with ``nl.fori_loop``."""
# Attribute that marks the simulated ``nki`` module.
_MARK = "__trnqc_simulator__"


def find_real_nki() -> ModuleType | None:
    """Return the vendor's ``nki`` if version 0.3 or later can be imported, otherwise None.

    Unrelated public packages of that name raise ImportError and count as absent.
    """
    loaded = sys.modules.get("nki")
    if loaded is not None:
        return None if hasattr(loaded, _MARK) else _if_recent(loaded)
    try:
        return _if_recent(importlib.import_module("nki"))
    except ImportError:
        return None


def nki_for_kernels() -> ModuleType | None:
    """Return the vendor's ``nki`` for our kernels, or None if it is not installed. Raises PackageTooOld if it is older
    than `KERNELS_NEED`: on the simulator, kernels would run on the CPU where a device was expected.
    """
    module = find_real_nki()
    if module is not None and _numbers(_version(module)) < KERNELS_NEED:
        needed = ".".join(map(str, KERNELS_NEED))
        reason = "for nl.fori_loop, of which the device loops of the kernels consist; upgrade it (docs/trainium.md)"
        raise PackageTooOld("nki", _version(module), needed, reason)
    return module


def _if_recent(module: ModuleType) -> ModuleType | None:
    return module if _numbers(_version(module)) >= _MINIMUM else None


def _version(module: ModuleType) -> str:
    """The version of an installed ``nki``, "" if it has none."""
    text = getattr(module, "__version__", None)
    if text is None:
        try:
            text = importlib.metadata.version("nki")
        except importlib.metadata.PackageNotFoundError:
            return ""
    return str(text)


def _numbers(version: str) -> tuple[int, ...]:
    return tuple(int(part) for part in version.split(".")[:2] if part.isdigit())


def install() -> bool:
    """Make ``nki`` and its submodules resolve to the simulator.

    Returns
    -------
    bool
        True on success. False, without any change, if the vendor's ``nki`` is installed.
    """
    if find_real_nki() is not None:
        return False
    nki = ModuleType("nki", "Simulated nki.")
    nki.__spec__ = ModuleSpec("nki", None, is_package=True)
    nki.__path__ = []
    parts = {"language": language, "isa": isa, "typing": typing, "dtype": dtypes}
    if version_from_environment() == "0.7":
        parts["compiler"] = compiler
    names = {"jit": jit, "simulate": simulate, "__version__": f"{version_from_environment()}.0", _MARK: True}
    for name, value in {**parts, **names}.items():
        setattr(nki, name, value)
    sys.modules["nki"] = nki
    for name, part in parts.items():
        sys.modules[f"nki.{name}"] = part
    sys.modules["nki.isa.constants"] = vars(isa)["constants"] = enums
    return True


def uninstall() -> None:
    """Inverse of `install`."""
    if hasattr(sys.modules.get("nki"), _MARK):
        for name in [n for n in sys.modules if n == "nki" or n.startswith("nki.")]:
            del sys.modules[name]
