"""Coupled cluster with fitted integrals from its text, against PySCF's."""

from __future__ import annotations

from functools import cache

import numpy as np
import pytest
from pyscf import gto, scf
from pyscf.cc import dfccsd

from examples import df_rccsd
from trnqc.contraction import einsum_plan, parse
from trnqc.errors import MemoryLimit, NotConverged

WATER = "O 0 0 0.1173; H 0 0.7572 -0.4692; H 0 -0.7572 -0.4692"


@cache
def reference(atoms: str = WATER, basis: str = "6-31g") -> scf.hf.RHF:
    return scf.RHF(gto.M(atom=atoms, basis=basis, verbose=0)).run(conv_tol=1e-13, conv_tol_grad=1e-8)


def coupled_cluster(frozen: int | None = None, mf: scf.hf.RHF | None = None) -> dfccsd.RCCSD:
    return dfccsd.RCCSD(mf or reference(), frozen=frozen)


@pytest.mark.parametrize("limit", [None, 200_000])
def test_an_iteration_for_any_amplitudes(limit):
    """Amplitudes far from the solution, with singles as large as doubles, so that every term counts."""
    cc, rng = coupled_cluster(), np.random.default_rng(1)
    eris, arrays = cc.ao2mo(), df_rccsd.operands(cc)
    t1 = 0.1 * rng.standard_normal(arrays["d1"].shape)
    t2 = 0.1 * rng.standard_normal(arrays["d2"].shape)
    t2 += t2.transpose(1, 0, 3, 2)
    program = parse(df_rccsd.EQUATIONS).shaped({name: arrays[name].shape for name in ("Bov", "d1")})
    new = einsum_plan(program, outputs=df_rccsd.OUTPUTS, memory_limit=limit).run(arrays | {"t1": t1, "t2": t2})
    n1, n2 = cc.update_amps(t1, t2, eris)
    np.testing.assert_allclose(new["n1"], n1, rtol=0, atol=1e-9)
    np.testing.assert_allclose(new["n2"], n2, rtol=0, atol=1e-9)
    assert abs(float(new["energy"]) - cc.energy(t1, t2, eris)) < 1e-9


@pytest.mark.parametrize("frozen", [None, 1])
def test_energies(frozen):
    cc = coupled_cluster(frozen)
    energy, t1, t2 = df_rccsd.solve(cc, 1e-11, 1e-8, progress=lambda line: None)
    cc.run(conv_tol=1e-11, conv_tol_normt=1e-8)
    assert abs(energy - cc.e_corr) < 1e-9
    assert abs(t1 - cc.t1).max() < 1e-6 and abs(t2 - cc.t2).max() < 1e-6


def test_the_fitting_set_of_the_reference():
    """Like PySCF, the integrals of a reference with density fitting are its own."""
    mf = (
        scf.RHF(gto.M(atom="H 0 0 0; F 0 0 0.917", basis="6-31g", verbose=0)).density_fit("weigend").run(conv_tol=1e-12)
    )
    cc = coupled_cluster(mf=mf)
    energy, _, _ = df_rccsd.solve(cc, 1e-11, 1e-8, progress=lambda line: None)
    assert abs(energy - cc.run(conv_tol=1e-11, conv_tol_normt=1e-8).e_corr) < 1e-9


def test_what_it_refuses():
    with pytest.raises(NotConverged, match="did not stand after 2 iterations"):
        df_rccsd.solve(coupled_cluster(), most=2, progress=lambda line: None)
    with pytest.raises(MemoryLimit, match="raise it to"):
        df_rccsd.solve(coupled_cluster(), memory_limit=1000, progress=lambda line: None)


def test_the_command_line(capsys):
    assert df_rccsd.main(["water", "--basis", "sto-3g", "--frozen", "1"]) == 0
    assert float(capsys.readouterr().out.rsplit("difference ", 1)[1]) < 1e-7
