"""The method object of double hybrids.

molecule or Kohn-Sham object -> SCF -> final functional, DF-MP2 of the orbitals, dispersion -> DoubleHybridResult
"""

from __future__ import annotations

import copy
from typing import Any

import numpy as np
from pyscf import gto, lib, scf

from trnqc.mp2.dfmp2 import DFMP2, set_attributes
from trnqc.mp2.execution import Progress
from trnqc.mp2.gradient import Gradients
from trnqc.mp2.hybrids.dispersion import Disp, dispersion_energy, dispersion_gradient
from trnqc.mp2.hybrids.gradient import derivatives_of, electronic_gradient, relaxation
from trnqc.mp2.hybrids.kohn_sham import checked, energy_with, kohn_sham
from trnqc.mp2.hybrids.recipes import DoubleHybridResult, HybridRecipe, recipe
from trnqc.mp2.reference.orbitals import SpinFrozen, chemical_core

# The attributes of `DH` that `DH.set` changes. The SCF has the functional, so that another one needs another object.
_SETTABLE = frozenset(
    {
        "allow_unconverged",
        "auxbasis",
        "backend",
        "disp",
        "frozen",
        "max_memory",
        "precision",
        "progress",
        "threads",
        "verbose",
    }
)


class DH:
    """The energy of a double-hybrid functional, for closed shells and for unrestricted open shells.

    Parameters
    ----------
    mol_or_mf
        A molecule, or PySCF's RKS or UKS object with the functional that the recipe has for the SCF. `kernel` runs it
        unless it has been run. Its grids, fitting and convergence are used as they are.
    xc
        The double hybrid: a name of docs/double_hybrids.md, a `HybridRecipe`, or a tuple (scf, c_os, c_ss) or
        (scf, final, c_os, c_ss) of functionals in PySCF's notation and factors.
    auxbasis, frozen
        Auxiliary basis and frozen orbitals of the perturbation, as in `DFMP2`.
    disp
        Dispersion: None for what belongs to the functional, False for none, "d3bj" for the recipe's parameters of
        D3(BJ), or "VERSION:NAME" such as "d4:b2plyp".
    density_fit
        Whether the SCF that is made for a molecule is density-fitted; a string is its auxiliary basis.
    precision, backend, max_memory, threads, allow_unconverged, progress
        As in `DFMP2`.

    Attributes
    ----------
    recipe
        The functional.
    mf
        The Kohn-Sham object. That of a molecule is accelerated by `trnqc.accelerate`; grids can be set on it.
    mp2
        The `DFMP2` object of the last perturbation; None before `kernel`.
    result
        The energies by their parts; None before `kernel`.

    Raises
    ------
    InputError
        If the functional is unknown, or `mf` has another functional.
    UnsupportedError
        If `mf` is no RKS or UKS object, or dispersion is wanted without pyscf-dispersion.

    Examples
    --------
    >>> from pyscf import gto
    >>> import trnqc
    >>> dh = trnqc.DH(gto.M(atom="He", basis="6-31g", verbose=0), xc="B2PLYP")
    >>> round(dh.kernel(), 6)
    -2.890134
    """

    def __init__(
        self,
        mol_or_mf: Any,
        xc: str | HybridRecipe | tuple[Any, ...] = "B2PLYP",
        auxbasis: str | dict[str, Any] | None = None,
        frozen: SpinFrozen = None,
        disp: Disp = None,
        *,
        density_fit: bool | str = False,
        precision: str | None = "fp64",
        backend: str = "auto",
        max_memory: float | None = None,
        threads: int | None = None,
        allow_unconverged: bool = False,
        progress: Progress | None = None,
    ) -> None:
        self.recipe = recipe(xc)
        if isinstance(mol_or_mf, gto.Mole):
            self.mf = kohn_sham(mol_or_mf, self.recipe, density_fit)
        else:
            self.mf = checked(mol_or_mf, self.recipe)
        self.auxbasis, self.frozen, self.disp = auxbasis, frozen, disp
        self.precision, self.backend, self.threads = precision, backend, threads
        self.allow_unconverged, self.progress = allow_unconverged, progress
        self.verbose, self.stdout = self.mf.verbose, self.mf.stdout
        self.max_memory = self.mf.max_memory if max_memory is None else max_memory
        self.mp2: DFMP2 | None = None
        self.result: DoubleHybridResult | None = None

    @property
    def _scf(self) -> Any:
        return self.mf

    @property
    def mol(self) -> gto.Mole:
        """The molecule."""
        return self.mf.mol

    @property
    def e_tot(self) -> float | None:
        """Total energy, Hartree; None before `kernel`."""
        return None if self.result is None else self.result.e_tot

    @property
    def e_corr(self) -> float | None:
        """Scaled perturbation energy, Hartree; None before `kernel`."""
        return None if self.result is None else self.result.e_pt2

    def set_frozen(self) -> DH:
        """Freeze the chemical core of every element and return self."""
        self.frozen = chemical_core(self.mol)
        return self

    def kernel(self) -> float:
        """Compute the total energy, Hartree."""
        e_disp = dispersion_energy(self.mol, self.recipe, self.disp)
        if self.mf.mo_coeff is None:
            self.mf.kernel()
        self.mp2 = mp2 = self._dfmp2()
        mp2.gradient_scaling = (self.recipe.c_os, self.recipe.c_ss)
        mp2.verbose = min(mp2.verbose, lib.logger.WARN)
        mp2.kernel()
        assert mp2.result is not None
        self.result = DoubleHybridResult(
            self.recipe,
            float(self.mf.e_tot),
            energy_with(self.mf, self.recipe.final),
            mp2.result.e_corr_os,
            mp2.result.e_corr_ss,
            e_disp,
        )
        lib.logger.note(self, "E(%s) = %.15g  E(PT2) = %.15g", self.recipe.name, self.result.e_tot, self.result.e_pt2)
        return self.result.e_tot

    def set(self, **attributes: Any) -> DH:
        """Set attributes and return self, as PySCF's objects do. Raises InputError for unknown names."""
        set_attributes(self, attributes, _SETTABLE)
        return self

    def run(self, **attributes: Any) -> DH:
        """Set attributes, call `kernel` and return self, as PySCF's objects do."""
        self.set(**attributes).kernel()
        return self

    def make_rdm1(self, relaxed: bool = True, ao_repr: bool = True) -> np.ndarray:
        """Compute the one-particle density matrix.

        Parameters
        ----------
        relaxed
            Whether the response of the orbitals is included, so that expectation values are derivatives of the energy.
        ao_repr
            Whether the matrix is in atomic orbitals, else in molecular ones.

        Returns
        -------
        numpy.ndarray
            [n, n], or [2, n, n] for alpha and beta.

        Raises
        ------
        UnsupportedError
            If the functional has VV10 correlation, whose response does not exist here.
        """
        mp2 = self._perturbation()
        if not relaxed:
            return mp2.make_rdm1(relaxed=False, ao_repr=ao_repr)
        return relaxation(self.mf, mp2, self.recipe.final).density.rdm1(ao_repr)

    def dip_moment(self, unit: str = "Debye") -> np.ndarray:
        """Compute the dipole moment, the derivative of the energy with respect to an electric field.

        Parameters
        ----------
        unit
            "Debye" or "AU".
        """
        return scf.hf.dip_moment(self.mol, self.make_rdm1(), unit, verbose=0)

    def nuc_grad_method(self) -> Any:
        """The object that computes the gradient, with PySCF's interface: ``dh.nuc_grad_method().kernel()``."""
        return DHGradients(self)

    def as_scanner(self) -> DH:
        """A copy that computes the energies of other geometries when it is called, with PySCF's interface."""
        new = copy.copy(self)
        new.mf = self.mf.copy()
        # A copy shares its parts, which `reset` moves to another geometry.
        for part in ("grids", "nlcgrids", "with_df"):
            if getattr(self.mf, part, None) is not None:
                setattr(new.mf, part, getattr(self.mf, part).copy())
        return new

    def __call__(self, mol: gto.Mole) -> float:
        """Compute the energy of another geometry of the molecule, from the SCF density of the last one."""
        guess = None if self.mf.mo_coeff is None else self.mf.make_rdm1()
        self.mf.reset(mol)
        self.mf.kernel(dm0=guess)
        return self.kernel()

    def _dfmp2(self) -> DFMP2:
        return DFMP2(
            self.mf,
            self.auxbasis,
            self.frozen,
            self.precision,
            self.backend,
            self.max_memory,
            threads=self.threads,
            allow_unconverged=self.allow_unconverged,
            progress=self.progress,
            kohn_sham=True,
        )

    def _perturbation(self) -> DFMP2:
        if self.mp2 is None:
            self.kernel()
        assert self.mp2 is not None
        return self.mp2


class DHGradients(Gradients):
    """Gradients of a `DH` object, with the interface of PySCF's gradients objects.

    The response of the integration grid is included, so that the gradient is the derivative of the energy on any grid.
    """

    def kernel(self, atmlst: Any = None) -> np.ndarray:
        """Compute the gradient, after the energy where that is missing; see `trnqc.mp2.gradient.Gradients.kernel`."""
        self.base._perturbation()
        return super().kernel(atmlst)

    def grad_elec(self) -> np.ndarray:
        """Return the gradient without the repulsion of the nuclei, [natm, 3]: SCF, perturbation and dispersion."""
        dh = self.base
        mp2, final = dh._perturbation(), dh.recipe.final
        self.relaxation = relaxation(dh.mf, mp2, final)
        derivatives = derivatives_of(dh.mf, mp2, final, self.relaxation)
        self.ran_on = derivatives.ran_on
        electrons = electronic_gradient(dh.mf, final, self.relaxation, derivatives)
        return electrons + dispersion_gradient(dh.mol, dh.recipe, dh.disp)

    @property
    def energy(self) -> float:
        """Energy whose gradient this is, Hartree."""
        return float(self.base.e_tot)
