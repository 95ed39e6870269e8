"""Sparse tensor networks: layouts and fused loops chosen by a solver, compiled to C.

network + sparsity -> layouts and loops (Z3) -> index notation -> program (gen) -> compiled kernel (jit) -> tensor
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnqc.lazy import lazy_names

if TYPE_CHECKING:
    from trnqc.sparse.api import contract, plan
    from trnqc.sparse.run.plan import Plan
    from trnqc.sparse.tensors.convert import from_scipy, from_torch, read_tns
    from trnqc.sparse.tensors.storage import SparseTensor, from_coo, from_dense

__all__ = [
    "Plan",
    "SparseTensor",
    "contract",
    "from_coo",
    "from_dense",
    "from_scipy",
    "from_torch",
    "plan",
    "read_tns",
]

# Modules are imported when a name is first used, because plans need more imports than tensors.
_HOMES = {
    "Plan": "trnqc.sparse.run.plan",
    "SparseTensor": "trnqc.sparse.tensors.storage",
    "contract": "trnqc.sparse.api",
    "from_coo": "trnqc.sparse.tensors.storage",
    "from_dense": "trnqc.sparse.tensors.storage",
    "from_scipy": "trnqc.sparse.tensors.convert",
    "from_torch": "trnqc.sparse.tensors.convert",
    "plan": "trnqc.sparse.api",
    "read_tns": "trnqc.sparse.tensors.convert",
}

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
