"""The MP2 energy expression for a slab of integrals T: compiled code in one pass, or NumPy operations."""

from __future__ import annotations

import functools
from collections.abc import Callable

import numpy as np

from trnqc import jit
from trnqc.backends.cpu.pair_products import C_TYPES, Slab, integers, source_of

EnergyPass = Callable[[Slab, np.ndarray], tuple[np.ndarray, np.ndarray]]
"""Takes T of n pairs and e_pair[n] = e_i + e_j. Returns for each pair the sums over a, b of T^2 / D and of T T^T / D.

D[a, b] = e_pair - e_a - e_b. All energies are in Hartree.
"""


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


def compiled_opposite_pass(eps_vir: tuple[np.ndarray, np.ndarray], dtype: np.dtype | type) -> EnergyPass:
    """The energy expression of pairs of opposite spin by compiled code, without exchange. Raises CompilerError."""
    function = energy_library(np.dtype(dtype).name).opposite_spin_energies
    rows, columns = eps_vir

    def run(slab: Slab, e_pair: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        n = len(e_pair)
        os_sums = np.empty(n)
        stride = slab.data.shape[1]
        function(slab.data, n, len(rows), len(columns), stride, slab.column, rows, columns, e_pair, os_sums)
        return os_sums, np.zeros(n)

    return run


def numpy_opposite_pass(eps_vir: tuple[np.ndarray, np.ndarray]) -> EnergyPass:
    """The energy expression of pairs of opposite spin as whole-array operations, after the product."""
    e_vir, columns = eps_vir[0][:, None] + eps_vir[1], len(eps_vir[1])

    def run(slab: Slab, e_pair: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        n = len(e_pair)
        os_sums = np.empty(n)
        for j in range(n):
            T = slab.data[:, j * columns : (j + 1) * columns].astype(np.float64)
            os_sums[j] = (T * T / (e_pair[j] - e_vir)).sum()
        return os_sums, np.zeros(n)

    return run


def numpy_pass(eps_vir: np.ndarray) -> EnergyPass:
    """The energy expression as operations of NumPy on whole arrays. T must be complete."""

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
    """The library compiled from pair_energy.c for T of a dtype."""
    slab = jit.Parameter("t", jit.TYPES[dtype], array=True, ndim=2)

    def vectors(*names: str, written: bool = False) -> tuple[jit.Parameter, ...]:
        return tuple(jit.Parameter(name, "f64", array=True, ndim=1, written=written) for name in names)

    closed_shell = (
        slab,
        *integers("pairs", "nvir", "stride", "column", "symmetric"),
        *vectors("e_vir", "e_pair"),
        *vectors("os", "x", written=True),
    )
    opposite_spin = (
        slab,
        *integers("pairs", "rows", "columns", "stride", "column"),
        *vectors("e_row", "e_column", "e_pair"),
        *vectors("os", written=True),
    )
    signatures = [
        jit.Signature("pair_energies", closed_shell),
        jit.Signature("opposite_spin_energies", opposite_spin),
    ]
    defines = (f"REAL={C_TYPES[dtype]}",)
    return jit.compile_c(source_of("pair_energy.c"), signatures, name="pair_energy", defines=defines)
