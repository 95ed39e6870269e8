"""The gradient of the energy of electrons in the field of the nuclei, tr(h D).

The attraction by a nucleus is an integral (ij|g) with a charge g at a point, whose derivatives the kernels of
three-centre integrals contract with D. Kinetic energy and effective core potentials are PySCF's integrals.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from pyscf import gto
from pyscf.grad import rhf

from trnqc.eri.charges import charge_gradient, gaussian_charges
from trnqc.host.overrides import users_method
from trnqc.ranks import ALONE, Ranks

# The exponent of a charge that is a point, in 1/Bohr^2, as in PySCF.
POINT = 1e16
# Nuclei of a block, which is the work of one rank.
BLOCK = 16
# The models of nuclei that are points: bare ones, and those with an effective core potential.
POINTS = (gto.NUC_POINT, gto.NUC_ECP)


def core_gradient(
    gradients: Any, density: np.ndarray, attraction: Callable[[gto.Mole, np.ndarray], np.ndarray] | None = None
) -> np.ndarray:
    """Return the derivative of tr(h D) at constant D by the positions of atoms, [natm, 3] in Hartree/Bohr.

    Parameters
    ----------
    gradients : pyscf.grad.rhf.GradientsBase
        The gradients object, whose `hcore_generator` is used where `is_known` is false.
    density : ndarray [nao, nao]
        The symmetric density D, summed over spins.
    attraction : callable, optional
        Called in the place of `attraction_gradient`, for example to share the work among ranks.

    Raises
    ------
    UnsupportedClass, CompilerError
        If there are no kernels for these shells.
    """
    mol = gradients.mol
    if not is_known(gradients):
        return by_matrices(gradients, density)
    return (attraction or attraction_gradient)(mol, density) + _other_terms(mol, density)


def by_matrices(gradients: Any, density: np.ndarray) -> np.ndarray:
    """Return what `core_gradient` returns, from PySCF's matrices of derivatives by each atom."""
    derivative = gradients.hcore_generator(gradients.mol)
    return np.array([np.einsum("xij,ij->x", derivative(atom), density) for atom in range(gradients.mol.natm)])


def is_known(gradients: Any) -> bool:
    """Return whether the core Hamiltonian of a gradients object consists of kinetic energy, the attraction by nuclei
    that are points, and effective core potentials.
    """
    mol, names = gradients.mol, ("hcore_generator", "get_hcore")
    if mol._pseudo or getattr(gradients.base, "with_x2c", None) or users_method(gradients, *names):
        return False
    own = all(_of_pyscf(gradients, name) is vars(rhf.GradientsBase)[name] for name in names)
    return own and bool(np.isin(mol._atm[:, gto.NUC_MOD_OF], POINTS).all())


def attraction_gradient(
    mol: gto.Mole, density: np.ndarray, threads: int | None = None, ranks: Ranks = ALONE
) -> np.ndarray:
    """Return the part of the attraction by nuclei that are points, [natm, 3]; all ranks call this together."""
    nuclei = gaussian_charges(mol.atom_coords(), np.full(mol.natm, POINT), mol.cart)
    values, owners = -mol.atom_charges().astype(float), np.arange(mol.natm)
    options: dict[str, Any] = {"threads": threads, "ranks": ranks, "block_bytes": 8.0 * BLOCK * density.size}
    # An operator of J and K that the molecule has been given is not that of the nuclei.
    return charge_gradient(mol, nuclei, owners, density, values, omega=0.0, **options)


def _other_terms(mol: gto.Mole, density: np.ndarray) -> np.ndarray:
    """Return the parts of kinetic energy and of effective core potentials."""
    core = mol.intor("int1e_ipkin", comp=3)
    if mol.has_ecp():
        core += mol.intor("ECPscalar_ipnuc", comp=3)
    by_function = np.einsum("xij,ij->ix", core, density)
    total = np.array([-2 * by_function[begin:end].sum(axis=0) for begin, end in mol.aoslice_by_atom()[:, 2:]])
    for atom in np.unique(mol._ecpbas[:, gto.ATOM_OF]) if mol.has_ecp() else ():
        with mol.with_rinv_at_nucleus(atom):
            total[atom] += 2 * np.einsum("xij,ij->x", mol.intor("ECPscalar_iprinv", comp=3), density)
    return total


def _of_pyscf(gradients: Any, name: str) -> Any:
    """Return the method that PySCF's class defines, below the layers of this package."""
    classes = type(gradients).__mro__
    return next(vars(cls)[name] for cls in classes if name in vars(cls) and not cls.__module__.startswith("trnqc."))
