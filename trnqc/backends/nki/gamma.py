"""Γ of MP2 with NKI kernels: factors -> launches of blocks of orbitals -> Γ, added up by the caller in fp64."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from nki_kernels import mp2_gamma_plan as plan
from nki_kernels.descriptors.descriptor import ITEMSIZE
from nki_kernels.descriptors.mp2_gamma import tiles_of
from nki_kernels.mp2_gamma_plan import Sides
from trnqc.backends.gamma import AddRows, FactorSet, GammaOptions
from trnqc.backends.nki.device import NkiDevice
from trnqc.errors import MemoryLimit
from trnqc.tuning.choice import choose
from trnqc.tuning.conditions import device_identity

Launch = tuple[Sides, slice, slice | None]
"""Sides of a launch, and their orbitals: rows of the left and of the right set; None for one set with itself."""


@dataclass(frozen=True, eq=False)
class NkiGamma:
    """All pairs of one set of orbitals, or of a left and a right set, on a device of NKI kernels."""

    device: NkiDevice
    left: FactorSet
    right: FactorSet | None
    options: GammaOptions

    def run(self, add: AddRows) -> str:
        """Launch all blocks of pairs; return what ran."""
        sides = self._sides()
        shape = {"nocc": sides.nocc_left, "nvir": sides.nvir, "naux": self.left.B.shape[2]}
        choice = choose("mp2_gamma", shape, self.options.precision, self.device.target, device_identity())
        tiles = tiles_of(shape, choice.constants)
        launches = self._launches(sides)
        total = sum(_pairs(part) for part, _, _ in launches)
        done = 0
        for part, rows, columns in launches:
            self._launch(part, rows, columns, tiles, add)
            done += _pairs(part)
            if self.options.progress is not None:
                self.options.progress(done, total)
        return f"{self.device.label}; {choice.note}"

    def _sides(self) -> Sides:
        nocc, nvir, _ = self.left.B.shape
        if self.right is None:
            return Sides(nocc, nvir)
        others, nvir_right, _ = self.right.B.shape
        return Sides(nocc, nvir, others, nvir_right, partners=False)

    def _launches(self, sides: Sides) -> list[Launch]:
        """Blocks of as many pairs as a launch takes, or fewer where the memory limit asks for it."""
        limit, nvir = self.options.max_memory, sides.nvir_right or sides.nvir_left
        one = 2 * sides.nvir_left * nvir
        most = min(plan.MOST_ELEMENTS, plan.THETA_BYTES // ITEMSIZE[self.options.precision])
        most = max(one, min(most, one * self.device.pairs_a_launch))
        while True:
            launches = list(plan.blocks(sides, most))
            needed = max(self._bytes(part) for part, _, _ in launches)
            if limit is None or needed <= limit:
                return launches
            if most == one:
                raise MemoryLimit(
                    f"Γ of one pair of orbitals needs {needed / 1e6:.4g} MB besides the factors, the limit is "
                    f"{limit / 1e6:.4g} MB: raise the limit"
                )
            most = max(one, most // 2)

    def _bytes(self, part: Sides) -> int:
        """Bytes of one launch: rows of B, both packed forms of them, Γ in fp32 and fp64, and the amplitudes."""
        itemsize = ITEMSIZE[self.options.precision]
        rows = part.left + (part.right if part.nocc_right else 0)
        return rows * self.left.B.shape[2] * (2 * 8 + 2 * itemsize + 4 + 8) + part.elements * itemsize

    def _launch(self, part: Sides, rows: slice, columns: slice | None, tiles: plan.GammaTiles, add: AddRows) -> None:
        other = self.right if self.right is not None else self.left
        left = np.asarray(self.left.B[rows], np.float64)
        right = None if columns is None else np.asarray(other.B[columns], np.float64)
        eps_right = np.zeros(0) if columns is None else other.eps_occ[columns]
        device, options = self.device, self.options
        lists = plan.launch_lists(part, self.left.eps_occ[rows], eps_right, tiles, device.cores)
        arrays = (
            *plan.pack_sides(left, right, part, tiles, options.precision),
            *plan.pack_energies(self.left.eps_vir, other.eps_vir, tiles.pairs),
            plan.mix(options.direct, options.exchange),
            *lists.arrays,
        )
        gamma = device.call("mp2_gamma", *map(device.put, arrays), **plan.constants(part, tiles))
        add(0, rows, gamma[: part.left].astype(np.float64).reshape(left.shape))
        if right is not None and columns is not None:
            side = 0 if self.right is None else 1
            add(side, columns, gamma[part.left :].astype(np.float64).reshape(right.shape))


def _pairs(part: Sides) -> int:
    """Ordered pairs of a launch."""
    return 2 * part.nocc_left * part.nocc_right or part.nocc_left**2
