"""Kernels of trnblas, unmodified, through its public functions and its switch to the simulator.

The reference is the same formula in fp64 by NumPy. The runs are lenient, because the kernels multiply into PSUM tiles
that were set to zero before, which the vendor leaves undefined on trn1 and trn2, and assign to tensors.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from scripts.conformance.cases import Case
from scripts.conformance.examples import normal

CASES: list[Case] = []


def _case(kernel: str, shapes: str, rtol: float = 1e-5) -> Callable[[Any], Any]:
    def register(run: Callable[[Any, Any], tuple[Any, Any]]) -> Any:
        def with_package(root: Path) -> tuple[list[Any], list[Any]]:
            got, want = run(_imported(root), importlib.import_module("torch").from_numpy)
            return [got], [want]

        CASES.append(Case("trnblas", kernel, shapes, "trn2", with_package, rtol=rtol, rules="warn"))
        return run

    return register


def _imported(root: Path) -> Any:
    """Import trnblas so that it simulates its kernels and never replaces them by PyTorch."""
    os.environ |= {"TRNBLAS_USE_SIMULATOR": "1", "TRNBLAS_REQUIRE_NKI": "1"}
    sys.path.insert(0, str(root))
    package = importlib.import_module("trnblas")
    importlib.import_module("trnblas.nki").set_backend("nki")
    return package


@_case("gemm", "256x128x256")
def _gemm(trnblas: Any, tensor: Any) -> tuple[Any, Any]:
    a, b = normal(256, 128), normal(128, 256, seed=1)
    return trnblas.gemm(1.0, tensor(a), tensor(b)), np.float64(a) @ b


@_case("batched_gemm", "2 of 128x128x128")
def _batched(trnblas: Any, tensor: Any) -> tuple[Any, Any]:
    a, b = normal(2, 128, 128), normal(2, 128, 128, seed=1)
    return trnblas.batched_gemm(1.0, tensor(a), tensor(b)), np.float64(a) @ b


@_case("syrk", "128x64")
def _syrk(trnblas: Any, tensor: Any) -> tuple[Any, Any]:
    a = normal(128, 64)
    return trnblas.syrk(1.0, tensor(a)), np.float64(a) @ a.T


@_case("trsm", "256x256, 32 right sides", rtol=1e-4)
def _trsm(trnblas: Any, tensor: Any) -> tuple[Any, Any]:
    lower = np.tril(normal(256, 256)) / 16 + 4 * np.eye(256, dtype=np.float32)
    b = normal(256, 32, seed=1)
    return trnblas.trsm(1.0, tensor(lower), tensor(b), uplo="lower"), np.linalg.solve(np.float64(lower), b)


def _orbitals(occupied: int, virtual: int) -> tuple[np.ndarray, np.ndarray]:
    return np.linspace(-1.0, -0.2, occupied, dtype=np.float32), np.linspace(0.2, 1.0, virtual, dtype=np.float32)


def _pair_energies(factors: np.ndarray, occ: np.ndarray, vir: np.ndarray) -> np.ndarray:
    """Σ_ab T_ij[a,b] (2 T_ij[a,b] − T_ij[b,a]) / (ε_i + ε_j − ε_a − ε_b) for every pair."""
    t = np.einsum("iap,jbp->ijab", np.float64(factors), factors)
    e = occ[:, None, None, None] + occ[:, None, None] - vir[:, None] - vir
    return (t * (2 * t - t.transpose(0, 1, 3, 2)) / e).sum((2, 3))


@_case("mp2_energy", "2 occupied, 256 virtual, 8 auxiliary")
def _reduction(trnblas: Any, tensor: Any) -> tuple[Any, Any]:
    factors, (occ, vir) = normal(2, 256, 8), _orbitals(2, 256)
    flat = tensor(factors.reshape(-1, 8))
    got = importlib.import_module("trnblas.nki").nki_mp2_energy(flat @ flat.T, tensor(occ), tensor(occ), tensor(vir))
    return got, _pair_energies(factors, occ, vir).sum()


@_case("fused_gemm_energy", "256 virtual, 128 auxiliary")
def _fused(trnblas: Any, tensor: Any) -> tuple[Any, Any]:
    factors, (occ, vir) = normal(2, 256, 128), _orbitals(2, 256)
    fused = importlib.import_module("trnblas.nki").nki_fused_gemm_energy
    got = fused(tensor(factors[0]), tensor(factors[1]), float(occ[0]), float(occ[1]), tensor(vir))
    return got, _pair_energies(factors, occ, vir)[0, 1]


@_case("batched_pair_energy", "3 occupied, 128 virtual, 128 auxiliary")
def _batched_pairs(trnblas: Any, tensor: Any) -> tuple[Any, Any]:
    factors, (occ, vir) = normal(3, 128, 128), _orbitals(3, 128)
    batched = importlib.import_module("trnblas.nki.dispatch").nki_batched_pair_energy
    return batched(tensor(factors), tensor(occ), tensor(vir)), _pair_energies(factors, occ, vir).sum()
