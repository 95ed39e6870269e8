"""One-electron terms of an SCF Hessian at constant orbitals, from PySCF's integrals.

Moving a nucleus moves its functions and its Coulomb potential. The attraction of two functions at A and B by a nucleus
at C does not change if all three move, so that its derivatives by C follow from those by A and B. Two kinds of
integrals are therefore needed for each nucleus, and no matrices for pairs of atoms.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from pyscf import gto
from pyscf.hessian import rhf as rhf_hessian

from trnqc.host.overrides import users_method


def one_electron_energy(hessian: Any, dm: np.ndarray, weighted: np.ndarray) -> np.ndarray:
    """Return second derivatives of tr(h D) - tr(S W) at constant D and W, [natm, natm, 3, 3] in Hartree/Bohr^2.

    D and W [nao, nao] are the spin-summed density and energy-weighted density. PySCF's `hcore_generator` of the object
    is used where it has terms beyond kinetic energy and bare nuclei.
    """
    mol = hessian.mol
    overlap = _two_functions(mol, "int1e_ipipovlp", "int1e_ipovlpip", -weighted)
    if not _is_bare(hessian):
        return overlap + _by_pyscf_core(hessian, dm)
    return overlap + _two_functions(mol, "int1e_ipipkin", "int1e_ipkinip", dm) + _attraction(mol, dm)


def _is_bare(hessian: Any) -> bool:
    own = type(hessian).hcore_generator is rhf_hessian.HessianBase.hcore_generator
    own = own and not users_method(hessian, "hcore_generator", "get_hcore")
    core = type(hessian).get_hcore is rhf_hessian.HessianBase.get_hcore
    mol = hessian.mol
    plain = not mol.has_ecp() and not mol._pseudo and not getattr(hessian.base, "with_x2c", None)
    # Nuclei of finite size have other integrals.
    return own and core and plain and bool((mol._atm[:, gto.NUC_MOD_OF] == gto.NUC_POINT).all())


def _by_pyscf_core(hessian: Any, dm: np.ndarray) -> np.ndarray:
    natm = hessian.mol.natm
    core = hessian.hcore_generator(hessian.mol)
    terms = np.zeros((natm, natm, 3, 3))
    for a in range(natm):
        for b in range(a + 1):
            terms[a, b] = np.einsum("xyij,ij->xy", core(a, b), dm)
            terms[b, a] = terms[a, b].T
    return terms


def _two_functions(mol: gto.Mole, both_on_one: str, one_on_each: str, dm: np.ndarray) -> np.ndarray:
    one, each = _by_atoms(mol, both_on_one, one_on_each, dm)
    terms = 2 * each
    for atom, block in enumerate(one):
        terms[atom, atom] += 2 * block
    return terms


def _by_atoms(mol: gto.Mole, both_on_one: str, one_on_each: str, dm: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return sums of (d_x d_y i| |j) D_ij by the atom of i, and of (d_x i| |d_y j) D_ij by the atoms of both."""
    starts = _starts(mol)
    matrices = (mol.intor(name, comp=9).reshape(3, 3, *dm.shape) * dm for name in (both_on_one, one_on_each))
    one, each = (np.add.reduceat(m, starts, axis=2) for m in matrices)
    atoms = _with_functions(mol)
    first, second = np.zeros((mol.natm, 3, 3)), np.zeros((mol.natm, mol.natm, 3, 3))
    first[atoms] = one.sum(axis=3).transpose(2, 0, 1)
    second[np.ix_(atoms, atoms)] = np.add.reduceat(each, starts, axis=3).transpose(2, 3, 0, 1)
    return first, second


def _with_functions(mol: gto.Mole) -> np.ndarray:
    slices = mol.aoslice_by_atom()
    return np.flatnonzero(slices[:, 3] > slices[:, 2])


def _starts(mol: gto.Mole) -> np.ndarray:
    return mol.aoslice_by_atom()[_with_functions(mol), 2]


def _attraction(mol: gto.Mole, dm: np.ndarray) -> np.ndarray:
    natm = mol.natm
    terms = np.zeros((natm, natm, 3, 3))
    diagonal = np.arange(natm)
    for nucleus in range(natm):
        charge = mol.atom_charge(nucleus)
        if not charge:
            continue
        with mol.with_rinv_at_nucleus(nucleus):
            one, each = _by_atoms(mol, "int1e_ipiprinv", "int1e_iprinvip", -charge * dm)
        functions = 2 * each
        functions[diagonal, diagonal] += 2 * one
        # By a function and the nucleus, and by the nucleus twice: minus the sums over the other two places.
        mixed = -functions.sum(axis=1)
        terms += functions
        terms[:, nucleus] += mixed
        terms[nucleus] += mixed.transpose(0, 2, 1)
        terms[nucleus, nucleus] -= mixed.sum(axis=0)
    return terms
