"""PySCF's gradients objects of density-fitted SCF with two-electron terms by our integrals: the same numbers.

PySCF's `grad_elec` multiplies derivatives of J and K with the density. Here J and K come as zeros, and the sum of all
products as their attribute `aux`, which PySCF adds to the gradient: the derivatives of each atom's fitting functions in
its own objects, and the whole two-electron gradient in this one. So Kohn-Sham, open shells, grids and solvents are
PySCF's code.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from pyscf import df, gto, lib
from pyscf.lib import logger

from trnqc.eri.classes import LMAX, LMAX_FITTING
from trnqc.eri.compiled import background, programs
from trnqc.eri.gradient.fitted.half_transform import rows_of
from trnqc.eri.gradient.jk_gradient import exact_jk_gradient, fitted_jk_gradient
from trnqc.eri.prepare import needs
from trnqc.errors import MemoryLimit
from trnqc.fitted.memory import bytes_left
from trnqc.host.clock import measured
from trnqc.host.overrides import users_method
from trnqc.pyscf.core_gradients import with_core_apart
from trnqc.pyscf.molecule_cache import MoleculeCache, is_covered
from trnqc.pyscf.shared.fitting import SpreadDF

# Methods that would see zeros in the place of derivatives of J and K. A user's gets PySCF's matrices.
STEPS = ("grad_elec", "get_veff", "get_jk", "get_j", "get_k", "extra_force")


def accelerate_fitted_gradients(gradients: Any) -> Any:
    """Return PySCF's gradients object of a density-fitted SCF with our integrals; its `undo()` returns it without."""
    if isinstance(gradients, _FittedGradients):  # below the layer of a solvent
        return gradients
    return lib.set_class(_FittedGradients(gradients), (_FittedGradients, gradients.__class__))


