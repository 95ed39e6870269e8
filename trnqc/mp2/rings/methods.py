"""The method objects of ring correlation, with the conventions of `DFMP2`.

mf -> factors of each spin, as DF-MP2 has them -> RingEnergy
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from pyscf import lib

from trnqc.errors import InputError, UnsupportedError
from trnqc.mp2.dfmp2 import DFMP2
from trnqc.mp2.execution import Progress
from trnqc.mp2.factors.auxiliary_basis import AuxiliaryBasis
from trnqc.mp2.factors.factors import Factors, by_spin
from trnqc.mp2.reference.orbitals import SpinFrozen, chemical_core, kind_of_reference
from trnqc.mp2.result import SOS
from trnqc.mp2.rings.energies import RingEnergy, opposite_spin_energy, rpa_energy


class RingMethod(ABC):
    """What the method objects of ring correlation share.

    Parameters
    ----------
    mf
        The reference, a converged RHF or UHF object of PySCF.
    auxbasis, frozen, max_memory, threads, allow_unconverged, progress
        As in `DFMP2`. The energies are computed in fp64 on the CPU.

    Attributes
    ----------
    result
        The correlation energy with its quadrature; None before `kernel`.
    """

    name = ""
    kohn_sham = False

    def __init__(
        self,
        mf: Any,
        auxbasis: str | dict[str, Any] | None = None,
        frozen: SpinFrozen = None,
        max_memory: float | None = None,
        *,
        threads: int | None = None,
        allow_unconverged: bool = False,
        progress: Progress | None = None,
    ) -> None:
        self._mp2 = DFMP2(
            mf,
            auxbasis,
            frozen,
            backend="cpu",
            max_memory=max_memory,
            threads=threads,
            allow_unconverged=allow_unconverged,
            progress=progress,
            kohn_sham=self.kohn_sham,
        )
        if kind_of_reference(mf) == "ROHF":
            raise UnsupportedError(f"{self.name} needs an RHF or UHF object, got {type(mf).__name__}: use mf.to_uhf()")
        self._scf, self.mol = mf, mf.mol
        self.result: RingEnergy | None = None

    @property
    def frozen(self) -> SpinFrozen:
        """The frozen orbitals."""
        return self._mp2.frozen

    @property
    def e_hf(self) -> float:
        """Hartree-Fock energy of the orbitals, Hartree."""
        return self._mp2.e_hf

    @property
    def e_corr(self) -> float | None:
        """Correlation energy, Hartree; None before `kernel`."""
        return None if self.result is None else self.result.energy

    @property
    def e_tot(self) -> float | None:
        """Hartree-Fock plus correlation energy, Hartree; None before `kernel`."""
        return None if self.e_corr is None else self.e_hf + self.e_corr

    def set_frozen(self) -> RingMethod:
        """Freeze the chemical core of every element and return self."""
        self._mp2.frozen = chemical_core(self.mol)
        return self

    def auxiliary_basis(self) -> AuxiliaryBasis:
        """The auxiliary functions of `ao2mo`."""
        return self._mp2.auxiliary_basis()

    def ao2mo(self) -> tuple[Factors, ...]:
        """Compute the fitted integrals of a closed shell (one entry), or of alpha and beta spin."""
        return by_spin(self._mp2.ao2mo())

    def kernel(self, eris: tuple[Factors, ...] | None = None) -> float:
        """Compute the correlation energy, Hartree.

        Parameters
        ----------
        eris
            Factors that `ao2mo` has returned; by default they are computed.
        """
        self.result = self._energy(self.ao2mo() if eris is None else eris)
        lib.logger.note(self._scf, "E(%s) = %.15g  E_corr = %.15g", self.name, self.e_tot, self.result.energy)
        return self.result.energy

    def run(self) -> RingMethod:
        """Call `kernel` and return self."""
        self.kernel()
        return self

    @abstractmethod
    def _energy(self, channels: tuple[Factors, ...]) -> RingEnergy:
        """Compute the correlation energy from the factors of each spin."""


class SOSMP2(RingMethod):
    """Scaled-opposite-spin MP2 by Laplace quadrature, in O(N^4) operations.

    Parameters
    ----------
    c_os
        Factor of the opposite-spin energy.
    tolerance
        The largest error of the correlation energy that the quadrature may cause, Hartree. ``result.error`` bounds the
        error of the quadrature that was used.
    arguments, options
        As in `RingMethod`.

    Notes
    -----
    `e_corr` is c_os times the opposite-spin energy of `DFMP2`, to the tolerance. `trnqc.mp2.rings.energies` has the
    equations.

    Examples
    --------
    >>> from pyscf import gto, scf
    >>> import trnqc
    >>> mf = scf.RHF(gto.M(atom="He", basis="6-31g", verbose=0)).run()
    >>> sos = trnqc.SOSMP2(mf).run()
    >>> abs(sos.e_corr - trnqc.DFMP2(mf).run().result.e_corr_sos) < 1e-6
    True
    """

    name = "SOS-MP2"

    def __init__(self, mf: Any, *arguments: Any, c_os: float = SOS, tolerance: float = 1e-6, **options: Any) -> None:
        super().__init__(mf, *arguments, **options)
        self.c_os, self.tolerance = c_os, tolerance

    def _energy(self, channels: tuple[Factors, ...]) -> RingEnergy:
        if not self.c_os > 0:
            raise InputError(f"c_os must be a positive factor, got {self.c_os!r}")
        return opposite_spin_energy(channels, self._mp2._execution(), self.tolerance / self.c_os).scaled(self.c_os)


class RPA(RingMethod):
    """Direct random-phase approximation from Hartree-Fock or Kohn-Sham orbitals, in O(N^4) operations.

    Parameters
    ----------
    points
        Number of imaginary frequencies.
    arguments, options
        As in `RingMethod`; `mf` may also be an RKS or UKS object.

    Notes
    -----
    `e_hf` is the Hartree-Fock energy of the orbitals, and `e_tot` the sum of both, which is the usual total energy of
    RPA with Kohn-Sham orbitals. The quadrature is that of pyscf.gw.rpa. `trnqc.mp2.rings.energies` has the equations.

    Examples
    --------
    >>> from pyscf import dft, gto
    >>> import trnqc
    >>> mf = dft.RKS(gto.M(atom="He", basis="6-31g", verbose=0), xc="PBE").run()
    >>> rpa = trnqc.RPA(mf).run()
    >>> rpa.e_corr < 0
    True
    """

    name = "RPA"
    kohn_sham = True

    def __init__(self, mf: Any, *arguments: Any, points: int = 40, **options: Any) -> None:
        super().__init__(mf, *arguments, **options)
        self.points = points
        self._e_hf: float | None = None

    @property
    def e_hf(self) -> float:
        """Hartree-Fock energy of the orbitals, Hartree."""
        if not hasattr(self._scf, "xc"):
            return self._mp2.e_hf
        if self._e_hf is None:
            self._e_hf = float(self._scf.to_hf().energy_tot(self._scf.make_rdm1()))
        return self._e_hf

    def _energy(self, channels: tuple[Factors, ...]) -> RingEnergy:
        return rpa_energy(channels, self._mp2._execution(), self.points)
