"""What every backend that runs NKI kernels shares: factors -> packed operands -> launches -> pair energies.

A ``Device`` puts arrays where kernels can read them and calls kernels there; both NKI backends have one.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

import numpy as np

from nki_kernels import mp2_plan as plan
from nki_kernels.gemm import gemm
from nki_kernels.mp2_energy import mp2_energy
from trnqc.backends.base import Progress
from trnqc.errors import MemoryLimit
from trnqc.tuning.choose import choose
from trnqc.tuning.instruments import device_identity
from trnqc.tuning.kernels import mp2_tiles
from trnqc.types import PairEnergies

PRECISIONS = ("fp32", "bf16x3", "bf16")  # the machine has no fp64
COLUMNS_A_GEMM = 8  # j factors in one unfused GEMM


class Device(Protocol):
    """Where kernels run; pairs_a_launch: enough to hide a launch behind its work, few enough to show progress."""

    cores: int
    target: str  # generation, "trn1", "trn2" or "trn3"
    pairs_a_launch: int

    def put(self, array: np.ndarray) -> Any:
        """The array in the device's memory."""

    def call(self, kernel: Callable, *args: Any) -> np.ndarray:
        """Runs a kernel over arrays made by ``put`` and integers; returns its result as a host array."""


def _check_memory(needed: float, max_memory: float | None, what: str) -> None:
    if max_memory is not None and needed > max_memory:
        raise MemoryLimit(
            f"{what} needs {needed / 1e6:.4g} MB, the limit is {max_memory / 1e6:.4g} MB: raise the limit"
        )


def mp2_pairs(
    device: Device,
    B: Any,
    eps_occ: np.ndarray,
    eps_vir: np.ndarray,
    *,
    precision: str,
    fused: bool,
    max_memory: float | None,
    progress: Progress | None,
    ran_on: str,
) -> PairEnergies:
    """Pair energies of B[nocc, nvir, naux] (fp64, Hartree^1/2): fused kernel, or GEMM and host expression apart."""
    eps_occ, eps_vir = np.asarray(eps_occ), np.asarray(eps_vir)
    if not fused:
        return PairEnergies(*_apart(device, B, eps_occ, eps_vir, precision, max_memory, progress), ran_on)
    shape = dict(zip(("nocc", "nvir", "naux"), B.shape))
    choice = choose("mp2_energy", shape, precision, device.target, device_identity())
    tiles = mp2_tiles(shape, choice.constants)
    os, ss = _fused(device, B, eps_occ, eps_vir, precision, tiles, max_memory, progress)
    return PairEnergies(os, ss, f"{ran_on}; {choice.note}")


def _fused(
    device: Device,
    B: Any,
    eps_occ: np.ndarray,
    eps_vir: np.ndarray,
    precision: str,
    tiles: plan.Mp2Tiles,
    max_memory: float | None,
    progress: Progress | None,
) -> tuple[np.ndarray, np.ndarray]:
    nocc, nvir, naux = B.shape
    itemsize = 2 if precision == "bf16" else 4  # bytes of all parts of one element
    packed = nocc * tiles.nblk * plan.P * tiles.nk * tiles.block
    _check_memory(8.0 * B.size + packed * itemsize, max_memory, "packing B for the NKI kernel")
    bt = device.put(plan.pack_factors(B, tiles, precision))
    row, col = (device.put(x) for x in plan.pack_virtuals(eps_vir, tiles))
    os, ss = np.zeros((nocc, nocc)), np.zeros((nocc, nocc))
    done = 0
    for pairs, work in plan.launches(nocc, eps_occ, tiles, device.cores, device.pairs_a_launch):
        data = (device.put(x) for x in (work.e_pair, work.rows, work.bounds))
        out = device.call(mp2_energy, bt, row, col, *data, nvir, naux, tiles.kchunk)
        i, j = pairs.max(axis=1), pairs.min(axis=1)
        os[i, j], ss[i, j] = plan.sum_lanes(out, work, len(pairs))
        done += len(pairs)
        if progress is not None:
            progress(done, nocc * (nocc + 1) // 2)
    return os, ss


def _apart(
    device: Device,
    B: Any,
    eps_occ: np.ndarray,
    eps_vir: np.ndarray,
    precision: str,
    max_memory: float | None,
    progress: Progress | None,
) -> tuple[np.ndarray, np.ndarray]:
    """GEMM kernel into memory, then the energy expression on the host; every launch has the same shape."""
    nocc, nvir, naux = B.shape
    width = min(COLUMNS_A_GEMM, nocc)
    _check_memory(nvir * width * (nvir + naux) * 8.0, max_memory, "one product block of the unfused route")
    delta = eps_vir[:, None] + eps_vir
    os, ss = np.zeros((nocc, nocc)), np.zeros((nocc, nocc))
    for i in range(nocc):
        left = device.put(plan.split(B[i].T, precision))
        for start in range(0, i + 1, width):
            first = min(start, nocc - width)
            right = device.put(plan.split(B[first : first + width].reshape(-1, naux).T, precision))
            T = device.call(gemm, left, right).astype(np.float64).reshape(nvir, width, nvir)
            for j in range(first, min(first + width, i + 1)):
                os[i, j], ss[i, j] = pair_expression(T[:, j - first], eps_occ[i] + eps_occ[j] - delta, i == j)
        if progress is not None:
            progress((i + 1) * (i + 2) // 2, nocc * (nocc + 1) // 2)
    return os, ss


def pair_expression(T: np.ndarray, delta: np.ndarray, same: bool) -> tuple[float, float]:
    """(E_os, E_ss) of a pair from T[nvir, nvir] and its denominators, weighted by 2 - delta_ij; Hartree."""
    R = T / delta
    os, exchange = np.vdot(R, T), np.vdot(R, T.T)
    weight = 1.0 if same else 2.0
    return weight * os, weight * (os - exchange)
