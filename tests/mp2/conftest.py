"""Small references, run once a session, and the two oracles: PySCF on the same object, and the bare formula."""

from __future__ import annotations

import numpy as np
import pytest
from pyscf import df, gto, scf
from pyscf.mp import dfmp2


def rhf(atom: str, basis: str, *, charge: int = 0, fit: bool = True, **more):
    mol = gto.M(atom=atom, basis=basis, charge=charge, verbose=0, **more)
    mf = scf.RHF(mol)
    if fit:
        mf = mf.density_fit()
    return mf.run(conv_tol=1e-11)


WATER = "O 0 0 0.1173; H 0 0.7572 -0.4692; H 0 -0.7572 -0.4692"
MAKERS = {
    "water": lambda: rhf(WATER, "cc-pvdz"),
    "water conventional": lambda: rhf(WATER, "cc-pvdz", fit=False),
    "hydroxide": lambda: rhf("O 0 0 0; H 0 0 0.964", "aug-cc-pvdz", charge=-1),
    "hydrogen sulfide": lambda: rhf("S 0 0 0.1030; H 0 0.9616 -0.8239; H 0 -0.9616 -0.8239", "cc-pvdz"),
    "hydrogen": lambda: rhf("H 0 0 0; H 0 0 0.741", "cc-pvtz"),
    "small hydrogen": lambda: rhf("H 0 0 0; H 0 0 0.741", "6-31g"),
    "hydrogen iodide": lambda: rhf("I 0 0 0; H 0 0 1.609", "def2-svp", ecp={"I": "def2-svp"}),
    "cartesian water": lambda: rhf(WATER, "cc-pvdz", cart=True),
}


@pytest.fixture(scope="session")
def reference():
    """reference(name) -> a converged RHF object."""
    references = {}

    def get(name: str):
        if name not in references:
            references[name] = MAKERS[name]()
        return references[name]

    return get


@pytest.fixture(scope="session")
def pyscf_mp2():
    """pyscf_mp2(mf, frozen, auxbasis) -> (E_os, E_ss) of PySCF's dfmp2 with the same auxiliary basis."""

    def energies(mf, frozen=None, auxbasis=None) -> tuple[float, float]:
        peer = dfmp2.DFMP2(mf, frozen=frozen)
        peer.with_df = df.DF(mf.mol)
        peer.with_df.auxbasis = auxbasis or df.make_auxbasis(mf.mol, mp2fit=True)
        peer.kernel(with_t2=False)
        return float(peer.e_corr_os), float(peer.e_corr_ss)

    return energies


@pytest.fixture(scope="session")
def formula():
    """formula(B, eps_occ, eps_vir) -> pair energies (os, ss) written as the textbook sums, without any symmetry."""

    def pairs(B, eps_occ, eps_vir) -> tuple[np.ndarray, np.ndarray]:
        t = np.einsum("iaP,jbP->ijab", B, B)
        o, v = np.asarray(eps_occ), np.asarray(eps_vir)
        d = o[:, None, None, None] + o[None, :, None, None] - v[:, None] - v
        os = (t * t / d).sum((2, 3))
        ss = (t * (t - t.transpose(0, 1, 3, 2)) / d).sum((2, 3))
        return tuple(np.tril(e + e.T) - np.diag(e.diagonal()) for e in (os, ss))

    return pairs


@pytest.fixture(scope="session")
def factors_like():
    """factors_like(nocc, nvir, naux, seed) -> B, eps_occ, eps_vir of plausible size, a gap of 0.6 Hartree."""

    def make(nocc: int, nvir: int, naux: int, seed: int = 7):
        rng = np.random.default_rng(seed)
        B = 0.1 * rng.standard_normal((nocc, nvir, naux)) / np.sqrt(naux)
        return B, -0.4 - rng.random(nocc), 0.2 + 2 * rng.random(nvir)

    return make
