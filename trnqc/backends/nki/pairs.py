"""The MP2 pair step with NKI kernels: factors -> packed operands -> launches -> pair energies."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from nki_kernels import mp2_plan as plan
from nki_kernels.descriptors.descriptor import ITEMSIZE
from nki_kernels.descriptors.mp2_energy import tiles_of
from nki_kernels.precision.splits import split
from trnqc.backends.nki.device import NkiDevice
from trnqc.backends.nki.opposite_spin import OppositeSpinPairs, opposite_spin_bytes
from trnqc.backends.pair_step import PairOptions
from trnqc.errors import MemoryLimit
from trnqc.tuning.choice import choose
from trnqc.tuning.conditions import device_identity
from trnqc.types import PairEnergies

COLUMNS_A_GEMM = 8
"""The number of orbitals j in one GEMM of the unfused pair step."""


@dataclass(frozen=True)
class NkiPairStep:
    """The pair step on a device of NKI kernels, see `trnqc.backends.pair_step.PairStep`."""

    device: NkiDevice
    options: PairOptions

    @property
    def fused(self) -> bool:
        return self.options.fused

    def triangle(
        self, B: Any, eps_occ: np.ndarray, eps_vir: np.ndarray, max_memory: float | None = None
    ) -> PairEnergies:
        what = "packing B for the NKI kernel" if self.options.fused else "one block of products"
        needed = 8 * B.size * self.options.fused + self._bytes(*B.shape)
        if max_memory is not None and needed > max_memory:
            raise MemoryLimit(
                f"{what} needs {needed / 1e6:.4g} MB, but the limit is {max_memory / 1e6:.4g} MB: raise the limit"
            )
        return _Pairs(self.device, B, np.asarray(eps_occ), np.asarray(eps_vir), self.options).run()

    def block(
        self,
        left: np.ndarray,
        right: np.ndarray,
        eps_left: np.ndarray,
        eps_right: np.ndarray,
        eps_vir: np.ndarray,
    ) -> PairEnergies:
        """See `PairStep.block`. In the array of factors, the orbitals of `left` follow those of `right`."""
        n = len(right)
        B, eps_occ = np.concatenate((right, left)), np.concatenate((eps_right, eps_left))
        energies = _Pairs(self.device, B, eps_occ, np.asarray(eps_vir), self.options, n).run()
        return PairEnergies(energies.os[n:, :n], energies.ss[n:, :n], energies.ran_on)

    def block_bytes(self, m: int, n: int, nvir: int, naux: int) -> int:
        """See `PairStep.block_bytes`: both sets of orbitals in one array, and the operands of the device."""
        return 8 * (m + n) * nvir * naux + self._bytes(m + n, nvir, naux)

    def opposite_spin(
        self,
        left: np.ndarray,
        right: np.ndarray,
        eps_occ: tuple[np.ndarray, np.ndarray],
        eps_vir: tuple[np.ndarray, np.ndarray],
    ) -> PairEnergies:
        """See `trnqc.backends.pair_step.PairStep.opposite_spin`."""
        step = OppositeSpinPairs(self.device, (left, right), eps_occ, eps_vir, self.options)
        os, ran_on = step.run()
        return PairEnergies(os, np.zeros_like(os), ran_on)

    def opposite_spin_bytes(self, m: int, n: int, nvir: tuple[int, int], naux: int) -> int:
        """Operands of the device, or one product block of the unfused route."""
        return opposite_spin_bytes((m, n), nvir, naux, self.options)

    def _bytes(self, nocc: int, nvir: int, naux: int) -> int:
        if self.options.fused:
            return _packed_bytes(nocc, nvir, naux, self.options.precision, self.device.target)
        return 8 * nvir * min(COLUMNS_A_GEMM, nocc) * (nvir + naux)


def _packed_bytes(nocc: int, nvir: int, naux: int, precision: str, target: str) -> int:
    """Bytes of all parts of B in the layout of the kernel, and of the temporaries of packing one orbital."""
    tiles, _ = _tiles(nocc, nvir, naux, precision, target)
    row = tiles.nblk * plan.P * tiles.nk * tiles.block
    return row * (nocc * ITEMSIZE[precision] + 3 * 8)


def _tiles(nocc: int, nvir: int, naux: int, precision: str, target: str) -> tuple[plan.Mp2Tiles, str]:
    """The tile sizes of the launch, and a note that says where they come from."""
    shape = {"nocc": nocc, "nvir": nvir, "naux": naux}
    choice = choose("mp2_energy", shape, precision, target, device_identity())
    return tiles_of(shape, choice.constants), choice.note


@dataclass(frozen=True, eq=False)
class _Pairs:
    """All pairs of orbitals i and j <= i or, if `first` is positive, those with i >= first and j < first."""

    device: NkiDevice
    B: Any
    eps_occ: np.ndarray
    eps_vir: np.ndarray
    options: PairOptions
    first: int = 0

    def run(self) -> PairEnergies:
        """The energies [nocc, nocc], which are zero for pairs that are not computed."""
        if not self.options.fused:
            return PairEnergies(*self._unfused(), self.device.label)
        nocc, nvir, naux = self.B.shape
        tiles, note = _tiles(nocc, nvir, naux, self.options.precision, self.device.target)
        return PairEnergies(*self._fused(tiles), f"{self.device.label}; {note}")

    @property
    def total(self) -> int:
        nocc, n = len(self.B), self.first
        return (nocc - n) * n if n else nocc * (nocc + 1) // 2

    def _fused(self, tiles: plan.Mp2Tiles) -> tuple[np.ndarray, np.ndarray]:
        nocc, nvir, naux = self.B.shape
        device = self.device
        bt = device.put(plan.pack_factors(self.B, tiles, self.options.precision))
        row, col = (device.put(x) for x in plan.pack_virtuals(self.eps_vir, tiles))
        os, ss = np.zeros((nocc, nocc)), np.zeros((nocc, nocc))
        done = 0
        chosen = plan.cross_pairs(self.first, nocc, tiles.group) if self.first else None
        for pairs, work in plan.launches(nocc, self.eps_occ, tiles, device.cores, device.pairs_a_launch, chosen):
            data = (device.put(x) for x in (work.e_pair, work.rows, work.bounds))
            out = device.call("mp2_energy", bt, row, col, *data, nvir, naux, tiles.kchunk)
            i, j = pairs.max(axis=1), pairs.min(axis=1)
            os[i, j], ss[i, j] = plan.sum_lanes(out, work, len(pairs))
            done += len(pairs)
            if self.options.progress is not None:
                self.options.progress(done, self.total)
        return os, ss

    def _unfused(self) -> tuple[np.ndarray, np.ndarray]:
        """The GEMM kernel, followed by the energy expression on the host. All launches have the same shape."""
        nocc, nvir, naux = self.B.shape
        width = min(COLUMNS_A_GEMM, nocc)
        delta = self.eps_vir[:, None] + self.eps_vir
        os, ss = np.zeros((nocc, nocc)), np.zeros((nocc, nocc))
        done = 0
        for i in range(self.first, nocc):
            left = self.device.put(split(self.B[i].T, self.options.precision))
            end = self.first or i + 1
            for start in range(0, end, width):
                first = min(start, nocc - width)
                right = self.device.put(
                    split(self.B[first : first + width].reshape(-1, naux).T, self.options.precision)
                )
                T = self.device.call("gemm", left, right).astype(np.float64).reshape(nvir, width, nvir)
                for j in range(first, min(first + width, end)):
                    e_pair = self.eps_occ[i] + self.eps_occ[j]
                    os[i, j], ss[i, j] = pair_expression(T[:, j - first], e_pair - delta, i == j)
            done += end
            if self.options.progress is not None:
                self.options.progress(done, self.total)
        return os, ss


def pair_expression(T: np.ndarray, delta: np.ndarray, same: bool) -> tuple[float, float]:
    """E_os and E_ss of a pair in Hartree, with the weight 2 - delta_ij, from T and its denominators [nvir, nvir]."""
    R = T / delta
    os, exchange = np.vdot(R, T), np.vdot(R, T.T)
    weight = 1.0 if same else 2.0
    return weight * os, weight * (os - exchange)
