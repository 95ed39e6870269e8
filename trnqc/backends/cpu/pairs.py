"""The MP2 pair step on the CPU: products and energies, compiled and in one pass, or apart by NumPy."""

from __future__ import annotations

from typing import Any

import numpy as np

from trnqc.backends.base import PairOptions
from trnqc.backends.cpu.formats import FORMATS
from trnqc.backends.cpu.pair_blocks import plan_block
from trnqc.backends.cpu.pair_energies import EnergyPass, compiled_pass, numpy_pass
from trnqc.backends.cpu.pair_loop import block_sums, triangle_sums
from trnqc.backends.cpu.pair_products import make_products
from trnqc.host.threads import default_threads
from trnqc.types import PairEnergies


def mp2_pairs(
    B: Any, eps_occ: np.ndarray, eps_vir: np.ndarray, max_memory: float | None, options: PairOptions
) -> PairEnergies:
    """See `trnqc.backends.base.Backend.mp2_pairs`."""
    threads = options.threads or default_threads()
    eps_occ, energies = _fp64(eps_occ), _energy_pass(eps_vir, options)
    products = make_products(B, options.precision, compiled=options.fused)
    os_sums, x_sums = triangle_sums(
        B, eps_occ, products, energies, threads=threads, max_memory=max_memory, progress=options.progress
    )
    twice = 2.0 - np.eye(len(eps_occ))
    return PairEnergies(twice * os_sums, twice * (os_sums - x_sums), _ran_on(products.label, options.fused, threads))


def mp2_pair_block(
    left: np.ndarray,
    right: np.ndarray,
    eps_left: np.ndarray,
    eps_right: np.ndarray,
    eps_vir: np.ndarray,
    options: PairOptions,
) -> PairEnergies:
    """See `trnqc.backends.base.Backend.mp2_pair_block`."""
    threads = options.threads or default_threads()
    eps_left, eps_right, energies = _fp64(eps_left), _fp64(eps_right), _energy_pass(eps_vir, options)
    rows, columns = (make_products(x, options.precision, compiled=options.fused) for x in (left, right))
    os_sums, x_sums = block_sums(
        rows, columns, eps_left, eps_right, energies, threads=threads, progress=options.progress
    )
    return PairEnergies(2.0 * os_sums, 2.0 * (os_sums - x_sums), _ran_on(rows.label, options.fused, threads))


def pair_block_bytes(m: int, n: int, nvir: int, naux: int, options: PairOptions) -> int:
    """See `trnqc.backends.base.Backend.pair_block_bytes`."""
    threads = options.threads or default_threads()
    B = np.broadcast_to(0.0, (m, nvir, naux))
    products = make_products(B, options.precision, compiled=options.fused)
    return plan_block(m, n, products, threads=threads).bytes + threads * products.scratch_bytes


def _fp64(eps: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(eps, dtype=np.float64)


def _energy_pass(eps_vir: np.ndarray, options: PairOptions) -> EnergyPass:
    if options.fused:
        return compiled_pass(_fp64(eps_vir), FORMATS[options.precision].dtype)
    return numpy_pass(_fp64(eps_vir))


def _ran_on(products: str, fused: bool, threads: int) -> str:
    how = "compiled energy pass" if fused else "energy expression apart in NumPy"
    return f"{products}, {how}, {threads} threads"
