"""The correlated orbitals: those of a converged closed-shell reference without the frozen ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pyscf import gto, scf
from pyscf.data import elements

from trnqc.arrays import plain
from trnqc.errors import InputError, MoleculeError, NotConverged, UnsupportedError

Frozen = int | Sequence[int] | None
"""The frozen orbitals: the number of lowest orbitals, or a list of indices, or None."""


@dataclass(frozen=True, eq=False)
class ActiveOrbitals:
    """The correlated orbitals of one spin.

    Attributes
    ----------
    c_occ, c_vir
        Coefficients [nao, nocc] and [nao, nvir].
    eps_occ, eps_vir
        Orbital energies [nocc] and [nvir], Hartree.
    frozen_occ, frozen_vir
        Indices of the frozen orbitals among all orbitals, ascending.
    """

    c_occ: np.ndarray
    c_vir: np.ndarray
    eps_occ: np.ndarray
    eps_vir: np.ndarray
    frozen_occ: tuple[int, ...]
    frozen_vir: tuple[int, ...]

    @property
    def nao(self) -> int:
        """Number of atomic orbitals."""
        return len(self.c_occ)

    @property
    def nocc(self) -> int:
        """Number of correlated occupied orbitals."""
        return len(self.eps_occ)

    @property
    def nvir(self) -> int:
        """Number of correlated virtual orbitals."""
        return len(self.eps_vir)

    @property
    def nmo(self) -> int:
        """Number of orbitals, including the frozen ones."""
        return self.nocc + self.nvir + len(self.frozen_occ) + len(self.frozen_vir)


def chemical_core(mol: gto.Mole) -> int:
    """PySCF's number of chemical core orbitals, without those that effective core potentials replace."""
    return int(elements.chemcore(mol))


def check_reference(mf: Any, allow_unconverged: bool = False) -> None:
    """Check that `mf` is a converged closed-shell RHF object of a molecule with real orbitals.

    Raises
    ------
    InputError
        If it is not a PySCF object, or has not been run.
    UnsupportedError
        If it is another kind of reference.
    NotConverged
        If the SCF has not converged and `allow_unconverged` is False.
    """
    kind = type(mf).__name__
    if not isinstance(mf, scf.hf.SCF):
        raise InputError(f"a PySCF RHF object was expected, got {kind}")
    if hasattr(mf.mol, "lattice_vectors"):
        raise UnsupportedError(f"{kind} is periodic; only molecules are supported")
    if hasattr(mf, "xc"):
        raise UnsupportedError(f"{kind} is a Kohn-Sham object; MP2 needs Hartree-Fock orbitals: run scf.RHF")
    if isinstance(mf, scf.rohf.ROHF) or not isinstance(mf, scf.hf.RHF):
        raise UnsupportedError(f"{kind} is not a restricted closed-shell object; only RHF references are supported")
    if mf.mo_coeff is None or mf.mo_energy is None:
        raise InputError(f"{kind} has no orbitals yet: run mf.kernel() first")
    if not mf.converged and not allow_unconverged:
        raise NotConverged(
            "the SCF has not converged, so its orbitals do not define an MP2 energy: converge it (more cycles, another "
            "guess or another method), or allow it explicitly (allow_unconverged=True, --allow-unconverged)"
        )
    if np.iscomplexobj(mf.mo_coeff):
        raise UnsupportedError("complex orbitals are not supported; only real ones")
    if not set(np.unique(mf.mo_occ)) <= {0.0, 2.0}:
        others = [f"{n:.6g}" for n in np.unique(mf.mo_occ) if n not in (0.0, 2.0)]
        shown = ", ".join(others[:4]) + ", ..." * (len(others) > 4)
        raise UnsupportedError(
            f"occupations of 2 and 0 were expected, found {shown} too: run the reference without smearing or fractions"
        )


def active_orbitals(mo_coeff: np.ndarray, mo_energy: np.ndarray, mo_occ: np.ndarray, frozen: Frozen) -> ActiveOrbitals:
    """Divide orbitals into occupied and virtual ones and leave out the frozen ones.

    Parameters
    ----------
    mo_coeff, mo_energy, mo_occ
        Coefficients [nao, nmo], energies [nmo] in Hartree and occupations [nmo].
    frozen
        As in PySCF: None or 0 for none, n for the n lowest, or a list of indices of occupied and virtual orbitals.

    Raises
    ------
    MoleculeError
        If no occupied or no virtual orbital remains.
    InputError
        If `frozen` does not describe orbitals, or if a coefficient is not finite.
    """
    occupied = np.asarray(mo_occ) > 0
    active = _active_mask(occupied, frozen)
    occ, vir = occupied & active, ~occupied & active
    if not occ.any():
        raise MoleculeError(
            f"all {occupied.sum()} occupied orbitals are frozen, so that none is left to correlate: freeze fewer"
            if occupied.any()
            else "there are no occupied orbitals"
        )
    if not vir.any():
        what = "all virtual orbitals are frozen" if not occupied.all() else "the orbital basis has no virtual orbitals"
        raise MoleculeError(f"{what}, so there is no correlation energy: use a larger basis or freeze fewer orbitals")
    c, e = _real("mo_coeff", mo_coeff), _real("mo_energy", mo_energy)
    left_out = (np.flatnonzero(mask & ~active) for mask in (occupied, ~occupied))
    return ActiveOrbitals(c[:, occ], c[:, vir], e[occ], e[vir], *(tuple(index.tolist()) for index in left_out))


def _real(name: str, values: np.ndarray) -> np.ndarray:
    """The values as float64 numbers. Complex values are an error, because a cast would drop their imaginary parts."""
    array = plain(values, name)
    if np.iscomplexobj(array):
        raise UnsupportedError(f"{name} is complex; only real orbitals and energies are supported")
    array = np.asarray(array, dtype=float)
    if not np.isfinite(array).all():
        raise InputError(f"{name} has elements that are not finite: the calculation that returned it has failed")
    return array


def _active_mask(occupied: np.ndarray, frozen: Frozen) -> np.ndarray:
    nmo, mask = len(occupied), np.ones(len(occupied), dtype=bool)
    if frozen is None:
        return mask
    if isinstance(frozen, int | np.integer) and not isinstance(frozen, bool):
        if not 0 <= frozen <= nmo:
            raise InputError(f"frozen must be a number of orbitals between 0 and {nmo}, got {frozen}")
        if frozen >= occupied.sum():
            raise MoleculeError(
                f"{frozen} frozen orbitals leave none of the {occupied.sum()} occupied ones to correlate: freeze fewer"
            )
        mask[:frozen] = False
        return mask
    index = np.asarray(frozen)
    if index.ndim != 1 or (index.size and not np.issubdtype(index.dtype, np.integer)):
        raise InputError(f"frozen must be None, a number or a list of orbital indices, got {frozen!r}")
    if index.size and (index.min() < 0 or index.max() >= nmo):
        raise InputError(f"frozen orbital indices must lie between 0 and {nmo - 1}, got {index.tolist()}")
    mask[index.astype(int)] = False
    return mask
