"""Our DIIS beside PySCF's."""

from __future__ import annotations

import numpy as np
import pytest
from pyscf import gto, lib, scf

import trnqc
from trnqc.pyscf.diis import CDIIS

METHODS = [scf.RHF, scf.UHF, scf.ROHF]


def symmetric(rng: np.random.Generator, *shape: int) -> np.ndarray:
    a = rng.standard_normal((*shape, 9, 9))
    return a + a.swapaxes(-1, -2)


@pytest.mark.parametrize("shape", [(), (2,)], ids=["one spin", "two spins"])
@pytest.mark.parametrize("more", [{}, {"damp": 0.3}], ids=str)
def test_extrapolated_matrices_are_those_of_pyscf(shape, more):
    rng = np.random.default_rng(3)
    overlap, orthonormal = np.eye(9) + 0.05 * symmetric(rng), rng.standard_normal((9, 8))
    ours, theirs = (cls(None) for cls in (CDIIS, scf.diis.CDIIS))
    last = None
    for diis in (ours, theirs):
        diis.verbose, diis.Corth = 0, orthonormal
        diis.__dict__.update(more)
    for _ in range(5):
        d, f = symmetric(rng, *shape), symmetric(rng, *shape)
        a, b = (diis.update(overlap, d, f, f_prev=last) for diis in (ours, theirs))
        np.testing.assert_allclose(a, b, rtol=0, atol=1e-10)
        np.testing.assert_allclose(ours.get_err_vec(0), theirs.get_err_vec(0), rtol=0, atol=1e-11)
        last = f


@pytest.mark.parametrize("method", METHODS, ids=lambda m: m.__name__)
@pytest.mark.parametrize("symmetry", [False, True], ids=["no symmetry", "symmetry"])
def test_cycles_are_those_of_pyscf(method, symmetry):
    spin = {} if method is scf.RHF else {"charge": 1, "spin": 1}
    mol = gto.M(atom="O 0 0 0.1; H 0 0.8 -0.5; H 0 -0.8 -0.5", basis="6-31g", symmetry=symmetry, verbose=0, **spin)
    theirs = method(mol).run()
    ours = trnqc.accelerate(method(mol)).run()
    assert ours.DIIS is CDIIS and ours.undo().DIIS is scf.diis.CDIIS
    assert ours.cycles == theirs.cycles
    assert ours.e_tot == pytest.approx(theirs.e_tot, abs=1e-9)


def test_another_diis_of_the_user_stays():
    mf = scf.RHF(gto.M(atom="He", verbose=0))
    mf.DIIS = scf.ADIIS
    assert trnqc.accelerate(mf).DIIS is scf.ADIIS
    mf.diis = False
    assert trnqc.accelerate(mf).run().converged
    assert isinstance(CDIIS(mf), lib.diis.DIIS)
