"""trnqc: the expensive steps of quantum chemistry and atomistic machine learning, fast on accelerators and laptops."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from trnqc.lazy import lazy_names
from trnqc.version import __version__

if TYPE_CHECKING:
    from trnqc.contraction.api import einsum, einsum_plan
    from trnqc.interfaces.counterpoise import counterpoise
    from trnqc.interfaces.extrapolation import extrapolate
    from trnqc.mp2.dfmp2 import DFMP2
    from trnqc.mp2.energy import mp2_energy
    from trnqc.mp2.hybrids.double_hybrid import DH
    from trnqc.mp2.result import MP2Result
    from trnqc.mp2.rings.methods import RPA, SOSMP2
    from trnqc.pyscf.accelerate import accelerate

# What trnqc does is logged by the loggers trnqc.*; nothing is printed unless the program that imports it asks for it.
logging.getLogger(__name__).addHandler(logging.NullHandler())

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
    "accelerate": "trnqc.pyscf.accelerate",
    "counterpoise": "trnqc.interfaces.counterpoise",
    "einsum": "trnqc.contraction.api",
    "einsum_plan": "trnqc.contraction.api",
    "extrapolate": "trnqc.interfaces.extrapolation",
    "mp2_energy": "trnqc.mp2.energy",
}

# Rooms, and interfaces to other programs, which are available after ``import trnqc``.
_MODULES = {room: f"trnqc.{room}" for room in ("blas", "cg", "contraction", "eri", "mace", "sparse")}
_MODULES |= {program: f"trnqc.interfaces.{program}" for program in ("ase", "qcengine", "qcschema")}

__getattr__, __dir__ = lazy_names(__name__, _HOMES, _MODULES)
