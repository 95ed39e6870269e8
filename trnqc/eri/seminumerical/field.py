"""The sums over pairs of shells at the points of a block: G_k += sum_l (kl|g) F_l for all Cartesian functions.

molecule -> classes of pairs (pairs.py) -> their programs, compiled (program.py) -> one call for each class and block
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from pyscf import gto

from trnqc.eri.compiled import programs
from trnqc.eri.kernels import boys
from trnqc.eri.operators import Operator
from trnqc.eri.seminumerical import gradient_program
from trnqc.eri.seminumerical.grid import GridBlock
from trnqc.eri.seminumerical.pairs import PointPairs, first_cartesians, point_pairs
from trnqc.eri.seminumerical.program import BLOCK_NORM, seminumerical_program, work_size
from trnqc.host.arrays import zeros
from trnqc.jit import Recipe

# The contribution of a pair and a block of points to the exchange energy, in Hartree, and to elements of K, below which
# it is left out. A pair is left out where both are smaller.
ENERGY, POTENTIAL = 1e-11, 1e-7


class Field:
    """The pairs of a molecule and their programs; `energy` and `potential` say what may be left out, see ENERGY and
    POTENTIAL.

    Raises CompilerError, UnsupportedClass or MoleculeError if there are no programs for the molecule's shells.
    """

    derivative = 0

    def __init__(self, mol: gto.Mole, operator: Operator, energy: float = ENERGY, potential: float = POTENTIAL) -> None:
        self.first = first_cartesians(mol)
        self._calls: list[tuple[PointPairs, Any]] = []
        classes = point_pairs(mol, bool(self.derivative))
        recipes = [_program(pairs, operator.name, self.derivative) for pairs in classes]
        libraries = programs.build(list(dict.fromkeys(recipes)), "kernels of seminumerical exchange")
        for pairs, recipe in zip(classes, recipes):
            call = getattr(libraries[recipe.name], recipe.name).bind(
                rows=pairs.records.shape[1],
                functions=int(self.first[-1]),
                n_ab=pairs.n_ab,
                n_b=pairs.n_b,
                energy=1 / energy,
                potential=1 / potential,
                omega=operator.omega,
                boys=boys.table(pairs.la + pairs.lb + self.derivative),
                records=pairs.records,
                centre=pairs.centre,
                extents=pairs.extents,
                places=pairs.places,
                groups_begin=0,
                groups_end=len(pairs),
            )
            self._calls.append((pairs, call))

    @property
    def functions(self) -> int:
        """The number of Cartesian functions."""
        return int(self.first[-1])

    def add(self, block: GridBlock, f: np.ndarray, g: np.ndarray, norm: float) -> None:
        """Add sum_l (kl|g) F_lg to G_kg; `f` and `g` are [densities, ncart, vectors, lanes].

        `norm` is the largest square root of sum_g w X^2 over the orbitals X with which G is multiplied later.
        """
        self._run(block, f, g, norm, work_size)

    def _run(
        self,
        block: GridBlock,
        f: np.ndarray,
        g: np.ndarray,
        norm: float,
        size_of: Callable[[int, int, int], int],
        **more: np.ndarray,
    ) -> None:
        sphere = block.sphere.copy()
        sphere[BLOCK_NORM] = norm
        flat = f.reshape(*f.shape[:2], -1)
        squares = np.einsum("skg,skg,g->sk", flat, flat, np.abs(block.weights)).max(axis=0)
        norms = np.sqrt(np.maximum.reduceat(squares, self.first[:-1]))
        size = max(size_of(pairs.la, pairs.lb, pairs.n_ab) for pairs, _ in self._calls)
        work = zeros((size, f.shape[-1]))
        for _, call in self._calls:
            call(
                vectors=block.vectors,
                densities=len(f),
                block=sphere,
                norms=norms,
                points=block.points,
                f=f,
                g=g,
                work=work,
                **more,
            )


class GradientField(Field):
    """The pairs of a molecule and their programs for gradients."""

    derivative = 1

    def add_gradient(
        self, block: GridBlock, f: np.ndarray, g: np.ndarray, norm: float, forces: np.ndarray, pull: np.ndarray
    ) -> None:
        """Add what `add` adds, and the derivatives of sum_g w_g F A F / 2 at fixed F.

        Those by the centres of the shells are added to `forces` [shells, 3], and those by the points to `pull` [3,
        vectors, lanes].
        """
        weights = block.weights.reshape(block.points.shape[1:])
        more = {"forces": forces, "pull": pull, "weights": weights}
        self._run(block, f, g, norm, gradient_program.work_size, **more)


def programs_for(mol: gto.Mole, operator: str, derivative: int = 0) -> tuple[Recipe, ...]:
    """Return the programs of the classes of a molecule's pairs, for K or for its gradient, those that take longest to
    compile first.
    """
    pairs = sorted(point_pairs(mol), key=lambda one: -(one.la + one.lb))
    return tuple(dict.fromkeys(_program(one, operator, derivative) for one in pairs))


def _program(pairs: PointPairs, operator: str, derivative: int) -> Recipe:
    make = gradient_program.gradient_program if derivative else seminumerical_program
    return make(pairs.la, pairs.lb, pairs.n_ab > 1, operator)
