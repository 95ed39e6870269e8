"""The method object of double hybrids.

molecule or Kohn-Sham object -> SCF -> final functional, DF-MP2 of the orbitals, dispersion -> DoubleHybridResult
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from pyscf import dft, gto, lib, scf

from trnqc.eri.pyscf.accelerate import accelerate
from trnqc.errors import InputError, UnsupportedError
from trnqc.mp2.dfmp2 import DFMP2
from trnqc.mp2.gradient import Gradients
from trnqc.mp2.hybrids.dispersion import Disp, dispersion_energy, dispersion_gradient
from trnqc.mp2.hybrids.final import energy_with
from trnqc.mp2.hybrids.gradient import electronic_gradient, relaxation
from trnqc.mp2.hybrids.recipes import Recipe, recipe
from trnqc.mp2.reference.orbitals import SpinFrozen, chemical_core


@dataclass(frozen=True)
class DoubleHybridResult:
    """The energy of a double hybrid by its parts, in Hartree.

    Attributes
    ----------
    recipe
        The functional.
    e_scf
        Energy of the SCF with the functional of the SCF.
    e_dft
        Energy of its density with the final functional, without perturbation and dispersion. It is `e_scf` unless the
        recipe has a final functional.
    e_corr_os, e_corr_ss
        Opposite- and same-spin parts of the MP2 energy expression, not scaled.
    e_disp
        Dispersion energy.
    """

    recipe: Recipe
    e_scf: float
    e_dft: float
    e_corr_os: float
    e_corr_ss: float
    e_disp: float

    @property
    def e_pt2(self) -> float:
        """Scaled perturbation energy, c_os e_corr_os + c_ss e_corr_ss."""
        return self.recipe.c_os * self.e_corr_os + self.recipe.c_ss * self.e_corr_ss

    @property
    def e_tot(self) -> float:
        """Total energy."""
        return self.e_dft + self.e_pt2 + self.e_disp


class DH:
    """The energy of a double-hybrid functional, for closed shells and for unrestricted open shells.

    Parameters
    ----------
    mol_or_mf
        A molecule, or PySCF's RKS or UKS object with the functional that the recipe has for the SCF. `kernel` runs it
        unless it has been run. Its grids, fitting and convergence are used as they are.
    xc
        The double hybrid: a name of docs/double_hybrids.md, a `Recipe`, or a tuple (scf, c_os, c_ss) or
        (scf, final, c_os, c_ss) of functionals in PySCF's notation and factors.
    auxbasis, frozen
        Auxiliary basis and frozen orbitals of the perturbation, as in `DFMP2`.
    disp
        Dispersion: None for what belongs to the functional, False for none, "d3bj" for the recipe's parameters of
        D3(BJ), or "VERSION:NAME" such as "d4:b2plyp".
    density_fit
        Whether the SCF that is made for a molecule is density-fitted; a string is its auxiliary basis.
    options
        precision, backend, max_memory, threads, allow_unconverged and progress, as in `DFMP2`.

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
        xc: str | Recipe | tuple[Any, ...] = "B2PLYP",
        auxbasis: str | dict[str, Any] | None = None,
        frozen: SpinFrozen = None,
        disp: Disp = None,
        *,
        density_fit: bool | str = False,
        **options: Any,
    ) -> None:
        self.recipe = recipe(xc)
        if isinstance(mol_or_mf, gto.Mole):
            self.mf = _kohn_sham(mol_or_mf, self.recipe, density_fit)
        else:
            self.mf = _checked(mol_or_mf, self.recipe)
        self.auxbasis, self.frozen, self.disp, self.options = auxbasis, frozen, disp, options
        self.verbose, self.stdout, self.max_memory = self.mf.verbose, self.mf.stdout, self.mf.max_memory
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
        self.mp2 = mp2 = DFMP2(self.mf, self.auxbasis, self.frozen, kohn_sham=True, **self.options)
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
        lib.logger.note(
            self.mf, "E(%s) = %.15g  E(PT2) = %.15g", self.recipe.name, self.result.e_tot, self.result.e_pt2
        )
        return self.result.e_tot

    def run(self) -> DH:
        """Call `kernel` and return self."""
        self.kernel()
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

    def __call__(self, mol: gto.Mole) -> float:
        """Compute the energy of another geometry of the molecule, from the SCF density of the last one."""
        guess = None if self.mf.mo_coeff is None else self.mf.make_rdm1()
        self.mf.reset(mol)
        self.mf.kernel(dm0=guess)
        return self.kernel()

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
        electrons = electronic_gradient(dh.mf, dh._perturbation(), dh.recipe.final)
        return electrons + dispersion_gradient(dh.mol, dh.recipe, dh.disp)


def _kohn_sham(mol: gto.Mole, functional: Recipe, density_fit: bool | str) -> Any:
    kind = dft.UKS if mol.spin else dft.RKS
    mf = kind(mol, xc=functional.scf)
    if density_fit:
        mf = mf.density_fit(density_fit if isinstance(density_fit, str) else None)
    return accelerate(mf)


def _checked(mf: Any, functional: Recipe) -> Any:
    """The object, if it is a Kohn-Sham object of the recipe's functional for the SCF."""
    if not isinstance(mf, dft.rks.KohnShamDFT | scf.hf.SCF):
        raise InputError(f"a molecule, RKS or UKS object was expected, got {type(mf).__name__}")
    unrestricted = isinstance(mf, scf.uhf.UHF)
    closed = isinstance(mf, scf.hf.RHF) and not isinstance(mf, scf.rohf.ROHF)
    if not isinstance(mf, dft.rks.KohnShamDFT) or not (unrestricted or closed):
        raise UnsupportedError(f"double hybrids need an RKS or UKS object, got {type(mf).__name__}")
    if _terms(mf.xc) != _terms(functional.scf):
        raise InputError(f"{functional.name} needs orbitals of the functional {functional.scf!r}, found {mf.xc!r}")
    if mf.do_disp():
        raise InputError("mf adds a dispersion energy of its own: set mf.disp = None, and disp on the double hybrid")
    return mf


def _terms(xc: str) -> tuple[Any, dict[int, float]]:
    """The exact exchange and the terms of a functional, rounded so that spellings of the same numbers agree."""
    hybrid, terms = dft.libxc.parse_xc(xc)
    total: dict[int, float] = {}
    for number, factor in terms:
        total[int(number)] = round(total.get(int(number), 0.0) + factor, 10)
    return tuple(round(float(part), 10) for part in hybrid), total
