"""Analytic gradients of DF-MP2 in the shape of PySCF's gradients objects.

DFMP2 object -> factors -> relax: relaxed density, Γ -> effective densities -> terms -> gradient [natm, 3]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from pyscf import gto, lib
from pyscf.grad import rhf

from trnqc.host.blas import single_threaded
from trnqc.host.clock import measured
from trnqc.mp2.density.relaxation import Relaxation
from trnqc.mp2.gradient.derivatives import Derivatives
from trnqc.mp2.gradient.terms import (
    correlation_gradient,
    effective_densities,
    one_electron_gradient,
    two_electron_gradient,
)
from trnqc.mp2.pairs.pairs import warn
from trnqc.pyscf.exchange import refuse_correlated_gradients


def electronic_gradient(mf: Any, relaxation: Relaxation, derivatives: Derivatives) -> np.ndarray:
    """Return the gradient [natm, 3] of the Hartree-Fock and MP2 energy without the repulsion of the nuclei,
    Hartree/Bohr.

    `mf` is density-fitted or not; `relaxation` is from `trnqc.mp2.density.relaxation.relax`. docs/properties.md has the
    equations, which follow F. Weigend and M. Häser, Theor. Chem. Acc. 97, 331 (1997).
    """
    # Products of matrices as small as these take longer on several threads of a BLAS library than on one.
    with single_threaded():
        densities = effective_densities(relaxation)
        one_electron = one_electron_gradient(mf, densities, derivatives)
    return (
        one_electron
        + two_electron_gradient(mf, densities, derivatives)
        + correlation_gradient(mf.mol, relaxation, derivatives)
    )


class Gradients(rhf.GradientsBase):
    """Gradients of a `trnqc.DFMP2` object, with the interface of PySCF's gradients objects.

    Parameters
    ----------
    mp
        The MP2 object. Its `gradient_scaling` (c_os, c_ss) selects the energy.

    Attributes
    ----------
    de : numpy.ndarray [natm, 3]
        The gradient, Hartree/Bohr; None before `kernel`.
    relaxation : Relaxation
        The relaxed density of the last gradient; None before `kernel`.
    ran_on : str
        What computed the derivatives of two-electron integrals.
    """

    mol: gto.Mole
    atmlst: Sequence[int] | None
    _keys = {"relaxation", "ran_on"}  # noqa: RUF012 - PySCF collects these sets from its classes.

    def __init__(self, mp: Any) -> None:
        refuse_correlated_gradients(mp._scf)
        super().__init__(mp)
        self.relaxation: Relaxation | None = None
        self.ran_on = "nothing yet"

    @measured("gradient")
    def kernel(self, atmlst: Sequence[int] | None = None) -> np.ndarray:
        """Compute the gradient.

        Parameters
        ----------
        atmlst
            Indices of the atoms whose gradient is returned; by default all.

        Returns
        -------
        numpy.ndarray [natm, 3]
            In Hartree/Bohr.
        """
        self.atmlst = self.atmlst if atmlst is None else atmlst
        if removed := self.mol.nao_nr() - np.shape(self.base._scf.mo_coeff)[-1]:
            message = (
                f"the SCF removed {removed} nearly dependent combinations of basis functions, which change with the "
                "geometry: the gradient neglects that, as PySCF's of Hartree-Fock does, with errors of about 1e-5 "
                "Hartree/Bohr; take a basis set with fewer diffuse functions"
            )
            warn((message,))
        de = self.grad_elec() + self.grad_nuc()
        if self.mol.symmetry:
            de = self.symmetrize(de)
        self.de = de if self.atmlst is None else de[list(self.atmlst)]
        self._finalize()
        return self.de

    def grad_elec(self) -> np.ndarray:
        """Return the gradient without the repulsion of the nuclei, [natm, 3]."""
        mp = self.base
        self.relaxation = mp._relaxation()
        derivatives = Derivatives.of(mp._scf, self.relaxation.auxmol, mp._execution())
        self.ran_on = derivatives.ran_on
        return electronic_gradient(mp._scf, self.relaxation, derivatives)

    def grad_nuc(self, mol: Any = None, atmlst: Sequence[int] | None = None) -> np.ndarray:
        """Return the gradient of the nuclear repulsion, from the SCF object, which may have changed it."""
        return self.base._scf.nuc_grad_method().grad_nuc(mol, atmlst)

    def as_scanner(self) -> Any:
        """Return a function of a molecule, or of its coordinates, that returns the total energy and the gradient."""
        if isinstance(self, lib.GradScanner):
            return self
        name = self.__class__.__name__ + _Scanner.__name_mixin__
        return lib.set_class(_Scanner(self), (_Scanner, self.__class__), name)

    @property
    def energy(self) -> float:
        """Energy whose gradient this is, with scaled spin components, Hartree."""
        mp = self.base
        c_os, c_ss = mp.gradient_scaling
        return float(mp.e_tot + (c_os - 1) * mp.e_corr_os + (c_ss - 1) * mp.e_corr_ss)


class _Scanner(lib.GradScanner):
    """Energies and gradients along a series of geometries, each of which starts from the SCF density of the last."""

    def __call__(self, mol_or_geometry: Any) -> tuple[float, np.ndarray]:
        """Return the total energy (Hartree) and the gradient (Hartree/Bohr) of a geometry."""
        if isinstance(mol_or_geometry, gto.MoleBase):
            mol = mol_or_geometry
        else:
            mol = self.mol.set_geom_(mol_or_geometry, inplace=False)
        self.mol = mol
        self.base(mol)
        de = self.kernel()
        return self.e_tot, de

    mol: gto.Mole
    energy: float

    @property
    def e_tot(self) -> float:
        """Energy of the last geometry, Hartree."""
        return self.energy

    @property
    def converged(self) -> bool:
        """Whether the SCF of the last geometry has converged."""
        return bool(self.base._scf.converged)
