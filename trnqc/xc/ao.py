"""Values and derivatives of atomic orbitals on the points of blocks.

blocks -> programs of the classes of shells -> AO values [component, function, point] of one block at a time
"""

from __future__ import annotations

from math import comb, prod

import numpy as np
from pyscf import gto

from trnqc.eri.compiled import programs
from trnqc.host.arrays import zeros
from trnqc.jit import Recipe
from trnqc.xc.blocks import Blocks, PointBlock
from trnqc.xc.programs import ao_program
from trnqc.xc.shells import Contractions


def programs_for(mol: gto.Mole, order: int) -> tuple[Recipe, ...]:
    """Return the programs that evaluate a molecule's basis with derivatives up to an order."""
    return tuple(ao_program.ao_program(cls, order) for cls in Contractions.of(mol).classes)


def components(order: int) -> int:
    """Return the number of derivatives up to an order, the value included.

    >>> [components(order) for order in range(4)]
    [1, 4, 10, 20]
    """
    return comb(order + 3, 3)


class AtomicOrbitals:
    """Atomic orbitals and their derivatives up to `order` on the points of blocks, which were made for this order or a
    higher one.

    Raises CompilerError if a program has to be compiled and cannot be.
    """

    def __init__(self, blocks: Blocks, order: int) -> None:
        self.blocks, self.order, self.components = blocks, order, components(order)
        recipes = [ao_program.ao_program(cls, order) for cls in blocks.contractions.classes]
        libraries = programs.build(recipes, "programs of atomic orbitals")
        lanes = programs.lanes()
        self._evaluate = [
            getattr(libraries[recipe.name], recipe.name).bind(
                lanes=lanes,
                stride=blocks.points.shape[1] // lanes,
                tasks=tasks,
                records=blocks.contractions.records,
                points=blocks.points,
            )
            for recipe, tasks in zip(recipes, blocks.tasks)
        ]

    def buffer(self) -> np.ndarray:
        """Return an array that is large enough for each block; every thread needs its own."""
        return zeros(self.components * self.blocks.largest)

    def __call__(self, block: PointBlock, out: np.ndarray) -> np.ndarray:
        """Evaluate the significant functions of one of `blocks.blocks` into `out`, an array from `buffer`, which is
        overwritten.

        The result is a view [components, N, points] of `out`: values and derivatives of `block.functions`, in
        Bohr^(-3/2), Bohr^(-5/2), ..., in PySCF's order of derivatives: value, x, y, z, xx, xy, xz, yy, yz, zz, ...
        """
        for evaluate, (begin, end) in zip(self._evaluate, block.tasks):
            if end > begin:
                evaluate(ao=out, groups_begin=begin, groups_end=end)
        shape = self.components, len(block.functions), block.points
        return out[: prod(shape)].reshape(shape)
