"""Energies, gradients and dipoles of DF-MP2 at one geometry and field, for the checks by finite differences."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from pyscf import gto, scf

import trnqc
from scripts.mp2_properties.molecules import Molecule

# Factors (c_os, c_ss) of MP2 and SCS-MP2.
SCALINGS = {"MP2": (1.0, 1.0), "SCS-MP2": (6 / 5, 1 / 3)}
# Hartree, and Hartree of the orbital gradient. The error of an energy is quadratic in that of its orbitals for HF and
# linear for MP2: both are then below 1e-11 Hartree, which differences over 2e-3 Bohr turn into 5e-9 Hartree/Bohr. The
# energy itself is not rounded to less than 1e-12 Hartree in molecules with second-row atoms.
SCF_TOLERANCES = {"conv_tol": 1e-11, "conv_tol_grad": 1e-9, "max_cycle": 20}
# DIIS slows down near 1e-8 in open shells, and goes on when it is started again from the last density.
SCF_STARTS = 10
# The relaxed density of the checks is converged further than by default.
Z_VECTOR_TOLERANCE = 1e-11


@dataclass(frozen=True)
class Variant:
    """How the energy is defined: the SCF, the frozen orbitals and the scaling of the spin components."""

    fitted: bool
    frozen: int
    scaling: str

    @property
    def label(self) -> str:
        """The variant in words."""
        words = [
            "fitted" if self.fitted else "conventional",
            f"{self.frozen} frozen" if self.frozen else "all electrons",
        ]
        return ", ".join([self.scaling, *words])


def run_scf(
    molecule: Molecule, mol: gto.Mole, fitted: bool, density: Any = None, field: np.ndarray | None = None
) -> Any:
    """Run RHF or UHF with PySCF's integrals, from a density if there is one, in an electric field if there is one."""
    # Analytic gradients are not exact where nearly dependent combinations of functions are removed, because these
    # combinations change with the geometry.
    scf.hf.remove_overlap_zero_eigenvalue = False
    mf = (scf.UHF if mol.spin else scf.RHF)(mol)
    if fitted:
        mf = mf.density_fit(auxbasis=molecule.fitting)
    if field is not None:
        core = mf.get_hcore() + np.einsum("x,xmn->mn", field, mol.intor("int1e_r"))
        mf.get_hcore = lambda *_: core
    for name, value in SCF_TOLERANCES.items():
        setattr(mf, name, value)
    mf.chkfile = None
    for _ in range(SCF_STARTS):
        mf.kernel(density)
        if mf.converged:
            break
        density = mf.make_rdm1()
    if not mf.converged:
        raise SystemExit(f"the SCF of {molecule.atoms} has not converged")
    return mf


class Method:
    """DF-MP2 on a converged SCF object with the MP2-fitting basis of its orbital basis."""

    def __init__(self, mf: Any, frozen: int) -> None:
        self.mp = trnqc.DFMP2(mf, frozen=frozen, backend="cpu", threads=1)
        self.mp.cphf_tol = Z_VECTOR_TOLERANCE

    def energies(self) -> dict[str, float]:
        """Total energies by scaling, Hartree."""
        self.mp.kernel()
        result = self.mp.result
        assert result is not None, "kernel sets the result"
        return {
            name: self.mp.e_hf + c_os * result.e_corr_os + c_ss * result.e_corr_ss
            for name, (c_os, c_ss) in SCALINGS.items()
        }

    def gradient_and_position(self, scaling: str) -> tuple[np.ndarray, np.ndarray]:
        """The gradient [natm, 3] in Hartree/Bohr, and Σ <r> of the electrons by the relaxed density, Bohr."""
        self.mp.gradient_scaling = SCALINGS[scaling]
        gradients = self.mp.nuc_grad_method()
        gradients.verbose = 0
        gradient = gradients.kernel()
        density = gradients.relaxation.density.rdm1(ao_repr=True)
        nao = density.shape[-1]
        total = density.reshape(-1, nao, nao).sum(axis=0)
        return gradient, np.einsum("xmn,mn->x", self.mp.mol.intor("int1e_r"), total)
