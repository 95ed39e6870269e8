"""SCF objects, optionally in an electric field, and the arguments of `correlation_density` that belong to them."""

from __future__ import annotations

from functools import cache

import numpy as np
from pyscf import gto, scf

from trnqc.mp2.execution import Execution, choose
from trnqc.mp2.factors.auxiliary_basis import auxiliary_basis
from trnqc.mp2.factors.build import build_factors
from trnqc.mp2.reference.orbitals import active_orbitals
from trnqc.mp2.reference.spins import spin_orbitals

# Bent and without symmetry planes other than its own, so that two components of the dipole differ from zero.
WATER = "O 0.1 0 0.1173; H 0 0.7572 -0.4692; H 0 -0.7 -0.4692"
MOLECULES = {
    "water": {"atom": WATER},
    "water cation": {"atom": WATER, "charge": 1, "spin": 1},
    "nitrogen": {"atom": "N 0 0 0; N 0.3 0.5 0.95"},
    "ammonia": {"atom": "N 0 0 0.1; H 0.94 0 -0.27; H -0.47 0.8141 -0.27; H -0.47 -0.8141 -0.27"},
}


@cache
def converged(name: str, fitted: bool, field: tuple[float, float, float] = (0.0, 0.0, 0.0), basis: str = "6-31g"):
    """A converged RHF or UHF object, whose electrons are in a uniform electric field."""
    mol = gto.M(**MOLECULES[name], basis=basis, verbose=0)
    mf = (scf.UHF if mol.spin else scf.RHF)(mol)
    if fitted:
        mf = mf.density_fit(auxbasis="cc-pvdz-jkfit")
    core = mf.get_hcore() + np.einsum("x,xij->ij", field, mol.intor("int1e_r"))
    mf.get_hcore = lambda *args: core
    return mf.run(conv_tol=1e-13, conv_tol_grad=1e-9, max_cycle=100)


class Parts:
    """Orbitals, factors and auxiliary functions of an SCF object."""

    def __init__(self, mf, frozen=None, memory: float = np.inf, threads: int = 1) -> None:
        self.mf, self.auxmol = mf, auxiliary_basis(mf.mol, "cc-pvdz-ri").auxmol
        self.execution = Execution(choose("cpu"), threads=threads, memory=memory)
        self.spins = spin_orbitals(mf.mo_coeff, mf.mo_energy, mf.mo_occ, frozen)
        arrays = mf.mo_coeff, mf.mo_energy, mf.mo_occ
        orbitals = [arrays] if len(self.spins) == 1 else list(zip(*arrays))
        self.factors = [
            build_factors(mf.mol, self.auxmol, [active_orbitals(*one, frozen)], self.execution) for one in orbitals
        ]

    @property
    def arguments(self):
        return self.mf, self.spins, self.factors, self.auxmol, self.execution
