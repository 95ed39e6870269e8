"""Clebsch-Gordan tensor products of O(3) irreps, generated for the problem at hand, with their derivatives.

irreps, instructions -> problem -> paths -> program (gen) -> compiled kernel (jit) -> z and its derivatives
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from trnqc.cg.accelerate import accelerate, undo
    from trnqc.cg.coefficients import clebsch_gordan
    from trnqc.cg.irreps import Irreps
    from trnqc.cg.modules import TensorProduct, TensorProductConv
    from trnqc.cg.problem import TPProblem, from_e3nn
    from trnqc.cg.products import (
        ElementwiseTensorProduct,
        FullTensorProduct,
        FullyConnectedTensorProduct,
        TensorSquare,
    )

__all__ = [
    "ElementwiseTensorProduct",
    "FullTensorProduct",
    "FullyConnectedTensorProduct",
    "Irreps",
    "TPProblem",
    "TensorProduct",
    "TensorProductConv",
    "TensorSquare",
    "accelerate",
    "clebsch_gordan",
    "from_e3nn",
    "undo",
]

# Modules that need PyTorch or a compiler are imported when a name of theirs is first used.
_HOMES = {
    "ElementwiseTensorProduct": "trnqc.cg.products",
    "FullTensorProduct": "trnqc.cg.products",
    "FullyConnectedTensorProduct": "trnqc.cg.products",
    "Irreps": "trnqc.cg.irreps",
    "TPProblem": "trnqc.cg.problem",
    "TensorProduct": "trnqc.cg.modules",
    "TensorProductConv": "trnqc.cg.modules",
    "TensorSquare": "trnqc.cg.products",
    "accelerate": "trnqc.cg.accelerate",
    "clebsch_gordan": "trnqc.cg.coefficients",
    "from_e3nn": "trnqc.cg.problem",
    "undo": "trnqc.cg.accelerate",
}


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'trnqc.cg' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_HOMES[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted(__all__)
