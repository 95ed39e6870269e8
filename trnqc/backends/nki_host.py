"""What every backend that runs NKI kernels shares: factors -> packed operands -> launches -> pair energies.

A ``Device`` puts arrays where kernels can read them and calls kernels there; both NKI backends have one.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
    nocc, nvir, naux = B.shape
    if fused:
        needed = 8.0 * B.size + _packed_bytes(nocc, nvir, naux, precision, device.target)
        _check_memory(needed, max_memory, "packing B for the NKI kernel")
    else:
        _check_memory(_apart_bytes(nocc, nvir, naux), max_memory, "one product block of the unfused route")
    return _Pairs(device, B, np.asarray(eps_occ), np.asarray(eps_vir), precision, progress).run(fused, ran_on)


def mp2_pair_block(
    device: Device,
    left: np.ndarray,
    right: np.ndarray,
    eps_left: np.ndarray,
    eps_right: np.ndarray,
    eps_vir: np.ndarray,
    *,
    precision: str,
    fused: bool,
    progress: Progress | None,
    ran_on: str,
) -> PairEnergies:
    """[m, n] pair energies of rows left[m, nvir, naux] with rows right[n, nvir, naux], as orbitals that follow them."""
    n = len(right)
    B, eps_occ = np.concatenate((right, left)), np.concatenate((eps_right, eps_left))
    found = _Pairs(device, B, eps_occ, np.asarray(eps_vir), precision, progress, n).run(fused, ran_on)
    return PairEnergies(found.os[n:, :n], found.ss[n:, :n], found.ran_on)


def pair_block_bytes(m: int, n: int, nvir: int, naux: int, *, precision: str, fused: bool, target: str) -> int:
    """Bytes that `mp2_pair_block` allocates: both sets of rows as one array, and what is made of it for the device."""
    made = _packed_bytes(m + n, nvir, naux, precision, target) if fused else _apart_bytes(m + n, nvir, naux)
    return 8 * (m + n) * nvir * naux + made


def _packed_bytes(nocc: int, nvir: int, naux: int, precision: str, target: str) -> int:
    """B in all its parts as the kernel reads it, and the temporaries of packing one row."""
    tiles, _ = _tiles(nocc, nvir, naux, precision, target)
    row = tiles.nblk * plan.P * tiles.nk * tiles.block
    return row * (nocc * (2 if precision == "bf16" else 4) + 3 * 8)


def _apart_bytes(nocc: int, nvir: int, naux: int) -> int:
    return 8 * nvir * min(COLUMNS_A_GEMM, nocc) * (nvir + naux)


def _tiles(nocc: int, nvir: int, naux: int, precision: str, target: str) -> tuple[plan.Mp2Tiles, str]:
    """Tiles of the kernel's launch and a note that says where they come from."""
    shape = {"nocc": nocc, "nvir": nvir, "naux": naux}
    choice = choose("mp2_energy", shape, precision, target, device_identity())
    return mp2_tiles(shape, choice.constants), choice.note


@dataclass(frozen=True, eq=False)
class _Pairs:
    """Pairs of orbitals i and j <= i; with first > 0, of i >= first and j < first only."""

    device: Device
    B: Any
    eps_occ: np.ndarray
    eps_vir: np.ndarray
    precision: str
    progress: Progress | None
    first: int = 0

    def run(self, fused: bool, ran_on: str) -> PairEnergies:
        """[nocc, nocc], zero where no pair is computed."""
        if not fused:
            return PairEnergies(*self._apart(), ran_on)
        nocc, nvir, naux = self.B.shape
        tiles, note = _tiles(nocc, nvir, naux, self.precision, self.device.target)
        return PairEnergies(*self._fused(tiles), f"{ran_on}; {note}")

    @property
    def total(self) -> int:
        nocc, n = len(self.B), self.first
        return (nocc - n) * n if n else nocc * (nocc + 1) // 2

    def _fused(self, tiles: plan.Mp2Tiles) -> tuple[np.ndarray, np.ndarray]:
        nocc, nvir, naux = self.B.shape
        device = self.device
        bt = device.put(plan.pack_factors(self.B, tiles, self.precision))
        row, col = (device.put(x) for x in plan.pack_virtuals(self.eps_vir, tiles))
        os, ss = np.zeros((nocc, nocc)), np.zeros((nocc, nocc))
        done = 0
        chosen = plan.cross_pairs(self.first, nocc, tiles.group) if self.first else None
        for pairs, work in plan.launches(nocc, self.eps_occ, tiles, device.cores, device.pairs_a_launch, chosen):
            data = (device.put(x) for x in (work.e_pair, work.rows, work.bounds))
            out = device.call(mp2_energy, bt, row, col, *data, nvir, naux, tiles.kchunk)
            i, j = pairs.max(axis=1), pairs.min(axis=1)
            os[i, j], ss[i, j] = plan.sum_lanes(out, work, len(pairs))
            done += len(pairs)
            if self.progress is not None:
                self.progress(done, self.total)
        return os, ss

    def _apart(self) -> tuple[np.ndarray, np.ndarray]:
        """GEMM kernel into memory, then the energy expression on the host; every launch has the same shape."""
        nocc, nvir, naux = self.B.shape
        width = min(COLUMNS_A_GEMM, nocc)
        delta = self.eps_vir[:, None] + self.eps_vir
        os, ss = np.zeros((nocc, nocc)), np.zeros((nocc, nocc))
        done = 0
        for i in range(self.first, nocc):
            left = self.device.put(plan.split(self.B[i].T, self.precision))
            end = self.first or i + 1
            for start in range(0, end, width):
                first = min(start, nocc - width)
                right = self.device.put(plan.split(self.B[first : first + width].reshape(-1, naux).T, self.precision))
                T = self.device.call(gemm, left, right).astype(np.float64).reshape(nvir, width, nvir)
                for j in range(first, min(first + width, end)):
                    e_pair = self.eps_occ[i] + self.eps_occ[j]
                    os[i, j], ss[i, j] = pair_expression(T[:, j - first], e_pair - delta, i == j)
            done += end
            if self.progress is not None:
                self.progress(done, self.total)
        return os, ss


def pair_expression(T: np.ndarray, delta: np.ndarray, same: bool) -> tuple[float, float]:
    """(E_os, E_ss) of a pair from T[nvir, nvir] and its denominators, weighted by 2 - delta_ij; Hartree."""
    R = T / delta
    os, exchange = np.vdot(R, T), np.vdot(R, T.T)
    weight = 1.0 if same else 2.0
    return weight * os, weight * (os - exchange)
