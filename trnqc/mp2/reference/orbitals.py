"""The correlated orbitals: those of a converged reference without the frozen ones."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from pyscf import gto, scf
from pyscf.data import elements

from trnqc.arrays import plain
from trnqc.errors import InputError, MoleculeError, NotConverged, UnsupportedError

# The kinds of reference.
REFERENCES = ("RHF", "UHF", "ROHF")

Frozen = int | Sequence[int] | None
"""The frozen orbitals: the number of lowest orbitals, or a list of indices, or None."""
SpinFrozen = Frozen | Sequence[Sequence[int]]
"""The frozen orbitals of an open shell: those of both spins, or a list of indices for each spin."""


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


# Occupations of the orbitals of each kind of reference.
_OCCUPATIONS = {"RHF": {0.0, 2.0}, "ROHF": {0.0, 1.0, 2.0}, "UHF": {0.0, 1.0}}


def kind_of_reference(mf: Any) -> str:
    """Whether a PySCF object is restricted ("RHF"), restricted open-shell ("ROHF") or unrestricted ("UHF").

    Kohn-Sham objects are of the kind of their orbitals. Raises UnsupportedError for another kind.
    """
    if isinstance(mf, scf.rohf.ROHF):
        return "ROHF"
    if isinstance(mf, scf.uhf.UHF):
        return "UHF"
    if isinstance(mf, scf.hf.RHF):
        return "RHF"
    raise UnsupportedError(f"{type(mf).__name__} is not a reference for MP2; only RHF, UHF and ROHF are supported")


def check_reference(mf: Any, allow_unconverged: bool = False, kohn_sham: bool = False) -> None:
    """Check that `mf` is a converged RHF, UHF or ROHF object of a molecule with real orbitals.

    `kohn_sham` also accepts Kohn-Sham orbitals, as double hybrids need. Raises InputError if `mf` is not a PySCF object
    or has not been run, UnsupportedError if it is another kind of reference, and NotConverged if the SCF has not
    converged, unless `allow_unconverged`.
    """
    name = type(mf).__name__
    if not isinstance(mf, scf.hf.SCF):
        raise InputError(f"a PySCF RHF, UHF or ROHF object was expected, got {name}")
    if hasattr(mf.mol, "lattice_vectors"):
        raise UnsupportedError(f"{name} is periodic; only molecules are supported")
    if hasattr(mf, "xc") and not kohn_sham:
        raise UnsupportedError(f"{name} is a Kohn-Sham object; MP2 needs Hartree-Fock orbitals: run scf.RHF or scf.UHF")
    kind = kind_of_reference(mf)
    if mf.mo_coeff is None or mf.mo_energy is None:
        raise InputError(f"{name} has no orbitals yet: run mf.kernel() first")
    if not mf.converged and not allow_unconverged:
        raise NotConverged(
            "the SCF has not converged, so its orbitals do not define an MP2 energy: converge it (more cycles, another "
            "guess or another method), or allow it explicitly (allow_unconverged=True, --allow-unconverged)"
        )
    if np.iscomplexobj(mf.mo_coeff):
        raise UnsupportedError("complex orbitals are not supported; only real ones")
    found = np.unique(np.asarray(mf.mo_occ))
    expected = _OCCUPATIONS[kind]
    if not set(found) <= expected:
        others = [f"{n:.6g}" for n in found if n not in expected]
        shown = ", ".join(others[:4]) + ", ..." * (len(others) > 4)
        allowed = " and ".join(f"{n:g}" for n in sorted(expected, reverse=True))
        raise UnsupportedError(
            f"occupations of {allowed} were expected, found {shown} too: run the reference without smearing or "
            "fractions"
        )


def correlated_orbitals(mo_coeff: Any, mo_energy: Any, mo_occ: Any, frozen: SpinFrozen) -> tuple[ActiveOrbitals, ...]:
    """The correlated orbitals of a closed-shell or an unrestricted reference.

    Parameters
    ----------
    mo_coeff, mo_energy, mo_occ
        As on PySCF's objects: [nao, nmo], [nmo] and [nmo] of a closed shell, or arrays with a leading spin index.
    frozen
        As in `active_orbitals`; for two spins also a pair of lists.

    Returns
    -------
    tuple of ActiveOrbitals
        One for a closed shell, else alpha and beta. One of the two spins may have no correlated orbitals.

    Raises
    ------
    MoleculeError
        If no pair of electrons can be excited, or more orbitals of a spin are frozen than are occupied.
    InputError
        If `frozen` does not describe orbitals, or if a coefficient is not finite.
    """
    if np.ndim(mo_occ[0]) == 0:
        return (active_orbitals(mo_coeff, mo_energy, mo_occ, frozen_by_spin(frozen)[0]),)
    alpha, beta = (
        _split(c, e, n, f, spin)
        for c, e, n, f, spin in zip(mo_coeff, mo_energy, mo_occ, frozen_by_spin(frozen), ("alpha", "beta"))
    )
    check_spins(alpha, beta)
    return alpha, beta


def check_spins(alpha: ActiveOrbitals, beta: ActiveOrbitals) -> None:
    """Raise MoleculeError if neither spin has occupied orbitals, or neither has virtual orbitals."""
    if not alpha.nocc + beta.nocc:
        raise MoleculeError("all occupied orbitals of both spins are frozen, so that none is left to correlate")
    if not alpha.nvir + beta.nvir:
        raise MoleculeError("there are no virtual orbitals: use a larger basis or freeze fewer orbitals")


def frozen_by_spin(frozen: SpinFrozen) -> tuple[Frozen, Frozen]:
    """The frozen orbitals of alpha and of beta spin, which are the same unless there is a list for each."""
    lists = not isinstance(frozen, int | np.integer) and frozen is not None and len(frozen) == 2
    if lists and all(np.ndim(part) == 1 for part in frozen):  # type: ignore[union-attr]
        return tuple(frozen)  # type: ignore[arg-type,return-value]
    return frozen, frozen  # type: ignore[return-value]


def active_orbitals(mo_coeff: np.ndarray, mo_energy: np.ndarray, mo_occ: np.ndarray, frozen: Frozen) -> ActiveOrbitals:
    """Divide orbitals into occupied and virtual ones and leave out the frozen ones.

    `mo_coeff` [nao, nmo], `mo_energy` [nmo] in Hartree and `mo_occ` [nmo] are as in PySCF, and so is `frozen`: None or
    0 for none, n for the n lowest, or a list of indices of occupied and virtual orbitals. Raises MoleculeError if no
    occupied or no virtual orbital remains; InputError if `frozen` does not describe orbitals, or a coefficient is not
    finite.
    """
    orbitals = _split(mo_coeff, mo_energy, mo_occ, frozen)
    occupied = np.asarray(mo_occ) > 0
    if not orbitals.nocc:
        raise MoleculeError(
            f"all {occupied.sum()} occupied orbitals are frozen, so that none is left to correlate: freeze fewer"
            if occupied.any()
            else "there are no occupied orbitals"
        )
    if not orbitals.nvir:
        what = "all virtual orbitals are frozen" if not occupied.all() else "the orbital basis has no virtual orbitals"
        raise MoleculeError(f"{what}, so there is no correlation energy: use a larger basis or freeze fewer orbitals")
    return orbitals


def _split(
    mo_coeff: np.ndarray, mo_energy: np.ndarray, mo_occ: np.ndarray, frozen: Frozen, spin: str = ""
) -> ActiveOrbitals:
    """The orbitals of one spin, of which none need remain to be correlated."""
    occupied = np.asarray(mo_occ) > 0
    active = active_mask(occupied, frozen, spin)
    occ, vir = occupied & active, ~occupied & active
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


def active_mask(occupied: np.ndarray, frozen: Frozen, spin: str = "") -> np.ndarray:
    """The mask [nmo] of the orbitals that are not frozen; `frozen` is as in `active_orbitals`.

    One spin of an open shell, "alpha" or "beta", may have all of its orbitals frozen. Raises MoleculeError if more
    orbitals are frozen than are occupied, or all of a closed shell; InputError if `frozen` does not describe orbitals.
    """
    nmo, mask = len(occupied), np.ones(len(occupied), dtype=bool)
    if frozen is None:
        return mask
    if isinstance(frozen, int | np.integer) and not isinstance(frozen, bool):
        if not 0 <= frozen <= nmo:
            raise InputError(f"frozen must be a number of orbitals between 0 and {nmo}, got {frozen}")
        if spin and frozen > occupied.sum():
            raise MoleculeError(
                f"{frozen} orbitals of each spin are to be frozen, but the number of occupied {spin} orbitals is "
                f"{occupied.sum()}: freeze fewer, or name the frozen orbitals of each spin"
            )
        if not spin and frozen >= occupied.sum():
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
