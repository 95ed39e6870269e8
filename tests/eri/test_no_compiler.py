"""Jobs on machines without a C compiler: PySCF's code serves, and every result says so."""

from __future__ import annotations

import numpy as np
import pytest
from pyscf import dft, gto, scf

import trnqc
from trnqc.eri.compiled import background
from trnqc.errors import CompilerError


@pytest.fixture(autouse=True)
def no_compiler(monkeypatch):
    monkeypatch.setenv("CC", "no-such-compiler")
    monkeypatch.setattr(background, "_warned", None)


@pytest.fixture
def mol():
    return gto.M(atom="O; H 1 0.96; H 1 0.96 2 104", basis="6-31g", verbose=0)


def objects(mol):
    direct = scf.RHF(mol)
    direct.max_memory = 0
    return {
        "memory": scf.RHF(mol),
        "direct": direct,
        "fitted": scf.RHF(mol).density_fit(),
        "quadrature": dft.RKS(mol, xc="b3lyp").set(grids=dft.Grids(mol).set(level=0)),
    }


@pytest.mark.parametrize("way", ["memory", "direct", "fitted", "quadrature"])
@pytest.mark.parametrize("kernels", ["background", "cached"])
def test_energies_and_gradients_are_those_of_pyscf(mol, way, kernels):
    plain = objects(mol)[way].run(conv_tol=1e-11)
    with pytest.warns(RuntimeWarning, match="PySCF's own code is used instead of compiled kernels"):
        mf = trnqc.accelerate(objects(mol)[way], kernels=kernels).run(conv_tol=1e-11)
    assert abs(mf.e_tot - plain.e_tot) < 1e-10
    assert "PySCF" in mf.ran_on and "there is no C compiler" in mf.ran_on
    gradients = mf.nuc_grad_method()
    np.testing.assert_allclose(gradients.kernel(), plain.nuc_grad_method().kernel(), atol=1e-7)
    assert "PySCF" in gradients.ran_on


def test_the_hessian_is_that_of_pyscf(mol):
    with pytest.warns(RuntimeWarning):
        mf = trnqc.accelerate(scf.RHF(mol), kernels="background").run(conv_tol=1e-12)
    np.testing.assert_allclose(mf.Hessian().kernel(), mf.undo().Hessian().kernel(), atol=1e-7)


def test_waiting_for_kernels_is_an_error_that_says_what_to_install(mol):
    with pytest.raises(CompilerError, match="install one"):
        trnqc.accelerate(scf.RHF(mol), kernels="wait").run()


def test_seminumerical_exchange_has_no_replacement(mol):
    with pytest.raises(CompilerError, match="install one"):
        trnqc.accelerate(scf.RHF(mol), exchange="seminumerical").run()
