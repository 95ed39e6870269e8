"""SCF energies, gradients and MP2 of molecules, beside PySCF. Every job begins with the geometry."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from trnqc.bench.case import OURS, Case, Work

# Relative differences of energies and gradients. Both sides converge the energy to 1e-9 Hartree.
ENERGY, GRADIENT = 1e-9, 1e-5


def _mean_field(who: str, molecule: str, basis: str, functional: str, fitted: bool) -> Any:
    """An SCF object of a contestant that has not been run."""
    from pyscf import dft, scf

    from trnqc.mp2.reference.molecule import build_mole, load_geometry
    from trnqc.pyscf.accelerate import accelerate

    mol = build_mole(load_geometry(molecule), basis)
    mol.verbose = 0
    mf = scf.RHF(mol) if functional == "HF" else dft.RKS(mol, xc=functional)
    mf = mf.density_fit() if fitted else mf
    return accelerate(mf) if who == OURS else mf


def _energy(who: str, *method: Any) -> Callable[[], Work]:
    def prepare() -> Work:
        _mean_field(who, *method)  # loads the libraries
        return lambda: _mean_field(who, *method).kernel()

    return prepare


def _gradient(who: str, *method: Any) -> Callable[[], Work]:
    def prepare() -> Work:
        mf = _mean_field(who, *method)
        mf.kernel()
        return lambda: mf.nuc_grad_method().kernel()

    return prepare


def _mp2(who: str, *method: Any) -> Callable[[], Work]:
    """Correlation energies by the same fitting set, which is the RI set of the basis."""

    def prepare() -> Work:
        from pyscf import df
        from pyscf.mp import dfmp2

        from trnqc.mp2.dfmp2 import DFMP2
        from trnqc.mp2.factors.auxiliary_basis import auxiliary_basis

        def work() -> float:
            mf = _mean_field(who, *method).run()
            auxbasis = auxiliary_basis(mf.mol, None).auxmol.basis
            if who == OURS:
                return float(DFMP2(mf, auxbasis, backend="cpu").kernel()[0])
            mp2 = dfmp2.DFMP2(mf)
            mp2.with_df = df.DF(mf.mol, auxbasis)
            return float(mp2.kernel(with_t2=False)[0])

        return work

    return prepare


def _case(
    name: str,
    what: str,
    job: Callable[..., Callable[[], Work]],
    *method: Any,
    tolerance: float = ENERGY,
    full: bool = False,
    blas: bool = True,
) -> Case:
    molecule, basis, functional, fitted = method
    words = f"{what} of {molecule}, {functional}/{basis}, {'density fitting' if fitted else 'no density fitting'}"
    both = {who: job(who, *method) for who in ("PySCF", OURS)}
    return Case(name, "Molecules", words, "PySCF", (), both, tolerance, full, blas)


CASES = (
    # Direct Hartree-Fock computes integrals and few products of matrices.
    _case("hf", "energy", _energy, "benzene", "cc-pvdz", "HF", False, blas=False),
    _case("dft", "energy", _energy, "water2", "def2-svp", "B3LYP", True),
    _case("gradient", "gradient", _gradient, "water2", "def2-svp", "B3LYP", True, tolerance=GRADIENT),
    _case("mp2", "SCF and MP2 energy", _mp2, "benzene", "cc-pvdz", "HF", True),
    _case("hf-large", "energy", _energy, "caffeine", "def2-svp", "HF", False, full=True, blas=False),
    _case("dft-large", "energy", _energy, "caffeine", "def2-svp", "B3LYP", True, full=True),
    _case("dft-direct", "energy", _energy, "caffeine", "def2-svp", "B3LYP", False, full=True),
    _case(
        "gradient-large", "gradient", _gradient, "caffeine", "def2-svp", "B3LYP", True, tolerance=GRADIENT, full=True
    ),
    _case("mp2-large", "SCF and MP2 energy", _mp2, "caffeine", "cc-pvdz", "HF", True, full=True),
)
