"""Clebsch-Gordan tensor products of O(3) irreps, generated for the problem at hand, with their derivatives.

irreps, instructions -> problem -> paths -> program (gen) -> compiled kernel (jit) -> z and its derivatives
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnqc.lazy import lazy_names

if TYPE_CHECKING:
    from trnqc.cg.doors.swap import accelerate, undo
    from trnqc.cg.problem.coefficients import clebsch_gordan
    from trnqc.cg.problem.irreps import Irreps
    from trnqc.cg.problem.problem import TPProblem, from_e3nn
    from trnqc.cg.torch.contraction import SymmetricContraction
    from trnqc.cg.torch.cpp.folder import write_kernels
    from trnqc.cg.torch.modules import TensorProduct, TensorProductConv
    from trnqc.cg.torch.products import (
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
    "SymmetricContraction",
    "TPProblem",
    "TensorProduct",
    "TensorProductConv",
    "TensorSquare",
    "accelerate",
    "clebsch_gordan",
    "from_e3nn",
    "undo",
    "write_kernels",
]

# Modules that need PyTorch or a compiler are imported when a name of theirs is first used.
_HOMES = {
    "ElementwiseTensorProduct": "trnqc.cg.torch.products",
    "FullTensorProduct": "trnqc.cg.torch.products",
    "FullyConnectedTensorProduct": "trnqc.cg.torch.products",
    "Irreps": "trnqc.cg.problem.irreps",
    "SymmetricContraction": "trnqc.cg.torch.contraction",
    "TPProblem": "trnqc.cg.problem.problem",
    "TensorProduct": "trnqc.cg.torch.modules",
    "TensorProductConv": "trnqc.cg.torch.modules",
    "TensorSquare": "trnqc.cg.torch.products",
    "accelerate": "trnqc.cg.doors.swap",
    "clebsch_gordan": "trnqc.cg.problem.coefficients",
    "from_e3nn": "trnqc.cg.problem.problem",
    "undo": "trnqc.cg.doors.swap",
    "write_kernels": "trnqc.cg.torch.cpp.folder",
}

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