class _FittedGradients(lib.StreamObject):
    """The layer that `accelerate_fitted_gradients` puts on a gradients object."""

    __name_mixin__ = "Accelerated"
    _keys = frozenset({"ran_on"})

    def __init__(self, gradients: Any) -> None:
        self.__dict__.update(gradients.__dict__)
        self._cache, self.ran_on, self._summing = MoleculeCache(), "nothing yet", False

    def undo(self) -> Any:
        """Return the object without this layer, with the same state."""
        plain = lib.view(self, lib.drop_class(self.__class__, _FittedGradients))
        for name in ("_cache", "ran_on", "_summing"):
            del plain.__dict__[name]
        return plain.undo() if hasattr(plain, "undo") else plain  # The layer of the quadrature is below.

    @measured("gradient")
    def grad_elec(
        self, mo_energy: Any = None, mo_coeff: Any = None, mo_occ: Any = None, atmlst: Sequence[int] | None = None
    ) -> np.ndarray:
        """Return the gradient without the repulsion of the nuclei as PySCF does."""
        elec: Callable[..., np.ndarray] = super().grad_elec
        reason = self._why_pyscf()
        if not reason:
            self._summing = True
            try:
                de = with_core_apart(self, elec, mo_energy, mo_coeff, mo_occ, atmlst)
                self.ran_on = programs.words() + self._among()
                return de
            except MemoryLimit as error:
                reason = str(error)
            finally:
                self._summing = False
        logger.note(self, "the two-electron gradient is left to PySCF: %s", reason)
        self.ran_on = f"PySCF: {reason}"
        return elec(mo_energy, mo_coeff, mo_occ, atmlst)

    def get_jk(
        self,
        mol: gto.Mole | None = None,
        dm: Any = None,
        hermi: int = 0,
        with_j: bool = True,
        with_k: bool = True,
        omega: float | None = None,
    ) -> tuple[Any, Any]:
        """Return derivatives of J and K by PySCF; within `grad_elec` zeros whose `aux` is the gradient."""
        if not self._summing:
            matrices: tuple[Any, Any] = super().get_jk(mol, dm, hermi, with_j, with_k, omega)
            return matrices
        return self._sums(dm, with_j, with_k, omega)

    def get_j(self, mol: gto.Mole | None = None, dm: Any = None, hermi: int = 0, omega: float | None = None) -> Any:
        """Return derivatives of J alone, as `get_jk` does."""
        return self._sums(dm, True, False, omega)[0] if self._summing else super().get_j(mol, dm, hermi, omega)

    def get_k(self, mol: gto.Mole | None = None, dm: Any = None, hermi: int = 0, omega: float | None = None) -> Any:
        """Return derivatives of K alone, as `get_jk` does."""
        return self._sums(dm, False, True, omega)[1] if self._summing else super().get_k(mol, dm, hermi, omega)

    def _sums(self, dm: Any, with_j: bool, with_k: bool, omega: float | None) -> tuple[Any, Any]:
        """Return zeros for what is wanted. The `aux` of J is the sum of its terms and of those of K, if both are."""
        dms = np.asarray(self.base.make_rdm1() if dm is None else dm)
        exchange = (self._share_of_exchange() if with_j else 1.0) if with_k else 0.0
        start = logger.process_clock(), logger.perf_counter()
        total = self._gradient(dms, float(with_j), exchange, omega)
        logger.timer(self, "two-electron gradient", *start)
        sets = 1 if dms.ndim == 2 else len(dms)
        zeros = np.zeros((*dms.shape[:-2], 3, *dms.shape[-2:]))
        aux = np.zeros((2, sets, sets, *total.shape))
        if with_j:
            aux[0, 0, 0] = total
        else:
            # PySCF subtracts K, and of a closed shell one half of it.
            aux[1, 0, 0] = -total if sets == 2 else -2 * total
        vj, vk = (lib.tag_array(zeros.copy(), aux=part) for part in aux)
        return (vj if with_j else None), (vk if with_k else None)

    def _share_of_exchange(self) -> float:
        """Return the factor with which `get_veff` multiplies the K that it asks for together with J."""
        base = self.base
        return float(base._numint.rsh_and_hybrid_coeff(base.xc, spin=base.mol.spin)[2]) if hasattr(base, "xc") else 1.0

    def _gradient(self, dms: np.ndarray, coulomb: float, exchange: float, omega: float | None) -> np.ndarray:
        """Return the derivative of the energy of these terms, [natm, 3]."""
        mol, fitting = self.mol, self.base.with_df
        exact = exchange if self.base.only_dfj else 0.0
        total = np.zeros((mol.natm, 3))
        if coulomb or exchange != exact:
            of_operator = fitting._rsh_df.get(f"{omega:.6f}") if omega else fitting
            factors: dict[str, Any] = {
                "coulomb": coulomb,
                "exchange": exchange - exact,
                "max_memory": bytes_left(self.max_memory),
            }
            if isinstance(of_operator, SpreadDF) and of_operator.shares_gradients(omega):
                total = of_operator.gradient(dms, omega, **factors)
            else:
                rows = rows_of(of_operator, omega)
                total = fitted_jk_gradient(mol, self._auxmol(), dms / 2, dms, omega=omega, rows=rows, **factors)
        if exact:
            total = total + exact_jk_gradient(mol, dms / 2, dms, omega=omega, coulomb=0.0, exchange=exact)
        return total

    def _among(self) -> str:
        """Return in words which ranks share the gradient."""
        fitting = self.base.with_df
        return fitting.shared.among if isinstance(fitting, SpreadDF) and fitting.shares_gradients(None) else ""

    def _auxmol(self) -> gto.Mole:
        fitting = self.base.with_df
        return df.make_auxmol(fitting.mol, fitting.auxbasis) if fitting.auxmol is None else fitting.auxmol

    def _why_pyscf(self) -> str:
        """Return in words why PySCF has to compute the two-electron terms now, or ""."""
        if users := users_method(self, *STEPS):
            return f"{users} is the user's"
        if not self.auxbasis_response:
            return "without auxbasis_response"
        mol, auxmol = self.mol, self._auxmol()
        if mol.cart != auxmol.cart:
            return "orbitals and fitting functions are not both Cartesian or both spherical"
        if not self._cache.get(mol, "covered", lambda: _are_covered(mol, auxmol)):
            return "shells beyond the kernels"
        needed = self._cache.get(mol, "needed", lambda: self._needed(mol, auxmol))
        return "" if needed.ready() else needed.reason

    def _needed(self, mol: gto.Mole, auxmol: gto.Mole) -> background.Needed:
        operators = {0.0}
        if hasattr(self.base, "xc"):
            omega, alpha, _ = self.base._numint.rsh_and_hybrid_coeff(self.base.xc, spin=mol.spin)
            if omega:
                operators |= {-omega if alpha == 0 else omega}
        kernels = background.chosen(getattr(self.base, "kernels", None))

        def recipes() -> needs.Programs:
            return needs.for_fitted_gradients(mol, auxmol, sorted(operators)) + needs.for_core_gradients(mol)

        return background.Needed(recipes, kernels)


def _are_covered(mol: gto.Mole, auxmol: gto.Mole) -> bool:
    limits = (mol, LMAX), (auxmol, LMAX_FITTING)
    return all(is_covered(one, limit, "fitted gradients") for one, limit in limits)
