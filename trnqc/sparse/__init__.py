"""Sparse tensor networks: layouts and fused loops chosen by a solver, compiled to C.

network + sparsity -> layouts and loops (Z3) -> index notation -> program (gen) -> compiled kernel (jit) -> tensor
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from trnqc.lazy import lazy_names

if TYPE_CHECKING:
    from trnqc.sparse.api import contract, plan
    from trnqc.sparse.blocks.block2 import from_block2
    from trnqc.sparse.blocks.charges import BlockCharges
    from trnqc.sparse.blocks.convert import from_itensor, from_symmray, to_symmray
    from trnqc.sparse.blocks.plan import BlockPlan
    from trnqc.sparse.blocks.tensor import BlockTensor
    from trnqc.sparse.decompose.cp import cp_als, nonneg_cp
    from trnqc.sparse.decompose.tensor_train import tensor_train
    from trnqc.sparse.decompose.tucker import tucker_hooi
    from trnqc.sparse.run.device import DevicePlan
    from trnqc.sparse.run.plan import Plan
    from trnqc.sparse.tensors.convert import from_pydata, from_scipy, from_torch, read_tns
    from trnqc.sparse.tensors.storage import SparseTensor, from_coo, from_dense

__all__ = [
    "BlockCharges",
    "BlockPlan",
    "BlockTensor",
    "DevicePlan",
    "Plan",
    "SparseTensor",
    "contract",
    "cp_als",
    "from_block2",
    "from_coo",
    "from_dense",
    "from_itensor",
    "from_pydata",
    "from_scipy",
    "from_symmray",
    "from_torch",
    "nonneg_cp",
    "plan",
    "read_tns",
    "tensor_train",
    "to_symmray",
    "tucker_hooi",
]

# Modules are imported when a name is first used, because plans need more imports than tensors.
_HOMES = {
    "BlockCharges": "trnqc.sparse.blocks.charges",
    "BlockPlan": "trnqc.sparse.blocks.plan",
    "BlockTensor": "trnqc.sparse.blocks.tensor",
    "DevicePlan": "trnqc.sparse.run.device",
    "Plan": "trnqc.sparse.run.plan",
    "SparseTensor": "trnqc.sparse.tensors.storage",
    "contract": "trnqc.sparse.api",
    "cp_als": "trnqc.sparse.decompose.cp",
    "from_block2": "trnqc.sparse.blocks.block2",
    "from_coo": "trnqc.sparse.tensors.storage",
    "from_dense": "trnqc.sparse.tensors.storage",
    "from_pydata": "trnqc.sparse.tensors.convert",
    "from_itensor": "trnqc.sparse.blocks.convert",
    "from_scipy": "trnqc.sparse.tensors.convert",
    "from_symmray": "trnqc.sparse.blocks.convert",
    "from_torch": "trnqc.sparse.tensors.convert",
    "nonneg_cp": "trnqc.sparse.decompose.cp",
    "plan": "trnqc.sparse.api",
    "read_tns": "trnqc.sparse.tensors.convert",
    "tensor_train": "trnqc.sparse.decompose.tensor_train",
    "to_symmray": "trnqc.sparse.blocks.convert",
    "tucker_hooi": "trnqc.sparse.decompose.tucker",
}

__getattr__, __dir__ = lazy_names(__name__, _HOMES)
