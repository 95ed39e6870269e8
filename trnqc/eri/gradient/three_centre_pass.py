"""A pass over derivatives of (ab|P): tasks -> calls of kernels -> derivatives by the centres of a, b and P."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pyscf import gto

from trnqc.eri.classes import PRIMITIVE
from trnqc.eri.compiled import programs as library
from trnqc.eri.gradient.fitting_blocks import FittingBlock, FittingShells
from trnqc.eri.gradient.three_centre_classes import GradientClass, class_of, work_size
from trnqc.eri.gradient.three_centre_program import three_centre_program
from trnqc.eri.kernels import boys
from trnqc.eri.operators import Operator
from trnqc.eri.shells.pairs import ShellPairs
from trnqc.host.arrays import zeros
from trnqc.jit import CompiledFunction

# Quartets whose Schwarz bound times the largest element of the density is below this are left out, in Hartree.
CUTOFF = 1e-14


@dataclass(frozen=True, eq=False)
class Bra:
    """Classes of pairs with the atoms of both shells, and whether two functions share two weights, (ij| and (ji|."""

    classes: tuple[ShellPairs, ...]
    atoms: np.ndarray
    symmetric: bool

    @classmethod
    def of(cls, classes: Sequence[ShellPairs], mol: gto.Mole, symmetric: bool) -> Bra:
        ordered = tuple(pairs.take(np.argsort(-pairs.bound, kind="stable")) for pairs in classes)
        return cls(ordered, mol._bas[:, gto.ATOM_OF], symmetric)

    def factor(self, pairs: ShellPairs) -> np.ndarray:
        """Return the factor of the sum of both weights."""
        once = (pairs.first == pairs.second) | (not self.symmetric)
        return np.where(once, 0.5, 1.0)


@dataclass(frozen=True, eq=False)
class ThreeCentreTask:
    """The pairs begin .. end of a class, by falling bound, with a class of fitting shells."""

    cls: GradientClass
    bra: ShellPairs
    ket: FittingShells
    begin: int
    end: int

    @classmethod
    def of(cls, bra: ShellPairs, ket: FittingShells, operator: str, begin: int, end: int) -> ThreeCentreTask:
        return cls(class_of(bra, ket.pairs, operator), bra, ket, begin, end)


Kernels = dict[GradientClass, CompiledFunction]


def compiled_kernels(bra: Bra, blocks: Sequence[FittingBlock], operator: Operator) -> Kernels:
    """Return the compiled kernels of all classes."""
    kets = {ket.pairs.la: ket.pairs for block in blocks for ket in block.shells}.values()
    classes = dict.fromkeys(class_of(pairs, ket, operator.name) for pairs in bra.classes for ket in kets)
    programs = [three_centre_program(cls) for cls in classes]
    libraries = library.build(programs, "kernels of fitted derivatives")
    return {cls: getattr(libraries[cls.name], cls.name) for cls in classes}


@dataclass(frozen=True, eq=False)
class ThreeCentrePass:
    """Derivatives of (ab|P) times weights by the three centres, for one block of fitting shells.

    The weights of the functions a, b and P are [nao, nao, n] or [nao, n]; swapped pairs have the function b first.
    Quartets with a Schwarz bound below `screen` are left out, and `omega` is in 1/Bohr.
    """

    bra: Bra
    weights: np.ndarray
    screen: float
    omega: float
    kernels: Kernels

    def __call__(self, task: ThreeCentreTask) -> tuple[int, np.ndarray, np.ndarray]:
        """Return the end of the pairs that count, their derivatives by both centres [n, 6], and those by P [P, 3]."""
        bra, ket, width = task.bra, task.ket, library.lanes()
        # Pairs are ordered by falling bound.
        bounds = bra.bound[task.begin : task.end] * ket.packed.bound.max()
        end = task.begin + int((bounds >= self.screen).sum())
        # Rows of other pairs are neither cleared nor written.
        by_pair, by_shell = np.empty((len(bra), 6)), np.zeros((len(ket.packed), 3, width))
        by_pair[task.begin : end] = 0.0
        if end > task.begin:
            self.kernels[task.cls](
                **self._arguments(task.cls, bra, ket),
                work=zeros((work_size(task.cls, bra.contractions), width)),
                bra_gradient=by_pair,
                ket_gradient=by_shell,
                groups_begin=task.begin,
                groups_end=end,
            )
        return end, by_pair[task.begin : end], by_shell.transpose(0, 2, 1).reshape(-1, 3)

    def _arguments(self, cls: GradientClass, bra: ShellPairs, ket: FittingShells) -> dict[str, Any]:
        *rows, n = self.weights.shape
        steps = (rows[1] * n, n) if len(rows) == 2 else (n, 0)
        if bra.swapped:
            steps = steps[::-1]
        mirror = steps[::-1] if self.bra.symmetric else steps
        return {
            "bra_rows": bra.records.shape[1],
            "ket_rows": ket.packed.records.shape[1],
            "rows": len(ket.packed),
            "n_ab": bra.contractions,
            "n_b": bra.ncb,
            "step_a": steps[0],
            "step_b": steps[1],
            "mirror_a": mirror[0],
            "mirror_b": mirror[1],
            "bra_count": bra.count,
            "bra": bra.records,
            "bra_centre": bra.centre,
            "bra_bound": bra.bound,
            "ao_a": bra.ao_first,
            "ao_b": bra.ao_second,
            "factor": self.bra.factor(bra),
            "ket_count": ket.packed.count,
            "ket": ket.packed.records,
            "ket_centre": ket.packed.centre,
            "ket_bound": ket.packed.bounds,
            "row_bound": ket.packed.bound,
            "ket_place": ket.place,
            "density": self.weights,
            "screen": self.screen,
            "cutoff": PRIMITIVE * self.screen,
            "omega": self.omega,
            "boys": boys.table(cls.order),
        }
