"""trnqc: the expensive steps of quantum chemistry and atomistic machine learning, fast on accelerators and laptops."""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnqc.lazy import lazy_names

if TYPE_CHECKING:
    from trnqc.contraction.api import einsum, einsum_plan
    from trnqc.eri.pyscf.accelerate import accelerate
    from trnqc.mp2.dfmp2 import DFMP2
    from trnqc.mp2.energy import mp2_energy
    from trnqc.mp2.result import MP2Result

__version__ = "0.1.0.dev0"
__all__ = ["DFMP2", "MP2Result", "__version__", "accelerate", "einsum", "einsum_plan", "mp2_energy"]

# PySCF takes a second to import: names that need it are looked up when first used.
_HOMES = {
    "DFMP2": "trnqc.mp2.dfmp2",
    "MP2Result": "trnqc.mp2.result",
    "accelerate": "trnqc.eri.pyscf.accelerate",
    "einsum": "trnqc.contraction.api",
    "einsum_plan": "trnqc.contraction.api",
    "mp2_energy": "trnqc.mp2.energy",
}

# Rooms with public names of their own, available after ``import trnqc``.
_ROOMS = ("cg", "contraction", "eri", "sparse")

__getattr__, __dir__ = lazy_names(__name__, _HOMES, _ROOMS)
