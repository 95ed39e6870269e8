"""Sizes and factors of the MP2 benchmarks on devices, and the errors that they allow."""

from __future__ import annotations

import numpy as np

# Correlated occupied and virtual orbitals, and auxiliary functions.
PRESETS = {
    "tiny": (4, 40, 70),
    "small": (16, 112, 384),
    "caffeine/cc-pVTZ": (37, 509, 1434),
    "medium": (64, 448, 1536),
    "large": (96, 672, 2304),
}
# Largest allowed error of either spin component, relative to the opposite-spin energy.
GATE = {"fp64": 1e-11, "fp32": 1e-6, "bf16x3": 1e-5, "bf16": 1e-2}


def factors(nocc: int, nvir: int, naux: int) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Random B with elements of (ia|jb) near 0.05 Hartree, and orbital energies with a gap."""
    rng = np.random.default_rng([nocc, nvir, naux])
    B = rng.standard_normal((nocc, nvir, naux)) * np.sqrt(0.05) / naux**0.25
    return B, np.sort(-0.4 - rng.random(nocc)), np.sort(0.1 + 2 * rng.random(nvir))


def needed_tflop(nocc: int, nvir: int, naux: int) -> float:
    """The operations of all products, each once, in 10^12."""
    rows = nocc * nvir
    return rows * (rows + 1) * naux / 1e12
