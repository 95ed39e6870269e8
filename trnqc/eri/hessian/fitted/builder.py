"""Two-electron terms of the Hessian of a fitted SCF energy: the counterpart of `HessianBuilder`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from typing import Any

import numpy as np
from pyscf import gto, lib

from trnqc.eri.gradient.fitted.densities import DensityPair
from trnqc.eri.gradient.fitted.weights import FittedWeights
from trnqc.eri.hessian.fitted.coefficients import FittedCoefficients
from trnqc.eri.hessian.fitted.constant_weights import three_centre_hessian, two_centre_hessian
from trnqc.eri.hessian.fitted.energy import products_of_changes
from trnqc.eri.hessian.fitted.fock import fock_derivatives
from trnqc.eri.hessian.fitted.integral_derivatives import IntegralDerivatives
from trnqc.errors import MemoryLimit, UnsupportedClass
from trnqc.host.blas import single_threaded
from trnqc.host.memory import gigabytes


class FittedHessian:
    """Two-electron terms of the Hessian with fitted integrals, for the occupied orbitals of one or of two spins.

    Parameters
    ----------
    mol, auxmol : pyscf.gto.Mole
        The molecule and its fitting functions, on the same atoms, both Cartesian or both spherical.
    omega : float
        In 1/Bohr: positive for erf(omega r)/r, negative for erfc(-omega r)/r, 0 for 1/r.
    memory : float, optional
        Bytes that the largest arrays may take, by default `mol.max_memory`, which is in megabytes.
    threads : int, optional
        By default `pyscf.lib.num_threads()`. The bits do not depend on it.

    Raises
    ------
    UnsupportedClass, CompilerError
        If there are no kernels for these shells.

    Notes
    -----
    Orbitals X are [nao, nocc] and scaled so that X X^T is the spin-summed density, or the density of each spin.
    """

    def __init__(
        self,
        mol: gto.Mole,
        auxmol: gto.Mole,
        omega: float = 0.0,
        memory: float | None = None,
        threads: int | None = None,
    ) -> None:
        if mol.cart != auxmol.cart:
            raise UnsupportedClass(f"expected one kind of functions, found cart={mol.cart} and cart={auxmol.cart}")
        self.mol, self.auxmol, self.omega = mol, auxmol, omega
        self._memory = 1e6 * mol.max_memory if memory is None else memory
        self._threads = threads or lib.num_threads()

    @cached_property
    def _derivatives(self) -> IntegralDerivatives:
        return IntegralDerivatives(self.mol, self.auxmol, self.omega)

    def energy(self, orbitals: Sequence[np.ndarray], coulomb: float, exchange: float) -> np.ndarray:
        """Compute second derivatives of the energy at constant densities.

        Parameters
        ----------
        orbitals : sequence of ndarray [nao, nocc]
            X of one or of two spins.
        coulomb, exchange : float
            Factors of the Coulomb and of the exchange energy, such as 1 and 0.2 for B3LYP.

        Returns
        -------
        ndarray [natm, natm, 3, 3]
            In Hartree/Bohr^2.

        Raises
        ------
        MemoryLimit
            If the arrays do not fit into `memory`.
        """
        dms = np.array([x @ x.T for x in orbitals])
        pair = DensityPair.of(self.mol, *(scale * (dms if len(dms) == 2 else dms[0]) for scale in (0.5, 1.0)))
        with single_threaded(), self.mol.with_range_coulomb(self.omega), self.auxmol.with_range_coulomb(self.omega):
            weights = FittedWeights(
                self.mol,
                self.auxmol,
                pair,
                coulomb=coulomb,
                exchange=exchange,
                rows=None,
                memory=self._memory,
                threads=self._threads,
            )
        terms = three_centre_hessian(self._derivatives, weights.three_centre, self._threads)
        terms += two_centre_hessian(self._derivatives, weights.two_centre())
        del weights
        coefficients = self._coefficients(orbitals, exchange != 0)
        of_j, of_k = products_of_changes(
            self._derivatives, coefficients, exchange != 0, self._memory / 2, self._threads
        )
        return np.asarray(terms + coulomb * of_j - exchange * pair.exchange * of_k)

    def fock(self, orbitals: Sequence[np.ndarray], with_j: bool, with_k: bool) -> tuple[Any, Any]:
        """Compute first derivatives of J and K by the positions of all atoms, at constant densities.

        Returns
        -------
        vj : ndarray [natm, 3, nao, nao] or None
            The derivatives of J of the sum of the densities, in Hartree/Bohr.
        vk : ndarray [n, natm, 3, nao, nao] or None
            Those of K of each density.
        """
        coefficients = self._coefficients(orbitals, with_k)
        return fock_derivatives(self._derivatives, coefficients, with_j, with_k, self._threads)

    def _coefficients(self, orbitals: Sequence[np.ndarray], with_k: bool) -> FittedCoefficients:
        needed = 2 * 8.0 * self.auxmol.nao_nr() * sum(x.size for x in orbitals) * with_k
        if needed > self._memory:
            raise MemoryLimit(
                f"fitted integrals of the occupied orbitals take {gigabytes(needed)}, allowed are "
                f"{gigabytes(self._memory)}: raise max_memory"
            )
        return FittedCoefficients.of(self._derivatives, orbitals, with_k, self._threads)
