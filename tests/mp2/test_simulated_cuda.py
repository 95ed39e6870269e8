"""Whole calculations on the backend of GPUs, with a simulated device in its place."""

from __future__ import annotations

import functools

import numpy as np
import pytest
from pyscf import df, gto, scf
from pyscf.mp import dfump2

import trnqc
from tests.backends import simulated_cuda
from trnqc import backends
from trnqc.backends.cuda.pairs import CudaPairStep
from trnqc.errors import TrnqcError
from trnqc.types import PairEnergies


@pytest.fixture(autouse=True)
def simulated(monkeypatch):
    """The registry with a simulated device as the backend cuda."""
    monkeypatch.setitem(backends._CLASSES, "cuda", (simulated_cuda.__name__, "SimulatedCuda"))
    backends._instance.cache_clear()
    yield backends.get("cuda").simulated[0]
    backends._instance.cache_clear()


@pytest.mark.parametrize(("precision", "error"), [("fp64", 1e-9), ("fp32", 1e-6), ("bf16x3", 1e-6)])
def test_closed_shell_against_pyscf(reference, pyscf_mp2, simulated, precision, error):
    mf = reference("water")
    mp2 = trnqc.DFMP2(mf, frozen=1, backend="cuda", precision=precision).run()
    assert (mp2.e_corr_os, mp2.e_corr_ss) == pytest.approx(pyscf_mp2(mf, frozen=1), abs=error)
    assert simulated.launches > 0 and simulated.used == 0


@functools.cache
def radical() -> scf.uhf.UHF:
    mol = gto.M(atom="O 0 0 0; H 0 0.1 0.96; H 0.93 0 -0.2", basis="6-31g", charge=1, spin=1, verbose=0)
    return scf.UHF(mol).density_fit(auxbasis="cc-pvdz-jkfit").run(conv_tol=1e-12)


def test_open_shell_against_pyscf():
    mf = radical()
    peer = dfump2.DFUMP2(mf)
    peer.with_df = df.DF(mf.mol, df.make_auxbasis(mf.mol, mp2fit=True))
    peer.run()
    ours = trnqc.DFMP2(mf, backend="cuda").run()
    assert (ours.e_corr_os, ours.e_corr_ss) == pytest.approx((peer.e_corr_os, peer.e_corr_ss), abs=1e-9)


@functools.cache
def gradient_on_cpu() -> np.ndarray:
    return trnqc.DFMP2(radical()).run().nuc_grad_method().kernel()


@pytest.mark.parametrize(("precision", "error"), [("fp64", 1e-10), ("bf16x3", 1e-5)])
def test_gradients_with_gamma_of_a_device(precision, error):
    gradients = trnqc.DFMP2(radical(), backend="cuda", precision=precision).run().nuc_grad_method()
    assert np.abs(gradients.kernel() - gradient_on_cpu()).max() < error
    assert "simulated 0; generated kernels" in gradients.relaxation.sums.ran_on


def test_energies_that_are_not_finite_are_refused(reference, monkeypatch):
    computed = CudaPairStep.triangle

    def spoiled(self, B, *arguments) -> PairEnergies:
        B[0, 0, 0] = np.nan
        return computed(self, B, *arguments)

    monkeypatch.setattr(CudaPairStep, "triangle", spoiled)
    with pytest.raises(TrnqcError, match=r"simulated 0; generated .* pair energies that are not finite"):
        trnqc.DFMP2(reference("water"), backend="cuda").kernel()
