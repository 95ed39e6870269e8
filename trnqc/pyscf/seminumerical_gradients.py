"""PySCF's gradients objects with the derivative of seminumerical exchange in place of that of exact or fitted exchange.

PySCF's `grad_elec` multiplies matrices of derivatives with the density. Here those of K come as zeros, and the gradient
of the exchange energy is added at the end. J, exchange and correlation, solvents and the rest stay as they are.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from pyscf import gto, lib
from pyscf.lib import logger

from trnqc.eri.seminumerical.gradient import exchange_gradient
from trnqc.errors import UnsupportedError
from trnqc.host.clock import measured
from trnqc.host.overrides import users_method

# Methods that would see zeros in the place of derivatives of K.
STEPS = ("get_veff", "get_jk", "get_j", "get_k")


def accelerate_seminumerical_gradients(gradients: Any) -> Any:
    """Return a gradients object whose exchange is that of its SCF object's grid; its `undo()` returns it without."""
    if isinstance(gradients, _SeminumericalGradients):  # below the layer of a solvent
        return gradients
    return lib.set_class(_SeminumericalGradients(gradients), (_SeminumericalGradients, gradients.__class__))


class _SeminumericalGradients(lib.StreamObject):
    """The layer that `accelerate_seminumerical_gradients` puts on a gradients object."""

    __name_mixin__ = "Seminumerical"
    _keys = frozenset({"exchange_ran_on"})

    def __init__(self, gradients: Any) -> None:
        self.__dict__.update(gradients.__dict__)
        self.exchange_ran_on, self._without_k = "nothing yet", False

    def undo(self) -> Any:
        """Return the object without this layer, with the same state."""
        plain = lib.view(self, lib.drop_class(self.__class__, _SeminumericalGradients))
        del plain.__dict__["exchange_ran_on"], plain.__dict__["_without_k"]
        return plain.undo() if hasattr(plain, "undo") else plain  # The layers of J and of the quadrature are below.

    @measured("gradient")
    def grad_elec(
        self, mo_energy: Any = None, mo_coeff: Any = None, mo_occ: Any = None, atmlst: Sequence[int] | None = None
    ) -> np.ndarray:
        """Return the gradient without the repulsion of the nuclei, in Hartree/Bohr, as PySCF does."""
        if users := users_method(self, *STEPS):
            raise UnsupportedError(
                f"with seminumerical exchange there are no matrices of derivatives of K, which {users} may read: use "
                "exchange='direct', or exchange='fitted' after .density_fit()"
            )
        self._without_k = True
        try:
            de: np.ndarray = super().grad_elec(mo_energy, mo_coeff, mo_occ, atmlst)
        finally:
            self._without_k = False
        exchange = self._exchange(self.base.make_rdm1(mo_coeff, mo_occ))
        return de + (exchange if atmlst is None else exchange[list(atmlst)])

    def _exchange(self, dm: Any) -> np.ndarray:
        """Return the gradient of the exchange energy [natm, 3]."""
        start, mol = (logger.process_clock(), logger.perf_counter()), self.mol
        total = np.zeros((mol.natm, 3))
        self.exchange_ran_on = "no exact exchange"
        for omega, share in _terms(self.base):
            own = self.base.exchange_on_grid(mol, omega, derivative=True)
            total += share * exchange_gradient(own, dm)
            self.exchange_ran_on = f"gradient of {own.ran_on}"
        logger.timer(self, "gradient of exchange on a grid", *start)
        return total

    def get_jk(self, mol: gto.Mole | None = None, dm: Any = None, *args: Any, **options: Any) -> tuple[Any, Any]:
        """Return derivatives of J as without this layer, and zeros for K within `grad_elec`.

        Raises UnsupportedError elsewhere if K is asked for.
        """
        if not options.get("with_k", True):  # PySCF's `get_j` with density fitting asks for J alone in this way.
            alone: tuple[Any, Any] = super().get_jk(mol, dm, *args, **options)
            return alone
        self._require_sum()
        vj = super().get_j(mol, dm, *args, **options)
        return vj, _zeros_like(vj)

    def get_k(self, mol: gto.Mole | None = None, dm: Any = None, hermi: int = 0, omega: float | None = None) -> Any:
        """Return zeros within `grad_elec`. Raises UnsupportedError elsewhere."""
        self._require_sum()
        dms = np.asarray(self.base.make_rdm1() if dm is None else dm)
        zeros = np.zeros((*dms.shape[:-2], 3, *dms.shape[-2:]))
        sets = 1 if dms.ndim == 2 else len(dms)
        return lib.tag_array(zeros, aux=np.zeros((sets, sets, self.mol.natm, 3)))

    def hcore_generator(self, mol: gto.Mole | None = None) -> Any:
        """Return what PySCF returns within `grad_elec`. Raises UnsupportedError elsewhere.

        PySCF's gradients of excited states and of correlated methods ask for it, and add derivatives of exact K.
        """
        self._require_sum()
        return super().hcore_generator(mol)

    def _require_sum(self) -> None:
        if not self._without_k:
            raise UnsupportedError(
                "seminumerical exchange has gradients of SCF energies alone: there are no matrices of derivatives of K "
                "and no gradients of excited states and correlated methods; use exchange='direct', or "
                "exchange='fitted' after .density_fit()"
            )


def _zeros_like(vj: Any) -> Any:
    """Return zeros in the place of derivatives of K beside those of J, with PySCF's attribute for fitting functions."""
    zeros = np.zeros(np.shape(vj))
    return lib.tag_array(zeros, aux=np.zeros_like(vj.aux)) if hasattr(vj, "aux") else zeros


def _terms(mf: Any) -> Iterator[tuple[float | None, float]]:
    """Yield the operators of the exchange energy of an SCF object, omega as in `get_jk`, and their factors."""
    if not hasattr(mf, "xc"):
        yield None, 1.0
    elif mf._numint.libxc.is_hybrid_xc(mf.xc):
        omega, alpha, hybrid = mf._numint.rsh_and_hybrid_coeff(mf.xc, spin=mf.mol.spin)
        if omega and alpha == 0:
            yield -omega, hybrid
            return
        if hybrid:
            yield None, hybrid
        if omega and alpha != hybrid:
            yield omega, alpha - hybrid
