"""First derivatives of J and K: J and K of a mixed basis, whose bra pairs are (gradient's shell, shell).

mol -> shells of its derivatives (derivatives.py) -> J [i', j], K [i', l] (mixed.py) -> derivatives by axis
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from pyscf import gto, lib
from pyscf.lib import logger

from trnqc.eri.classes import LMAX
from trnqc.eri.gradient.derivative_basis import derivative_basis
from trnqc.eri.gradient.mixed_basis import MixedJK
from trnqc.eri.jk.builder import CUTOFF
from trnqc.eri.library import background, needs, programs
from trnqc.eri.pyscf.molecules import Kept, actual_omega, is_ours
from trnqc.eri.shells.pairs import pairs_between, pairs_of
from trnqc.errors import InputError


class GradientBuilder:
    """Derivatives of J and K for density matrices of one molecule.

    omega: as in `get_jk`. cutoff: integrals that add less to J or K of the derivatives' shells are left out. threads:
    as in `JKBuilder`.
    """

    def __init__(self, mol: gto.Mole, omega: float = 0.0, cutoff: float = CUTOFF, threads: int | None = None) -> None:
        self._basis = basis = derivative_basis(mol)
        bra, ket = pairs_between(basis.mol, basis.cartesian), pairs_of(basis.cartesian)
        extents = basis.mol.nao_cart(), basis.cartesian.nao_cart()
        self._mixed = MixedJK(bra, ket, extents, omega=omega, cutoff=cutoff, threads=threads)

    def get_jk(self, dm: np.ndarray, with_j: bool = True, with_k: bool = True) -> tuple[Any, Any]:
        """J [.., x, i, j] = -sum_kl (d_x i j|kl) D_lk and K [.., x, i, l] = -sum_jk (d_x i j|kl) D_jk, in Hartree/Bohr.

        dm [.., nao, nao], real. d_x acts on the electron's coordinate; the sign is that of the nucleus' derivative, as
        in PySCF's `Gradients.get_jk`. None for what is not asked for.
        """
        to = self._basis.transform
        if dm.ndim < 2 or dm.shape[-2:] != (to.shape[1],) * 2:
            raise InputError(f"dm is [.., {to.shape[1]}, {to.shape[1]}] for this molecule, found {dm.shape}")
        shape = (*dm.shape[:-2], 3, *dm.shape[-2:])
        if dm.size == 0:
            return np.zeros(shape) if with_j else None, np.zeros(shape) if with_k else None
        dms = np.array([to @ d @ to.T for d in dm.reshape(-1, *dm.shape[-2:])])
        found = self._mixed.get_jk(dms, with_j, with_k)
        vj, vk = (None if v is None else self._derivatives(v).reshape(shape) for v in found)
        return vj, vk

    def _derivatives(self, mixed: np.ndarray) -> np.ndarray:
        right = [v @ self._basis.transform for v in mixed]
        return np.array([[-(axis.T @ v) for axis in self._basis.gradient] for v in right])


def accelerate_gradients(gradients: Any) -> Any:
    """PySCF's gradients object with J and K by our integrals; `undo()` leads back."""
    if isinstance(gradients, _AcceleratedGradients):  # below a solvent's layer
        return gradients
    return lib.set_class(_AcceleratedGradients(gradients), (_AcceleratedGradients, gradients.__class__))


class _AcceleratedGradients(lib.StreamObject):
    """The layer that `accelerate_gradients` puts on a gradients object."""

    __name_mixin__ = "Accelerated"
    _keys = frozenset({"ran_on"})

    def __init__(self, gradients: Any) -> None:
        self.__dict__.update(gradients.__dict__)
        self._kept, self.ran_on = Kept(), "nothing yet"

    def undo(self) -> Any:
        """The object as PySCF has it, sharing this one's state."""
        plain = lib.view(self, lib.drop_class(self.__class__, _AcceleratedGradients))
        del plain.__dict__["_kept"], plain.__dict__["ran_on"]
        return plain

    def get_jk(
        self, mol: gto.Mole | None = None, dm: Any = None, hermi: int = 0, omega: float | None = None
    ) -> tuple[Any, Any]:
        """Derivatives of J and K [.., 3, nao, nao], as PySCF has them."""
        return self._jk(super().get_jk, mol, dm, hermi, omega, True, True)

    def get_j(self, mol: gto.Mole | None = None, dm: Any = None, hermi: int = 0, omega: float | None = None) -> Any:
        """Derivatives of J alone."""
        return self._jk(super().get_j, mol, dm, hermi, omega, True, False)

    def get_k(self, mol: gto.Mole | None = None, dm: Any = None, hermi: int = 0, omega: float | None = None) -> Any:
        """Derivatives of K alone."""
        return self._jk(super().get_k, mol, dm, hermi, omega, False, True)

    def _jk(
        self, theirs: Callable, mol: gto.Mole | None, dm: Any, hermi: int, omega: float | None, j: bool, k: bool
    ) -> Any:
        mol = self.mol if mol is None else mol
        dm = np.asarray(self.base.make_rdm1() if dm is None else dm)
        actual = actual_omega(mol, omega)
        self.ran_on = self._by_pyscf(mol, actual)
        if self.ran_on:
            return theirs(mol, dm, hermi, omega)
        start = logger.process_clock(), logger.perf_counter()
        builder = self._kept.get(mol, actual, lambda: self._builder(mol, actual))
        vj, vk = builder.get_jk(dm, j, k)
        self.ran_on = programs.words()
        logger.timer(self, "derivatives of vj and vk", *start)
        return (vj, vk) if j and k else vj if j else vk

    def _by_pyscf(self, mol: gto.Mole, omega: float) -> str:
        """What serves in the place of our kernels now, in words; empty when they are to be used."""
        if not self._kept.get(mol, "ours", lambda: is_ours(mol, LMAX - 1, "gradients")):
            return "PySCF"
        needed = self._kept.get(mol, ("needed", omega), lambda: self._needed(mol, omega))
        return "" if needed.ready() else f"PySCF ({needed.reason})"

    def _needed(self, mol: gto.Mole, omega: float) -> background.Needed:
        kernels = background.chosen(getattr(self.base, "kernels", None))
        return background.Needed(needs.for_gradients(mol, omega), kernels)

    def _builder(self, mol: gto.Mole, omega: float) -> GradientBuilder:
        return GradientBuilder(mol, omega, self.base.direct_scf_tol, lib.num_threads())
