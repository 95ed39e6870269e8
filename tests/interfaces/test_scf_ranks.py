"""Hartree-Fock and Kohn-Sham jobs of several ranks have the numbers of one process, whatever ranks share of them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from pyscf import dft, gto, scf

import trnqc
from tests.mp2.thread_ranks import on_threads
from trnqc.eri.jk.builder import JKBuilder
from trnqc.errors import CompilerError, MemoryLimit, NotConverged
from trnqc.interfaces.mean_field.job import MeanFieldJob
from trnqc.interfaces.mean_field.run import Tasks, run
from trnqc.mp2.reference.molecule import Geometry, load_geometry
from trnqc.pyscf.early import precision, quadrature
from trnqc.pyscf.shared import fitting
from trnqc.pyscf.shared.attach import attach
from trnqc.pyscf.shared.work import KEPT, SharedWork

WATER = load_geometry("water")
# Converged tightly: gradients depend on the last cycles, which begin from other rounding errors.
JOB = MeanFieldJob(WATER, "sto-3g", auxbasis="weigend", conv_tol=1e-12, grid=1, memory=4e9)
CATION = replace(JOB, geometry=load_geometry("water", 1, None))
HELIUM = Geometry("helium", ("He",), ((0.1, 0.2, 0.3),))
HYDROGEN = Geometry("hydrogen", ("H", "H"), ((0.0, 0.0, 0.0), (0.1, 0.2, 0.8)))
GRADIENT = Tasks(gradient=True)

CORE = {"gradient of the attraction by nuclei"}
FITTED = {"fitted integrals", "fitted J and K", "gradient of fitted J and K"} | CORE
DIRECT = {"J and K", "derivatives of J and K"} | CORE
GRID = {"exchange and correlation", "gradient of exchange and correlation"}
# The job and what the ranks share of it.
CASES = {
    "RHF": (JOB, FITTED),
    "RHF, direct": (replace(JOB, direct=True), DIRECT),
    "UHF": (CATION, FITTED),
    "ROHF, direct": (replace(CATION, direct=True, reference="rohf"), DIRECT),
    "LDA": (replace(JOB, xc="lda,vwn"), FITTED | GRID),
    "GGA, direct": (replace(JOB, xc="pbe", direct=True), DIRECT | GRID),
    "meta-GGA": (replace(JOB, xc="r2scan"), FITTED | GRID),
    "hybrid": (replace(JOB, xc="b3lyp"), FITTED | GRID),
    "hybrid, direct exchange": (replace(JOB, xc="pbe0", exchange="direct"), (FITTED | GRID) | {"J and K"}),
    "range-separated hybrid": (replace(JOB, xc="camb3lyp"), FITTED | GRID),
    "nonlocal correlation": (replace(JOB, xc="b97m-v", geometry=HYDROGEN), FITTED | GRID),
    "UKS": (replace(CATION, xc="pbe0"), FITTED | GRID),
    "ROKS": (replace(CATION, xc="pbe", reference="rohf"), FITTED | GRID),
    "solvent": (replace(JOB, xc="pbe", solvent="water", solvent_model="c-pcm"), FITTED | GRID),
}


@pytest.fixture(autouse=True)
def direct_is_direct(monkeypatch):
    """Integrals in memory would be those of rank 0."""
    monkeypatch.setattr(scf.hf.SCF, "_is_mem_enough", lambda self: False)


def on_ranks(size, work):
    """What work(shared) returns on rank 0, which the other ranks serve."""

    def of(ranks):
        shared = SharedWork(ranks)
        if ranks.rank:
            return shared.serve()
        result = work(shared)
        shared.end()
        return result

    first, *others = on_threads(size, of)
    assert others == [None] * (size - 1)
    return first


def shared_run(job, tasks=None, size=2):
    return on_ranks(size, lambda shared: run(job, tasks, shared=shared)[0])


def assert_same(result, alone):
    assert result.e_tot == pytest.approx(alone.e_tot, abs=1e-10)
    if alone.gradient is not None:
        assert result.gradient == pytest.approx(alone.gradient, abs=1e-8)


@pytest.mark.parametrize("case", CASES)
def test_energies_and_gradients_are_those_of_one_process(case):
    job, words = CASES[case]
    alone, result = run(job, GRADIENT)[0], shared_run(job, GRADIENT)
    assert_same(result, alone)
    assert result.ranks == 2 and set(result.shared) == words
    assert "on each of 2 ranks" in result.ran_on
    assert (alone.ranks, alone.shared) == (1, ()) and "ranks" not in alone.ran_on


def test_early_cycles_are_shared_with_their_grids_and_their_precision(monkeypatch):
    monkeypatch.setattr(precision, "SMALLEST", 0)
    monkeypatch.setattr(quadrature, "SMALLEST", 0)
    for job in (replace(JOB, xc="b3lyp", grid=3), replace(CATION, xc="pbe0", grid=3)):
        alone, result = run(job, GRADIENT)[0], shared_run(job, GRADIENT, 3)
        assert_same(result, alone)
        for words in ("on each of 3 ranks", "on coarse grids", "in single precision"):
            assert words in result.ran_on


@pytest.mark.parametrize("xc", ["hf", "pbe"])
def test_more_ranks_than_blocks_of_a_grid_and_rows_of_a_fitting_set(xc):
    job = replace(JOB, geometry=HELIUM, grid=0, xc=xc)
    assert_same(shared_run(job, GRADIENT, 5), run(job, GRADIENT)[0])


def test_an_optimisation_takes_the_ranks_along():
    pytest.importorskip("geometric")
    job, tasks = replace(JOB, xc="pbe"), Tasks(optimize=True, max_steps=2)
    alone, result = run(job, tasks)[0], shared_run(job, tasks)
    assert_same(result, alone)
    steps = [[step.energy for step in one.optimization.steps] for one in (alone, result)]
    assert len(steps[0]) > 1 and steps[1] == pytest.approx(steps[0], abs=1e-10)
    end, other, begin = (np.array(geometry.coordinates) for geometry in (result.geometry, alone.geometry, WATER))
    assert end == pytest.approx(other, abs=1e-7)
    assert np.abs(end - begin).max() > 1e-3


def test_several_molecules_one_after_another():
    jobs = [replace(JOB, xc="pbe"), replace(CATION, direct=True), replace(JOB, xc="pbe0", geometry=HELIUM)]

    def work(shared):
        results = [run(job, GRADIENT, shared=shared)[0] for job in jobs]
        assert len(shared._blocks) <= KEPT and len(shared._fittings) == 1
        return results

    for result, job in zip(on_ranks(2, work), jobs):
        assert_same(result, run(job, GRADIENT)[0])
        assert ("exchange and correlation" in result.shared) == (job.xc != "hf")


def test_excited_states_on_rank_0_ask_all_ranks_for_j_and_k():
    job, tasks = replace(JOB, xc="pbe0"), Tasks(states=2)
    alone, result = run(job, tasks)[0], shared_run(job, tasks)
    assert [s.energy for s in result.excitations] == pytest.approx([s.energy for s in alone.excitations], abs=1e-5)


def test_pyscf_and_integrals_in_memory_stay_on_rank_0(monkeypatch):
    monkeypatch.setattr(scf.hf.SCF, "_is_mem_enough", lambda self: True)
    for job in (replace(JOB, scf="pyscf"), replace(JOB, direct=True)):
        result = shared_run(job)
        assert_same(result, run(job)[0])
        assert result.shared == () and "ranks" not in result.ran_on


def no_compiler(*_):
    raise CompilerError("none here")


@pytest.mark.parametrize("change", [{"bytes_of_a_rank": lambda *_: np.inf}, {"prepared": no_compiler}], ids=list)
def test_fitted_integrals_that_ranks_cannot_share_are_those_of_rank_0(monkeypatch, change):
    for name, function in change.items():
        monkeypatch.setattr(fitting, name, function)
    job = replace(JOB, xc="camb3lyp")
    result = shared_run(job, GRADIENT)
    assert_same(result, run(job, GRADIENT)[0])
    assert set(result.shared) == GRID | CORE


def test_ranks_without_memory_for_j_and_k_leave_them_to_pyscf_on_rank_0(monkeypatch):
    def no_memory(self):
        raise MemoryLimit("too little")

    job = replace(JOB, direct=True)
    alone = run(job)[0]
    monkeypatch.setattr(JKBuilder, "_densities_of_a_pass", no_memory)
    result = shared_run(job)
    assert_same(result, alone)
    assert result.ran_on == "PySCF: too little"


def test_a_functional_of_the_user_stays_on_rank_0():
    mol = gto.M(atom="He 0 0 0; He 0 0 2", basis="sto-3g", verbose=0)

    def half_of_lda(xc_code, rho, spin=0, relativity=0, deriv=1, omega=None, verbose=None):
        exc, vxc, *rest = dft.libxc.eval_xc("lda,vwn", rho, spin, relativity, deriv, omega, verbose)
        return exc / 2, (vxc[0] / 2, *vxc[1:]), *rest

    def method():
        mf = trnqc.accelerate(dft.RKS(mol).density_fit(), kernels="wait").set(conv_tol=1e-11)
        return mf.define_xc_(half_of_lda, "LDA")

    def work(shared):
        mf = method()
        attach(mf, shared)
        return mf.kernel(), mf.nuc_grad_method().kernel(), tuple(shared.done)

    alone = method()
    energy, gradient, words = on_ranks(2, work)
    assert energy == pytest.approx(alone.kernel(), abs=1e-10)
    assert gradient == pytest.approx(alone.nuc_grad_method().kernel(), abs=1e-8)
    assert set(words) == FITTED


def test_the_object_without_the_layer_asks_no_ranks():
    def work(shared):
        mf = trnqc.accelerate(dft.RKS(gto.M(atom="He", basis="sto-3g", verbose=0)).density_fit(), kernels="wait")
        attach(mf, shared)
        mf.run()
        count, plain = len(shared.done), mf.undo()
        shared.done.clear()
        plain.kernel()
        assert not shared.done and count
        assert not {"_shared", "team", "shared"} & (plain.__dict__.keys() | plain._numint.__dict__.keys())
        assert "shared" not in plain.with_df.__dict__
        return plain.e_tot - mf.e_tot

    assert on_ranks(2, work) == pytest.approx(0, abs=1e-9)


def test_objects_with_other_fitting_sets_get_their_own_integrals():
    mol = gto.M(atom="He 0 0 0; He 0 0 2", basis="sto-3g", verbose=0)

    def method(auxbasis):
        return trnqc.accelerate(scf.RHF(mol).density_fit(auxbasis=auxbasis), kernels="wait")

    def work(shared):
        first, second = map(method, ("weigend", "def2-svp-ri"))
        for mf in (first, second):
            attach(mf, shared)
        return [mf.kernel() for mf in (first, second)] + [first.energy_tot(first.make_rdm1())]

    alone = [method(auxbasis).kernel() for auxbasis in ("weigend", "def2-svp-ri", "weigend")]
    assert abs(alone[0] - alone[1]) > 1e-7
    assert on_ranks(2, work) == pytest.approx(alone, abs=1e-10)


def test_an_scf_that_does_not_converge_ends_the_job():
    with pytest.raises(NotConverged):
        shared_run(replace(JOB, xc="pbe", max_cycle=1))
