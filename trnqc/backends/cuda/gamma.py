"""Γ of MP2 on GPUs.

B -> panels -> blocks of pairs: T by cuBLAS -> amplitudes W in place of T, by a generated program (programs.py)
  -> for bf16, the parts of W (packing.py) -> Γ of both panels by cuBLAS -> added up by the caller in fp64
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from trnqc.backends.cuda.blocks import Buffers, FactorShape, PanelPair, Panels, plan_blocks
from trnqc.backends.cuda.formats import DEVICE_FORMATS, DeviceFormat
from trnqc.backends.cuda.packing import split_recipe
from trnqc.backends.cuda.products import DeviceMatrix, Gpu
from trnqc.backends.cuda.programs import tiles_of
from trnqc.backends.cuda.share import DeviceFactors, Share, SharedJob, described
from trnqc.backends.cuda.threads import WAITING, on_threads
from trnqc.backends.gamma import AddRows, FactorSet, GammaOptions
from trnqc.errors import MemoryLimit
from trnqc.jit.device import Argument, BuiltKernel, DeviceArray

Part = tuple[int, slice, np.ndarray]
"""A side, orbitals and Γ of them, as `AddRows` takes them."""


@dataclass(frozen=True, eq=False)
class CudaGamma:
    """All pairs of one set of orbitals, or of a left and a right set, on some GPUs."""

    gpus: tuple[Gpu, ...]
    left: FactorSet
    right: FactorSet | None
    options: GammaOptions

    def run(self, add: AddRows) -> str:
        """Compute Γ and return what ran."""
        job = self._job()
        done, total = 0, job.plan.shape.nocc[0] * job.plan.shape.nocc[1] * (1 if self.right is None else 2)
        shares = zip(self.gpus, job.plan.shares(len(self.gpus)))
        for parts, pairs in on_threads([_densities(gpu, job, self.options, lefts) for gpu, lefts in shares]):
            for part in parts:
                add(*part)
            done += pairs
            if self.options.progress is not None:
                self.options.progress(done, total)
        return described(self.gpus, job.plan)

    def _job(self) -> SharedJob:
        form = DEVICE_FORMATS[self.options.precision]
        first = DeviceFactors(self.left.B, self.left.eps_occ, self.left.eps_vir)
        second = first if self.right is None else DeviceFactors(self.right.B, self.right.eps_occ, self.right.eps_vir)
        (m, nvir, naux), (n, others, _) = (s.B.shape for s in (first, second))
        shape = FactorShape((m, n), (nvir, others), naux, self.right is None)
        buffers = Buffers(form, blocks=1, densities=True, amplitudes=4 if form.halves else 0)
        plan = plan_blocks(shape, buffers, [gpu.device for gpu in self.gpus], self._panel_width(shape, form))
        spin = "same" if self.right is None else "opposite"
        return SharedJob((first, second), plan, buffers, f"{spin}_spin_amplitudes")

    def _panel_width(self, shape: FactorShape, form: DeviceFormat) -> int | None:
        """The orbitals of a panel that fit the memory of the host."""
        limit, nvir = self.options.max_memory, max(shape.nvir)
        if limit is None:
            return None
        orbital = 8 * nvir * shape.naux
        # Γ of both panels as it is downloaded and in fp64, of the results that wait and of the next one.
        densities = 2 * nvir * shape.naux * (form.result.itemsize + 8) * (WAITING + 1)
        needed = len(self.gpus) * (orbital + densities)
        if needed > limit:
            raise MemoryLimit(
                f"Γ of one pair of orbitals needs {needed / 1e6:.4g} MB besides the factors, the limit is "
                f"{limit / 1e6:.4g} MB: raise the limit"
            )
        return int(limit // needed)


def _densities(
    gpu: Gpu, job: SharedJob, options: GammaOptions, lefts: Sequence[slice]
) -> Iterator[tuple[list[Part], int]]:
    """Γ of all pairs of some left panels on one GPU, and numbers of ordered pairs, a pair of panels at a time."""
    if not lefts:
        return
    with Share(gpu, job) as share:
        densities = _Densities(share, options)
        for left, right in job.plan.panel_pairs(lefts):
            alone = job.plan.shape.triangle and left == right
            for block in job.plan.blocks(left, right, lower=False):
                densities.add_block((left, right), block, alone)
            pairs = (left.stop - left.start) * (right.stop - right.start)
            yield densities.parts((left, right), alone), pairs if alone else 2 * pairs


class _Densities:
    """Γ of a pair of panels in the memory of a GPU."""

    def __init__(self, share: Share, options: GammaOptions) -> None:
        plan, self.share, self.form = share.job.plan, share, share.form
        self.nvir, self.naux, self.triangle = plan.shape.nvir, plan.shape.naux, plan.shape.triangle
        (self.memory,), self.energies = share.integral_buffers(), share.energies()
        self.weights = {"direct": options.direct, "exchange": options.exchange}
        self.program = share.build()
        self.sums = [share.zeros(plan.panel * n * self.naux, dtype=self.form.result) for n in self.nvir]
        self.words, self.split = self._splitting()

    def _splitting(self) -> tuple[list[DeviceArray], BuiltKernel | None]:
        """Memory for the parts of the amplitudes and the program that makes them, where they are bf16 numbers."""
        if not self.form.halves:
            return [], None
        words = [self.share.zeros(-(-self.memory.shape[0] // 2), dtype=np.int32) for _ in range(2)]
        return words, self.share.device.build(split_recipe(self.share.lanes), self.share.lanes)

    def add_block(self, panels: Panels, block: PanelPair, alone: bool) -> None:
        """Queue all steps of one block of pairs; `alone` says that both panels are the same."""
        share, stream = self.share, self.share.stream(0)
        T = share.integrals(panels, block, self.memory, stream)
        groups = tiles_of(self.nvir[0]) * block.shape[0] * block.shape[1]
        arguments = share.numbers(block) | self.energies | self.weights | {"t": self.memory}
        share.device.launch(self.program, groups, arguments, stream)
        amplitudes, inner = self._parts(T, stream), (block.rows.start - panels[0].start) * self.nvir[0]
        first = block.rows.start == panels[0].start
        numbers = range(len(amplitudes))
        for n, (x, y) in enumerate((x, y) for x in numbers for y in numbers if x + y < len(amplitudes)):
            right, left = share.factors(1, panels, block.columns, y), share.factors(0, panels, block.rows, y)
            own = DeviceMatrix(self.sums[0], T.rows, self.naux, self.naux, inner * self.naux)
            share.gpu.products.multiply(amplitudes[x], right, own, beta=float(n > 0), stream=stream)
            if not alone:
                other, add = DeviceMatrix(self.sums[1], T.columns, self.naux, self.naux), n > 0 or not first
                share.gpu.products.multiply(
                    amplitudes[x], left, other, transpose=(True, False), beta=float(add), stream=stream
                )

    def _parts(self, T: DeviceMatrix, stream: int) -> list[DeviceMatrix]:
        """The amplitudes in the format of the operands, the largest part first."""
        if self.split is None:
            return [T]
        words = -(-T.rows * T.stride // 2)
        arrays: dict[str, Argument] = {"words": words, "x": self.memory, "high": self.words[0], "low": self.words[1]}
        self.share.device.launch(self.split, -(-words // self.share.lanes), arrays, stream)
        return [
            DeviceMatrix(memory, T.rows, T.columns, T.stride, numbers=self.form.operand)
            for memory in self.words[: len(self.form.parts)]
        ]

    def parts(self, panels: Panels, alone: bool) -> list[Part]:
        """Γ of both panels, or of one that is alone, on the host."""
        sides = (0,) if alone else (0, 1)
        return [(0 if self.triangle else side, panels[side], self._downloaded(side, panels[side])) for side in sides]

    def _downloaded(self, side: int, panel: slice) -> np.ndarray:
        values = self.share.device.download(self.sums[side]).astype(np.float64, copy=False)
        return values.reshape(-1, self.nvir[side], self.naux)[: panel.stop - panel.start]
