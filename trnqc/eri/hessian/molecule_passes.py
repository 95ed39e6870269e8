"""What the passes over the integrals of one molecule share: shells, pairs of shells, and how a pass is run."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from pyscf import gto, lib

from trnqc.eri.gradient.derivative_basis import derivative_basis
from trnqc.eri.hessian import atom_pass
from trnqc.eri.hessian.atom_pass import AtomBlock
from trnqc.eri.hessian.densities import Densities
from trnqc.eri.hessian.sides import Ket, ket_of, side_of
from trnqc.eri.operators import Operator
from trnqc.eri.shells.pairs import pairs_between, pairs_of

# A block, the range of its bra pairs, and the sums of J.
Sums = list[tuple[AtomBlock, slice, np.ndarray]]


class MoleculePasses:
    """The passes of one molecule; arguments are as for `two_electron.HessianBuilder`.

    `basis` is the molecule with the shells of derivatives, `atoms` the atom of each of these shells, and `mixed` the
    pairs of such a shell with one of the molecule.
    """

    def __init__(self, mol: gto.Mole, omega: float, cutoff: float, threads: int | None) -> None:
        self.mol, self.omega, self.cutoff = mol, omega, cutoff
        self.threads = threads or lib.num_threads()
        self.operator = Operator.of(mol, omega)
        self.basis = derivative_basis(mol)
        self.atoms = self.basis.mol._bas[:, gto.ATOM_OF].astype(np.int64)
        self.mixed = [side_of(pairs, self.atoms) for pairs in pairs_between(self.basis.mol, self.basis.cartesian)]

    @cached_property
    def plain_kets(self) -> list[Ket]:
        """Pairs of the molecule's shells, each once; the factor 1/2 is for two orders of one shell with itself."""
        sides = [side_of(pairs) for pairs in pairs_of(self.basis.cartesian)]
        return [ket_of(side, np.where(side.pairs.first == side.pairs.second, 0.5, 1.0)) for side in sides]

    @cached_property
    def function_atoms(self) -> np.ndarray:
        """The atom of each function of the derivative basis."""
        return np.repeat(self.atoms, np.diff(self.basis.mol.ao_loc_nr()))

    def run(
        self,
        blocks: Sequence[AtomBlock],
        arguments: Sequence[dict[str, Any]],
        densities: Densities,
        shape: tuple[int, int],
        with_j: bool,
        with_k: bool,
        finish: Any,
    ) -> list[Any]:
        """Run a pass; shape: the extents of k_atom. Arrays that the pass does not read get one element."""
        unused = np.zeros((1, 1, 1, 1, 1))
        names = ("weight", "folded", "bra_size", "ket_size", "near_i", "near_v", "far_i", "far_v")
        common = {
            **{name: unused.ravel() for name in names},
            "sets": len(densities.p),
            "n_mixed": self.basis.mol.nao_cart(),
            "n_ao": self.basis.cartesian.nao_cart(),
            "n_v": shape[0],
            "n_column": shape[1],
            "with_j": with_j,
            "with_k": with_k,
            "exchange": densities.p,
            "density": densities.d,
        }
        return atom_pass.run(blocks, arguments, common, self.operator, self.cutoff, self.threads, finish)


def added(sums: Sums) -> Sums:
    """Add up the sums of J of blocks with the same ket pairs."""
    by_ket: dict[int, tuple[AtomBlock, slice, np.ndarray]] = {}
    for block, pairs, values in sums:
        if id(block.ket) in by_ket:
            by_ket[id(block.ket)][2][...] += values
        else:
            by_ket[id(block.ket)] = (block, pairs, values)
    return list(by_ket.values())
