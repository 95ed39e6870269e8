"""Two-electron terms of an SCF Hessian: second derivatives of the energy, first derivatives of the Fock matrix.

densities -> products with the derivative basis -> passes (atom_pass.py) -> Hessian blocks (energy.py)
                                                                         -> matrices of each atom (fock.py)
"""

from __future__ import annotations

from typing import Any

import numpy as np
from pyscf import gto

from trnqc.eri.hessian.energy import energy
from trnqc.eri.hessian.fock import fock
from trnqc.eri.hessian.molecule_passes import MoleculePasses
from trnqc.eri.jk.builder import CUTOFF
from trnqc.errors import InputError


class HessianBuilder:
    """Two-electron terms of the Hessian of one molecule, for the densities of one or of two spins.

    Parameters
    ----------
    mol
        The molecule.
    omega
        In 1/Bohr: positive for erf(omega r)/r, negative for erfc(-omega r)/r, 0 for 1/r.
    cutoff
        Products of an integral over the shells of derivatives and of the densities that it meets are left out if they
        are below this.
    threads
        By default `pyscf.lib.num_threads()`. The bits do not depend on it.

    Raises
    ------
    CompilerError, UnsupportedClass, MoleculeError
        If there are no kernels for these shells.
    """

    def __init__(self, mol: gto.Mole, omega: float = 0.0, cutoff: float = CUTOFF, threads: int | None = None) -> None:
        self.mol, self._passes = mol, MoleculePasses(mol, omega, cutoff, threads)

    def energy(self, dms: np.ndarray, with_j: bool = True, with_k: bool = True) -> tuple[np.ndarray, np.ndarray]:
        """Compute second derivatives of the Coulomb and of the exchange energy at constant densities.

        Parameters
        ----------
        dms : ndarray [1, nao, nao] or [2, nao, nao]
            The spin-summed density, or those of alpha and beta electrons. They are symmetric.
        with_j, with_k : bool
            What is wanted; the other array is zero.

        Returns
        -------
        ej, ek : ndarray [natm, natm, 3, 3]
            In Hartree/Bohr^2. The energy is ej - ek for Hartree-Fock.

        Notes
        -----
        With E_J = 1/2 sum (pq|rs) D_pq D_rs and E_K = 1/2 sum_s (pq|rs) D^s_pr D^s_qs (half of it for a spin-summed
        density), the derivatives by two atoms A and B that differ have terms with both derivatives on one side,
        (d_A p d_B q|rs), and with one on each side, (d_A p q|d_B r s). The terms of one atom follow from translational
        invariance, E_AA = -sum_B E_AB.
        """
        return energy(self._passes, self._checked(dms), with_j, with_k)

    def fock(self, dms: np.ndarray, with_j: bool = True, with_k: bool = True) -> tuple[Any, Any]:
        """Compute first derivatives of J and K by the positions of all atoms, at constant densities.

        Parameters
        ----------
        dms, with_j, with_k
            As for `energy`.

        Returns
        -------
        vj : ndarray [natm, 3, nao, nao] or None
            The derivatives of J of the sum of the densities, in Hartree/Bohr.
        vk : ndarray [n, natm, 3, nao, nao] or None
            Those of K of each density.
        """
        return fock(self._passes, self._checked(dms), with_j, with_k)

    def _checked(self, dms: np.ndarray) -> np.ndarray:
        nao = self.mol.nao_nr()
        dms = np.asarray(dms, dtype=np.float64)
        if dms.shape not in ((1, nao, nao), (2, nao, nao)) or not np.isfinite(dms).all():
            raise InputError(f"dms are one or two finite densities [{nao}, {nao}] for this molecule, found {dms.shape}")
        return dms
