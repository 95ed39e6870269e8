"""The MP2 energy expression over a slab of integrals T: compiled in one pass, or as NumPy operations."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from trnqc import jit
from trnqc.backends.cpu.pair_products import C_TYPES, Slab, source_of

EnergyPass = Callable[[Slab, np.ndarray], tuple[np.ndarray, np.ndarray]]
"""T of n pairs, e_pair[n] = e_i + e_j -> for each pair the sums over a, b of T^2 / D and of T T^T / D, in Hartree."""


def compiled_pass(eps_vir: np.ndarray, dtype: np.dtype | type) -> EnergyPass:
    """The energy expression in one pass of compiled code (pair_energy.c). Raises CompilerError."""
    function = energy_library(np.dtype(dtype).name).pair_energies
    nvir = len(eps_vir)

    def run(slab: Slab, e_pair: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        n = len(e_pair)
        os_sums, x_sums = np.empty(n), np.empty(n)
        stride = slab.data.shape[1]
        function(slab.data, n, nvir, stride, slab.column, slab.symmetric, eps_vir, e_pair, os_sums, x_sums)
        return os_sums, x_sums

    return run


def numpy_pass(eps_vir: np.ndarray) -> EnergyPass:
    """The energy expression as whole-array operations on a full T, after the product."""

    def run(slab: Slab, e_pair: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        n, nvir = len(e_pair), len(eps_vir)
        sums = np.empty((2, n))
        for j in range(n):
            T = slab.data[:, j * nvir : (j + 1) * nvir].astype(np.float64)
            weighted = T / (e_pair[j] - eps_vir[:, None] - eps_vir)
            sums[:, j] = (weighted * T).sum(), (weighted * T.T).sum()
        return sums[0], sums[1]

    return run


@functools.cache
def energy_library(dtype: str) -> jit.Library:
    """The compiled pair_energy.c for slabs of `dtype`."""
    vector, result = jit.Array("float64", ndim=1), jit.Array("float64", ndim=1, written=True)
    n = "int64"
    arguments = (jit.Array(dtype, ndim=2), n, n, n, n, n, vector, vector, result, result)
    defines = (f"REAL={C_TYPES[dtype]}",)
    signatures = {"pair_energies": jit.Signature(arguments)}
    return jit.compile_c(source_of("pair_energy.c"), signatures, name="pair_energy", defines=defines)
