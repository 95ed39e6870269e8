"""The share of one GPU in a job: panels of B, integrals T and orbital energies in its memory."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from trnqc.backends.cuda.blocks import Buffers, PanelPair, PanelPlan, Panels
from trnqc.backends.cuda.formats import aligned
from trnqc.backends.cuda.packing import Packer
from trnqc.backends.cuda.products import DeviceMatrix, Gpu
from trnqc.backends.cuda.programs import lanes_on, recipe
from trnqc.jit.device import BuiltKernel, DeviceArray


@dataclass(frozen=True, eq=False)
class DeviceFactors:
    """A `trnqc.backends.gamma.FactorSet`: factors B[nocc, nvir, naux], and orbital energies in Hartree."""

    B: Any
    eps_occ: np.ndarray
    eps_vir: np.ndarray


@dataclass(frozen=True)
class SharedJob:
    """What all GPUs of a job need to know.

    Attributes
    ----------
    sets
        The left and the right set of orbitals, which may be the same object.
    plan
        The division of the pairs.
    buffers
        The memory of the job on a GPU.
    program
        The program that is applied to T, one of `trnqc.backends.cuda.programs`.
    """

    sets: tuple[DeviceFactors, DeviceFactors]
    plan: PanelPlan
    buffers: Buffers
    program: str


def described(gpus: Sequence[Gpu], plan: PanelPlan) -> str:
    """What computed a result, and how the pairs were divided, in words."""
    number = f"{len(gpus)} GPUs: " if len(gpus) > 1 else ""
    products = "; ".join(gpu.products.label for gpu in gpus)
    return f"{number}{products}; generated kernels; {plan}"


class Share:
    """The memory of one GPU, from the beginning to the end of a job.

    Use it as a context manager, which frees the memory.
    """

    def __init__(self, gpu: Gpu, job: SharedJob) -> None:
        self.gpu, self.job, self.device, self.form = gpu, job, gpu.device, job.buffers.form
        self._held: list[DeviceArray] = []
        self.lanes = lanes_on(gpu.device)
        self._panels: OrderedDict[tuple[int, int], DeviceArray] = OrderedDict()

    def __enter__(self) -> Share:
        shape = self.job.plan.shape
        staging = self.zeros(max(shape.nvir) * shape.naux, dtype=np.float64)
        self._packer = Packer(self.device, self.form, self.lanes, staging)
        return self

    def __exit__(self, *_: object) -> None:
        self.device.synchronize()
        self.device.release(*self._panels.values(), *self._held)
        self._panels.clear()
        self._held.clear()

    def zeros(self, *shape: int, dtype: Any) -> DeviceArray:
        """An array that is freed at the end of the job."""
        self._held.append(self.device.zeros(*shape, dtype=dtype))
        return self._held[-1]

    def integral_buffers(self) -> list[DeviceArray]:
        """Memory of T for each stream, for the largest block."""
        plan = self.job.plan
        elements = plan.rows * plan.shape.nvir[0] * aligned(plan.panel * plan.shape.nvir[1])
        return [self.zeros(elements, dtype=self.form.result) for _ in range(self.job.buffers.blocks)]

    def energies(self) -> dict[str, DeviceArray]:
        """All orbital energies in the dtype of T, by the names of the parameters of programs."""
        left, right = self.job.sets
        values = {"e_row": left.eps_vir, "e_column": right.eps_vir, "e_left": left.eps_occ, "e_right": right.eps_occ}
        arrays = {name: self.device.upload(np.ascontiguousarray(x, self.form.result)) for name, x in values.items()}
        self._held += arrays.values()
        return arrays

    def build(self) -> BuiltKernel:
        """The program of the job, compiled for this GPU."""
        program = recipe(self.job.program, self.form.kind, self.lanes)
        return self.device.build(program, self.lanes, accumulate="plain")

    def stream(self, block: int) -> int:
        """The stream of the n-th block. Memory is copied on stream 0, which must not wait for kernels."""
        streams = self.device.streams - 1
        return 1 + block % min(streams, self.job.buffers.blocks) if streams else 0

    def numbers(self, block: PanelPair) -> dict[str, int]:
        """The arguments of a program that describe a block."""
        rows, columns = self.job.plan.shape.nvir
        i0, j0, stride = block.rows.start, block.columns.start, aligned(block.shape[1] * columns)
        return {"orbitals": block.shape[1], "rows": rows, "columns": columns, "stride": stride, "i0": i0, "j0": j0}

    def integrals(
        self, panels: tuple[slice, slice], block: PanelPair, memory: DeviceArray, stream: int
    ) -> DeviceMatrix:
        """Queue the product that computes T of a block of a pair of panels in `memory`."""
        left, right = self.load(panels)
        (rows, columns), (m, n) = self.job.plan.shape.nvir, block.shape
        out = DeviceMatrix(memory, m * rows, n * columns, aligned(n * columns))
        a = self.operand(0, left, panels[0], block.rows)
        b = self.operand(1, right, panels[1], block.columns)
        self.gpu.products.multiply(a, b, out, transpose=(False, True), stream=stream)
        return out

    def factors(self, side: int, panels: Panels, orbitals: slice, part: int) -> DeviceMatrix:
        """B[j b, Q] of some orbitals of one of two loaded panels, one of the parts of B."""
        nvir, naux = self.job.plan.shape.nvir[side], self.job.plan.shape.naux
        row, elements = self.form.row(naux), self.form.part(part, naux)
        start = (orbitals.start - panels[side].start) * nvir * row + elements.start
        memory = self.panel(side, panels[side])
        return DeviceMatrix(memory, (orbitals.stop - orbitals.start) * nvir, naux, row, start, self.form.operand)

    def operand(self, side: int, memory: DeviceArray, panel: slice, orbitals: slice) -> DeviceMatrix:
        """The rows of some orbitals of a panel, as the left (0) or right (1) operand of T."""
        nvir, naux = self.job.plan.shape.nvir[side], self.job.plan.shape.naux
        row, elements = self.form.row(naux), self.form.columns(side, naux)
        start = (orbitals.start - panel.start) * nvir * row + elements.start
        rows, columns = (orbitals.stop - orbitals.start) * nvir, elements.stop - elements.start
        return DeviceMatrix(memory, rows, columns, row, start, self.form.operand)

    def load(self, panels: Panels) -> tuple[DeviceArray, DeviceArray]:
        """Both panels of a pair, loaded if they are not in memory."""
        left = self.panel(0, panels[0])
        return left, self.panel(1, panels[1], kept=left)

    def panel(self, side: int, orbitals: slice, kept: DeviceArray | None = None) -> DeviceArray:
        """The panel of a set, loaded if it is not in memory. The least recently used one but `kept` makes room."""
        key = (0 if self.job.sets[0] is self.job.sets[1] else side, orbitals.start)
        if key not in self._panels:
            self._panels[key] = self._room(kept)
            self._packer.load(self.job.sets[side].B, orbitals, self._panels[key])
        self._panels.move_to_end(key)
        return self._panels[key]

    def _room(self, kept: DeviceArray | None) -> DeviceArray:
        """Memory for a panel: new, or that of the least recently used panel but `kept`."""
        plan, buffers = self.job.plan, self.job.buffers
        if len(self._panels) < plan.panels:
            words = plan.panel * buffers.panel(plan.shape) // self.form.stored.itemsize
            return self.device.zeros(words, dtype=self.form.stored)
        oldest = next(key for key, memory in self._panels.items() if memory is not kept)
        self.device.synchronize()
        return self._panels.pop(oldest)
