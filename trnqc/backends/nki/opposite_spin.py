"""The energies of pairs of opposite spin with NKI kernels.

factors of both spins -> packed operands -> launches of `mp2_energy`, or of `gemm` -> energies [m, n]
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nki_kernels import mp2_plan
from nki_kernels import opposite_spin_plan as plan
from nki_kernels.descriptors.descriptor import ITEMSIZE
from nki_kernels.precision.splits import split
from trnqc.backends.nki.device import NkiDevice
from trnqc.backends.pair_step import PairOptions

# Orbitals j in one product of the unfused route, whose integrals are held at once.
COLUMNS_A_GEMM = 8


def opposite_spin_bytes(nocc: tuple[int, int], nvir: tuple[int, int], naux: int, options: PairOptions) -> int:
    """Bytes that the pairs of opposite spin need on the host in addition to B."""
    if not options.fused:
        return 8 * min(COLUMNS_A_GEMM, nocc[1]) * nvir[1] * (nvir[0] + naux)
    tiles = plan.opposite_spin_tiles(nvir, naux, ITEMSIZE[options.precision])
    row = tiles.block * mp2_plan.P * tiles.joined.nk
    blocks = [count * per_orbital for count, per_orbital in zip(nocc, tiles.blocks)]
    # Packed factors, which are joined from those of each spin, and the temporaries of one orbital.
    return row * (2 * sum(blocks) * ITEMSIZE[options.precision] + 3 * 8 * max(tiles.blocks))


@dataclass(frozen=True, eq=False)
class OppositeSpinPairs:
    """All pairs of an orbital of the first with one of the second spin."""

    device: NkiDevice
    B: tuple[np.ndarray, np.ndarray]
    eps_occ: tuple[np.ndarray, np.ndarray]
    eps_vir: tuple[np.ndarray, np.ndarray]
    options: PairOptions

    def run(self) -> tuple[np.ndarray, str]:
        """Energies [m, n] in Hartree, and what computed them."""
        return (self._fused() if self.options.fused else self._apart()), self.device.label

    def _fused(self) -> np.ndarray:
        (m, *_), n = self.B[0].shape, len(self.B[1])
        nvir, naux = (self.B[0].shape[1], self.B[1].shape[1]), self.B[0].shape[2]
        tiles = plan.opposite_spin_tiles(nvir, naux, ITEMSIZE[self.options.precision])
        device, energies = self.device, np.zeros((m, n))
        operands = plan.pack_opposite_spin(self.B, self.eps_vir, tiles, self.options.precision)
        bt, row, col = (device.put(x) for x in operands)
        pairs = np.indices((m, n)).reshape(2, -1).T
        e_pair = np.add.outer(*self.eps_occ).ravel()
        capacity = min(device.pairs_a_launch, len(pairs))
        for start in range(0, len(pairs), capacity):
            part = pairs[start : start + capacity]
            of_part = e_pair[start : start + capacity]
            work = plan.opposite_spin_work(part, of_part, m, tiles, device.cores, capacity)
            data = (device.put(x) for x in (work.e_pair, work.rows, work.bounds))
            out = device.call("mp2_energy", bt, row, col, *data, tiles.joined.nvir, naux, tiles.kchunk)
            energies[tuple(part.T)] = mp2_plan.sum_lanes(out, work, len(part))[0]
            self._report(start + len(part))
        return energies

    def _apart(self) -> np.ndarray:
        """The GEMM kernel, then the energy expression on the host; every launch has the same shape."""
        (m, nvir, naux), (n, nvir_right, _) = (B.shape for B in self.B)
        width, e_vir = min(COLUMNS_A_GEMM, n), np.add.outer(*self.eps_vir)
        energies = np.zeros((m, n))
        for i in range(m):
            left = self.device.put(split(self.B[0][i].T, self.options.precision))
            for start in range(0, n, width):
                first = min(start, n - width)
                columns = self.B[1][first : first + width].reshape(-1, naux).T
                right = self.device.put(split(columns, self.options.precision))
                T = self.device.call("gemm", left, right).astype(np.float64)
                for j, t in enumerate(T.reshape(nvir, width, nvir_right).swapaxes(0, 1), start=first):
                    energies[i, j] = np.sum(t * t / (self.eps_occ[0][i] + self.eps_occ[1][j] - e_vir))
            self._report((i + 1) * n)
        return energies

    def _report(self, done: int) -> None:
        if self.options.progress is not None:
            self.options.progress(done, len(self.B[0]) * len(self.B[1]))
