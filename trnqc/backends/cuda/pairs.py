"""The MP2 pair step on GPUs.

B -> panels, converted to the format of the precision on the GPU (share.py, packing.py)
  -> blocks of pairs within the memory of each GPU (blocks.py)
  -> T by cuBLAS (products.py) -> sums of each pair by a generated program (programs.py)

Each GPU has a thread of its own, which loads panels while the GPU computes. The energy expression is a
program of its own, whether the caller wants it fused with the products or not.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trnqc.backends.cuda.blocks import Buffers, FactorShape, PanelPair, Panels, plan_blocks
from trnqc.backends.cuda.formats import DEVICE_FORMATS
from trnqc.backends.cuda.products import Gpu
from trnqc.backends.cuda.programs import tiles_of
from trnqc.backends.cuda.share import DeviceFactors, Share, SharedJob, described
from trnqc.backends.cuda.threads import on_threads
from trnqc.backends.pair_step import PairOptions
from trnqc.errors import MemoryLimit
from trnqc.types import PairEnergies

# Blocks of T at once on a GPU: while a program reads one, the product of the next one is computed.
BLOCKS = 2


@dataclass(frozen=True, eq=False)
class CudaPairStep:
    """The pair step on GPUs, see `trnqc.backends.pair_step.PairStep`."""

    gpus: tuple[Gpu, ...]
    options: PairOptions
    fused = False

    def triangle(
        self, B: Any, eps_occ: np.ndarray, eps_vir: np.ndarray, max_memory: float | None = None
    ) -> PairEnergies:
        orbitals, (nocc, nvir, naux) = DeviceFactors(B, eps_occ, eps_vir), B.shape
        held = 8 * B.size if isinstance(B, np.ndarray) and not isinstance(B, np.memmap) else 0
        needed = held + self.block_bytes(nocc, nocc, nvir, naux)
        if max_memory is not None and needed > max_memory:
            raise MemoryLimit(
                f"the pair step needs {needed / 1e6:.4g} MB on the host ({held / 1e6:.4g} MB of it for B), but the "
                f"limit is {max_memory / 1e6:.4g} MB: raise the limit, or keep B on disk"
            )
        (direct, exchange), ran_on = self._sums((orbitals, orbitals), "same_spin_energies", True)
        # T of i with itself is symmetric, but for the rounding of the product.
        np.fill_diagonal(exchange, direct.diagonal())
        twice = 2.0 - np.eye(nocc)
        return PairEnergies(np.tril(twice * direct), np.tril(twice * (direct - exchange)), ran_on)

    def block(
        self,
        left: np.ndarray,
        right: np.ndarray,
        eps_left: np.ndarray,
        eps_right: np.ndarray,
        eps_vir: np.ndarray,
    ) -> PairEnergies:
        sets = DeviceFactors(left, eps_left, eps_vir), DeviceFactors(right, eps_right, eps_vir)
        (direct, exchange), ran_on = self._sums(sets, "same_spin_energies", False)
        return PairEnergies(2.0 * direct, 2.0 * (direct - exchange), ran_on)

    def block_bytes(self, m: int, n: int, nvir: int, naux: int) -> int:
        """See `PairStep.block_bytes`."""
        return self.opposite_spin_bytes(m, n, (nvir, nvir), naux)

    def opposite_spin(
        self,
        left: np.ndarray,
        right: np.ndarray,
        eps_occ: tuple[np.ndarray, np.ndarray],
        eps_vir: tuple[np.ndarray, np.ndarray],
    ) -> PairEnergies:
        sets = DeviceFactors(left, eps_occ[0], eps_vir[0]), DeviceFactors(right, eps_occ[1], eps_vir[1])
        (direct, exchange), ran_on = self._sums(sets, "opposite_spin_energies", False)
        return PairEnergies(direct, exchange, ran_on)

    def opposite_spin_bytes(self, m: int, n: int, nvir: tuple[int, int], naux: int) -> int:
        """See `PairStep.opposite_spin_bytes`: one orbital for each GPU, and the sums of each pair and its tiles."""
        return 8 * len(self.gpus) * max(nvir) * naux + 16 * m * n * (2 * tiles_of(max(nvir)) + 1)

    def _sums(self, sets: tuple[DeviceFactors, DeviceFactors], program: str, triangle: bool) -> tuple[np.ndarray, str]:
        """Both sums of the program for all pairs, [2, m, n], and what ran. A triangle has only pairs i >= j."""
        (m, nvir, naux), (n, others, _) = (s.B.shape for s in sets)
        shape = FactorShape((m, n), (nvir, others), naux, triangle)
        buffers = Buffers(DEVICE_FORMATS[self.options.precision], BLOCKS)
        plan = plan_blocks(shape, buffers, [gpu.device for gpu in self.gpus])
        job, sums = SharedJob(sets, plan, buffers, program), np.zeros((2, m, n))
        shares = zip(self.gpus, plan.shares(len(self.gpus)))
        work = [PairShare(gpu, job, sums).run(lefts) for gpu, lefts in shares]
        done = 0
        for pairs in on_threads(work):
            done += pairs
            if self.options.progress is not None:
                self.options.progress(done, shape.pairs)
        return sums, described(self.gpus, plan)


@dataclass(frozen=True, eq=False)
class PairShare:
    """The pairs of one GPU: sums over T of each pair, which are written to `sums` [2, m, n]."""

    gpu: Gpu
    job: SharedJob
    sums: np.ndarray

    def run(self, lefts: Sequence[slice]) -> Iterator[int]:
        """Compute the pairs of some left panels; yields the numbers of pairs that have been computed."""
        plan = self.job.plan
        blocks = [(pair, block) for pair in plan.panel_pairs(lefts) for block in plan.blocks(*pair, lower=True)]
        if not blocks:
            return
        with Share(self.gpu, self.job) as share:
            yield from self._launched(share, blocks)

    def _launched(self, share: Share, blocks: Sequence[tuple[Panels, PanelPair]]) -> Iterator[int]:
        """Launch all blocks, each on the next stream, whose last block must have ended, and keep their sums."""
        device, shape = share.device, self.job.plan.shape
        buffers, energies, built = share.integral_buffers(), share.energies(), share.build()
        tiles = tiles_of(shape.nvir[0])
        groups = [tiles * block.shape[0] * block.shape[1] for _, block in blocks]
        places = np.cumsum([0, *groups])
        out = share.zeros(int(places[-1]), 2, dtype=np.float64)
        for n, (panels, block) in enumerate(blocks):
            slot, stream = n % len(buffers), share.stream(n)
            share.load(panels)  # While the device works on the last blocks.
            device.synchronize(stream)
            if n >= len(buffers):
                yield blocks[n - len(buffers)][1].pairs(shape.triangle)
            share.integrals(panels, block, buffers[slot], stream)
            arguments = share.numbers(block) | energies | {"t": buffers[slot], "out": out, "place": int(places[n])}
            device.launch(built, groups[n], arguments, stream)
        sums = device.download(out)
        for n, (_, block) in enumerate(blocks):
            of_a_block = sums[places[n] : places[n + 1]].reshape(*block.shape, tiles, 2).sum(axis=2)
            self.sums[:, block.rows, block.columns] = np.moveaxis(of_a_block, -1, 0)
        yield sum(block.pairs(shape.triangle) for _, block in blocks[-len(buffers) :])
