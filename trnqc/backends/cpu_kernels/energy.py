"""The energy expression over a slab of integrals: compiled in one pass, or as NumPy operations."""

from __future__ import annotations

from collections.abc import Callable
from importlib import resources

import numpy as np

from trnqc import jit

# (slab [nvir, n * nvir] holding T_j[a,b] at [a, j * nvir + b], e_pair [n]) -> sums over a, b of T^2 / D and T T^T / D
EnergyPass = Callable[[np.ndarray, np.ndarray], tuple[np.ndarray, np.ndarray]]


def compiled_pass(eps_vir: np.ndarray, dtype: type) -> EnergyPass:
    """The energy expression in one pass of compiled code; raises CompilerError."""
    function = pair_kernel(np.dtype(dtype).name).pair_energies
    nvir = len(eps_vir)

    def run(slab: np.ndarray, e_pair: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        n = len(e_pair)
        os_sums, x_sums = np.empty(n), np.empty(n)
        function(slab, n, nvir, n * nvir, nvir, eps_vir, e_pair, os_sums, x_sums)
        return os_sums, x_sums

    return run


def numpy_pass(eps_vir: np.ndarray) -> EnergyPass:
    """The energy expression as whole-array operations, apart from the GEMM."""

    def run(slab: np.ndarray, e_pair: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        nvir, n = len(eps_vir), len(e_pair)
        T = slab.reshape(nvir, n, nvir).transpose(1, 0, 2).astype(np.float64)
        weighted = T / (e_pair[:, None, None] - eps_vir[:, None] - eps_vir)
        return (weighted * T).sum((1, 2)), (weighted * T.transpose(0, 2, 1)).sum((1, 2))

    return run


def pair_kernel(dtype: str) -> jit.Library:
    """pair_energy.c compiled for slabs of `dtype`."""
    source = resources.files("trnqc.backends.cpu_kernels").joinpath("pair_energy.c").read_text()
    real = {"float64": "double", "float32": "float"}[dtype]
    vector, result = jit.Array("float64", ndim=1), jit.Array("float64", ndim=1, written=True)
    arguments = (jit.Array(dtype, ndim=2), "int64", "int64", "int64", "int64", vector, vector, result, result)
    return jit.compile_c(
        source, {"pair_energies": jit.Signature(arguments)}, name="pair_energy", defines=(f"REAL={real}",)
    )
