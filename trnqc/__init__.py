"""trnqc: the expensive steps of quantum chemistry and atomistic machine learning, fast on accelerators and laptops."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trnqc.contraction.api import einsum, einsum_plan
    from trnqc.eri.pyscf.accelerate import accelerate
    from trnqc.interfaces.counterpoise import counterpoise
    from trnqc.interfaces.extrapolation import extrapolate
    from trnqc.mp2.dfmp2 import DFMP2
    from trnqc.mp2.energy import mp2_energy
    from trnqc.mp2.hybrids.double_hybrid import DH
    from trnqc.mp2.result import MP2Result
    from trnqc.mp2.rings.methods import RPA, SOSMP2

__version__ = "0.1.0.dev0"
__all__ = [
    "DFMP2",
    "DH",
    "RPA",
    "SOSMP2",
    "MP2Result",
    "__version__",
    "accelerate",
    "counterpoise",
    "einsum",
    "einsum_plan",
    "extrapolate",
    "mp2_energy",
]

# PySCF takes a second to import: names that need it are looked up when first used.
_HOMES = {
    "DFMP2": "trnqc.mp2.dfmp2",
    "DH": "trnqc.mp2.hybrids.double_hybrid",
    "MP2Result": "trnqc.mp2.result",
    "RPA": "trnqc.mp2.rings.methods",
    "SOSMP2": "trnqc.mp2.rings.methods",
    "accelerate": "trnqc.eri.pyscf.accelerate",
    "counterpoise": "trnqc.interfaces.counterpoise",
    "einsum": "trnqc.contraction.api",
    "einsum_plan": "trnqc.contraction.api",
    "extrapolate": "trnqc.interfaces.extrapolation",
    "mp2_energy": "trnqc.mp2.energy",
}

# Rooms with public names of their own, at hand after ``import trnqc``.
_ROOMS = ("cg", "contraction", "eri", "sparse")
# Modules with the names of the programs that they are interfaces to.
_INTERFACES = ("ase", "qcengine", "qcschema")


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return importlib.import_module(f"trnqc.{name}")
    if name in _INTERFACES:
        return importlib.import_module(f"trnqc.interfaces.{name}")
    if name not in _HOMES:
        raise AttributeError(f"module 'trnqc' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted([*__all__, *_ROOMS, *_INTERFACES])
