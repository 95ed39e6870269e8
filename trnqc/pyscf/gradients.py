"""PySCF's gradients objects with derivatives of J and K by our integrals: the same methods and the same numbers."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from pyscf import gto, lib
from pyscf.lib import logger

from trnqc.eri.classes import LMAX
from trnqc.eri.compiled import background
from trnqc.eri.gradient.builder import GradientBuilder
from trnqc.eri.operators import signed_omega
from trnqc.eri.prepare import needs
from trnqc.host.clock import measured
from trnqc.host.overrides import users_method
from trnqc.pyscf.core_gradients import with_core_apart
from trnqc.pyscf.molecule_cache import MoleculeCache, is_covered
from trnqc.pyscf.shared.builders import SharedGradientBuilder


def accelerate_gradients(gradients: Any) -> Any:
    """Return PySCF's gradients object with J and K by our integrals; its `undo()` returns the object without them."""
    if isinstance(gradients, _AcceleratedGradients):  # below the layer of a solvent
        return gradients
    return lib.set_class(_AcceleratedGradients(gradients), (_AcceleratedGradients, gradients.__class__))


class _AcceleratedGradients(lib.StreamObject):
    """The layer that `accelerate_gradients` puts on a gradients object."""

    __name_mixin__ = "Accelerated"
    _keys = frozenset({"ran_on"})

    def __init__(self, gradients: Any) -> None:
        self.__dict__.update(gradients.__dict__)
        self._cache, self.ran_on = MoleculeCache(), "nothing yet"

    def undo(self) -> Any:
        """Return the object without this layer, with the same state."""
        plain = lib.view(self, lib.drop_class(self.__class__, _AcceleratedGradients))
        del plain.__dict__["_cache"], plain.__dict__["ran_on"]
        return plain.undo() if hasattr(plain, "undo") else plain  # The layer of the quadrature is below.

    @measured("gradient")
    def grad_elec(self, mo_energy: Any = None, mo_coeff: Any = None, mo_occ: Any = None, atmlst: Any = None) -> Any:
        """Return the gradient without the repulsion of the nuclei as PySCF does."""
        elec: Callable[..., np.ndarray] = super().grad_elec
        if self._has_core_kernels():
            return with_core_apart(self, elec, mo_energy, mo_coeff, mo_occ, atmlst)
        return elec(mo_energy, mo_coeff, mo_occ, atmlst)

    def get_jk(
        self, mol: gto.Mole | None = None, dm: Any = None, hermi: int = 0, omega: float | None = None
    ) -> tuple[Any, Any]:
        """Return derivatives of J and K [..., 3, nao, nao] as PySCF does."""
        return self._jk("get_jk", super().get_jk, mol, dm, hermi, omega, True, True)

    def get_j(self, mol: gto.Mole | None = None, dm: Any = None, hermi: int = 0, omega: float | None = None) -> Any:
        """Return derivatives of J alone."""
        return self._jk("get_j", super().get_j, mol, dm, hermi, omega, True, False)

    def get_k(self, mol: gto.Mole | None = None, dm: Any = None, hermi: int = 0, omega: float | None = None) -> Any:
        """Return derivatives of K alone."""
        return self._jk("get_k", super().get_k, mol, dm, hermi, omega, False, True)

    def _jk(
        self,
        name: str,
        pyscf: Callable[..., Any],
        mol: gto.Mole | None,
        dm: Any,
        hermi: int,
        omega: float | None,
        j: bool,
        k: bool,
    ) -> Any:
        mol = self.mol if mol is None else mol
        dm = np.asarray(self.base.make_rdm1() if dm is None else dm)
        signed = signed_omega(mol, omega)
        self.ran_on = users_method(self, name, below=_AcceleratedGradients) or self._by_pyscf(mol, signed)
        if self.ran_on:
            return pyscf(mol, dm, hermi, omega)
        start = logger.process_clock(), logger.perf_counter()
        key = signed, self.base.direct_scf_tol
        builder = self._cache.get(mol, key, lambda: self._builder(mol, signed))
        vj, vk = builder.get_jk(dm, j, k)
        self.ran_on = builder.ran_on
        logger.timer(self, "derivatives of vj and vk", *start)
        return (vj, vk) if j and k else vj if j else vk

    def _by_pyscf(self, mol: gto.Mole, omega: float) -> str:
        """Return a description of the code that replaces our kernels now, or "" if our kernels are to be used."""
        if not self._cache.get(mol, "covered", lambda: is_covered(mol, LMAX - 1, "gradients")):
            return "PySCF"
        needed = self._cache.get(mol, ("needed", omega), lambda: self._needed(mol, omega))
        return "" if needed.ready() else f"PySCF ({needed.reason})"

    def _has_core_kernels(self) -> bool:
        mol, kernels = self.mol, background.chosen(getattr(self.base, "kernels", None))
        if not self._cache.get(mol, "covered", lambda: is_covered(mol, LMAX - 1, "gradients")):
            return False
        needed = background.Needed(lambda: needs.for_core_gradients(mol), kernels)
        return bool(self._cache.get(mol, "core", lambda: needed).ready())

    def _needed(self, mol: gto.Mole, omega: float) -> background.Needed:
        kernels = background.chosen(getattr(self.base, "kernels", None))
        return background.Needed(lambda: needs.for_gradients(mol, omega), kernels)

    def _builder(self, mol: gto.Mole, omega: float) -> GradientBuilder | SharedGradientBuilder:
        if shared := getattr(self.base, "_shared", None):
            return SharedGradientBuilder(shared, mol, (omega, self.base.direct_scf_tol))
        return GradientBuilder(mol, omega, self.base.direct_scf_tol, lib.num_threads())
