"""The division of pairs of orbitals among GPUs, and into blocks that fit their memory. This uses no arrays.

orbitals -> panels, which a GPU loads as a whole -> pairs of panels, shared among the GPUs
         -> blocks: some orbitals i of one panel with all orbitals j of the other one, whose integrals T fit at once

No GPU has to hold all of B: each loads the panels that its pairs need, and keeps as many as its memory takes.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from trnqc.backends.cuda.formats import ALIGNED, DeviceFormat
from trnqc.errors import MemoryLimit
from trnqc.jit.device import Device

# Part of the free memory that is used. Libraries and the driver need some of the rest.
USABLE = 0.9
# Bytes of T of one block: large enough for products at full speed, and small enough to leave memory for panels.
BLOCK_BYTES = 1 << 29
# Panels for each GPU where there are several. With so many, the work of all GPUs differs by a few per cent.
PANELS_A_GPU = 4
# Panels of a single GPU, which computes with the first ones while the next one is loaded, and the minimum panel size in
# bytes that amortises a launch.
PANELS_OF_ONE, LEAST_PANEL_BYTES = 8, 1 << 25
# Blocks of a panel with itself, in which pairs i < j of the last columns are computed in vain, and the minimum size of
# T of a block in bytes that amortises a launch.
BLOCKS_A_DIAGONAL, LEAST_BLOCK_BYTES = 8, 1 << 24


@dataclass(frozen=True)
class FactorShape:
    """The numbers of orbitals of both sets, and of auxiliary functions.

    Attributes
    ----------
    nocc, nvir
        Occupied and virtual orbitals of the left and of the right set.
    naux
        Auxiliary functions.
    triangle
        Whether both sets are the same one, of which only pairs i >= j are visited.
    """

    nocc: tuple[int, int]
    nvir: tuple[int, int]
    naux: int
    triangle: bool

    @property
    def pairs(self) -> int:
        m, n = self.nocc
        return m * (m + 1) // 2 if self.triangle else m * n


@dataclass(frozen=True)
class Buffers:
    """Which memory a job needs on a GPU.

    Attributes
    ----------
    form
        The format of B and T.
    blocks
        Blocks of T at once, one for each stream.
    densities
        Whether there is room for a panel of Γ of each set.
    amplitudes
        Bytes of the parts into which an amplitude is split, beside T.
    """

    form: DeviceFormat
    blocks: int
    densities: bool = False
    amplitudes: int = 0

    def panel(self, shape: FactorShape) -> int:
        """Bytes of one orbital in a panel of either set."""
        return max(self.form.orbital_bytes(nvir, shape.naux) for nvir in shape.nvir)

    def staging(self, shape: FactorShape) -> int:
        """Bytes of one orbital in fp64, on its way to a panel."""
        return 8 * max(shape.nvir) * shape.naux

    def fixed(self, shape: FactorShape) -> int:
        """Bytes of one orbital of both panels of a pair of panels, and of their Γ."""
        gamma = self.densities * sum(shape.nvir) * shape.naux * self.form.result.itemsize
        return 2 * self.panel(shape) + gamma

    def pair(self, shape: FactorShape) -> int:
        """Bytes of T of one pair, in all blocks."""
        # Rows of T are padded by less than ALIGNED elements for each row, which are counted for every pair.
        elements = shape.nvir[0] * (shape.nvir[1] + ALIGNED - 1)
        return self.blocks * elements * (self.form.result.itemsize + self.amplitudes)


Panels = tuple[slice, slice]
"""A left and a right panel."""


@dataclass(frozen=True)
class PanelPair:
    """Orbitals i of one panel and orbitals j of another one, of which all pairs are computed."""

    rows: slice
    columns: slice

    @property
    def shape(self) -> tuple[int, int]:
        return self.rows.stop - self.rows.start, self.columns.stop - self.columns.start

    def pairs(self, triangle: bool) -> int:
        """The pairs that count: all of them, or those with i >= j."""
        m, n = self.shape
        if not triangle or self.columns.stop <= self.rows.start:
            return m * n
        return sum(i + 1 - self.columns.start for i in range(self.rows.start, self.rows.stop))


@dataclass(frozen=True)
class PanelPlan:
    """How the pairs of a job are divided.

    Attributes
    ----------
    shape
        The orbitals.
    panel
        Orbitals of a panel.
    rows
        Orbitals i of a block.
    panels
        Panels that a GPU keeps.
    diagonal
        Orbitals i of a block of a panel with itself.
    """

    shape: FactorShape
    panel: int
    rows: int
    panels: int
    diagonal: int

    def panels_of(self, side: int) -> list[slice]:
        n = self.shape.nocc[side]
        return [slice(i, min(i + self.panel, n)) for i in range(0, n, self.panel)]

    def partners(self, left: slice) -> list[slice]:
        """The right panels with which a left panel forms pairs."""
        return [p for p in self.panels_of(1) if not self.shape.triangle or p.start <= left.start]

    def panel_pairs(self, lefts: Sequence[slice]) -> Iterator[Panels]:
        """Some left panels with all of their partners, in turns from the last one on and from the first one on.

        The first partners of a left panel are then those that have been used last.
        """
        for n, left in enumerate(lefts):
            for right in self.partners(left)[:: 1 if n % 2 else -1]:
                yield left, right

    def blocks(self, left: slice, right: slice, lower: bool) -> Iterator[PanelPair]:
        """The blocks of a pair of panels. With `lower`, a panel with itself has columns up to the last row only."""
        diagonal = lower and self.shape.triangle and left == right
        step = self.diagonal if diagonal else self.rows
        for i in range(left.start, left.stop, step):
            rows = slice(i, min(i + step, left.stop))
            yield PanelPair(rows, slice(right.start, rows.stop) if diagonal else right)

    def shares(self, gpus: int) -> list[list[slice]]:
        """The left panels of each GPU: the largest remaining one goes to the GPU with the least work so far.

        A GPU begins with those that have the fewest partners, so that it computes while it loads the others.
        """
        work, shares = [0] * gpus, [list[slice]() for _ in range(gpus)]
        for left in sorted(self.panels_of(0), key=self._work, reverse=True):
            least = work.index(min(work))
            shares[least].append(left)
            work[least] += self._work(left)
        return [sorted(lefts, key=lambda left: left.start) for lefts in shares]

    def _work(self, left: slice) -> int:
        return (left.stop - left.start) * sum(p.stop - p.start for p in self.partners(left))

    def __str__(self) -> str:
        sides = (0,) if self.shape.triangle else (0, 1)
        count = " and ".join(str(len(self.panels_of(side))) for side in sides)
        panels = "panel" if count == "1" else "panels"
        return (
            f"{count} {panels} of {self.panel} orbitals, at most {self.panels} on a GPU; "
            f"T of {self.rows} x {self.panel} pairs of orbitals at once"
        )


def plan_blocks(shape: FactorShape, buffers: Buffers, devices: Sequence[Device], host: int | None = None) -> PanelPlan:
    """Choose the largest panels and blocks that all GPUs and the host can hold.

    Parameters
    ----------
    shape
        The orbitals.
    buffers
        What a GPU holds.
    devices
        The GPUs.
    host
        The most orbitals of a panel whose Γ the host can hold; None for any number.

    Raises
    ------
    MemoryLimit
        If one pair of orbitals is too much for a GPU.
    """
    free = [int(USABLE * device.free_memory()) for device in devices]
    budget, fixed, pair = min(free) - buffers.staging(shape), buffers.fixed(shape), buffers.pair(shape)
    if fixed + pair > budget:
        raise MemoryLimit(
            f"one pair of orbitals ({shape.nvir[0]} and {shape.nvir[1]} virtual orbitals, {shape.naux} auxiliary "
            f"functions) needs {(fixed + pair) / 1e6:.4g} MB, but {devices[free.index(min(free))].name} has "
            f"{max(0, budget) / 1e6:.4g} MB left: use a GPU with more memory, a lower precision, or the backend 'cpu'"
        )
    panel = min(budget // 2 // fixed, budget // 2 // pair, _wanted_panel(shape, buffers, len(free)))
    panel = max(1, panel if host is None else min(panel, host))
    a_row = pair * panel
    rows = max(1, min(panel, buffers.blocks * BLOCK_BYTES // a_row, (budget - fixed * panel) // a_row))
    rest = budget - a_row * rows - (fixed - 2 * buffers.panel(shape)) * panel
    wanted = max(-(-panel // BLOCKS_A_DIAGONAL), LEAST_BLOCK_BYTES * buffers.blocks // a_row)
    every = sum(-(-n // panel) for n in (shape.nocc[:1] if shape.triangle else shape.nocc))
    kept = min(max(2, every), max(2, rest // (panel * buffers.panel(shape))))
    return PanelPlan(shape, panel, rows, kept, min(rows, wanted))


def _wanted_panel(shape: FactorShape, buffers: Buffers, gpus: int) -> int:
    """The orbitals of a panel if memory does not matter."""
    nocc = max(shape.nocc)
    if gpus > 1:
        return -(-nocc // (PANELS_A_GPU * gpus))
    return min(nocc, max(-(-nocc // PANELS_OF_ONE), -(-LEAST_PANEL_BYTES // buffers.panel(shape))))
