"""Jobs of several ranks that share their SCF give the digits of one process, whatever computes J and K."""

from __future__ import annotations

import dataclasses

import pytest
from pyscf import scf

from tests.mp2.thread_ranks import on_threads
from trnqc.errors import CompilerError, NotConverged, UnsupportedError
from trnqc.mp2.job import Job
from trnqc.mp2.reference.molecule import load_geometry
from trnqc.mp2.run import run
from trnqc.pyscf.early import precision
from trnqc.pyscf.shared import fitting
from trnqc.pyscf.shared.work import SharedWork

JOB = Job(load_geometry("water2"), "6-31g", "cc-pvdz-ri", backend="cpu", threads=1, memory=4e9)
FOUR_CENTRE = dataclasses.replace(JOB, density_fit=False)
# Job, whether all integrals fit into memory, and what the result says.
CASES = {
    "fitted": (JOB, True, "on each of {} ranks"),
    "direct": (FOUR_CENTRE, False, "on each of {} ranks"),
    "in memory": (FOUR_CENTRE, True, "in memory"),
}


@pytest.mark.parametrize("case", CASES)
def test_the_digits_are_those_of_one_process(monkeypatch, case):
    job, fits, words = CASES[case]
    monkeypatch.setattr(scf.hf.SCF, "_is_mem_enough", lambda self: fits)
    alone = run(job)
    for size in (2, 3):
        results = on_threads(size, lambda ranks: run(job, ranks=ranks))
        for result in results:
            assert words.format(size) in result.system.scf_ran_on
            assert (result.e_hf, result.pairs) == (alone.e_hf, alone.pairs)


def test_early_cycles_in_single_precision_have_the_digits_of_one_process(monkeypatch):
    monkeypatch.setattr(precision, "SMALLEST", 0)
    alone = run(JOB)
    for result in on_threads(2, lambda ranks: run(JOB, ranks=ranks)):
        assert "on each of 2 ranks; the potentials after cycles 0, 1" in result.system.scf_ran_on
        assert (result.e_hf, result.pairs) == (alone.e_hf, alone.pairs)


@pytest.mark.parametrize("reference", ["uhf", "rohf"])
def test_open_shells_have_the_digits_of_one_process(tmp_path, reference):
    job = Job(load_geometry("water", 1, None), "6-31g", "cc-pvdz-ri", backend="cpu", threads=1, memory=4e9)
    job = dataclasses.replace(job, reference=reference)
    alone, kept = run(job), dataclasses.replace(job, checkpoint=tmp_path / "kept")
    for result in [*on_threads(2, lambda ranks: run(job, ranks=ranks)), run(kept), run(kept)]:
        assert (result.e_hf, result.e_singles) == (alone.e_hf, alone.e_singles)
        assert result.e_corr == pytest.approx(alone.e_corr, abs=1e-13)
    assert (alone.e_singles < -1e-5) == (reference == "rohf")
    assert alone.system.scf.startswith(reference.upper())


@pytest.mark.parametrize("change", [{"bytes_of_a_rank": lambda *_: float("inf")}, {"prepared": None}], ids=list)
def test_what_ranks_cannot_share_runs_on_rank_0(monkeypatch, change):
    def no_compiler(*_):
        raise CompilerError("none here")

    for name, function in change.items():
        monkeypatch.setattr(fitting, name, function or no_compiler)
    alone = run(JOB)
    for result in on_threads(2, lambda ranks: run(JOB, ranks=ranks)):
        assert (result.e_hf, result.pairs) == (alone.e_hf, alone.pairs)
        assert result.system.scf_ran_on == alone.system.scf_ran_on


def test_pyscf_runs_on_rank_0_to_compare():
    job = dataclasses.replace(JOB, scf="pyscf")
    first, second = on_threads(2, lambda ranks: run(job, ranks=ranks))
    assert first.system.scf_ran_on == second.system.scf_ran_on == "PySCF"
    assert first.e_hf == second.e_hf == pytest.approx(run(JOB).e_hf, abs=1e-9)


def test_an_accelerator_takes_the_scf_of_one_process_with_our_integrals():
    job = dataclasses.replace(JOB, scf_backend="simulator")
    with pytest.raises(UnsupportedError, match="in one process, found 2"):
        on_threads(2, lambda ranks: run(job, ranks=ranks))
    with pytest.raises(UnsupportedError, match="leave out --scf pyscf"):
        run(dataclasses.replace(job, scf="pyscf"))


def test_ranks_go_on_from_a_checkpoint_without_an_scf(tmp_path, monkeypatch):
    job = dataclasses.replace(JOB, checkpoint=tmp_path / "kept")
    whole = run(job)

    def fail(self, *args):
        pytest.fail("J and K were made")

    monkeypatch.setattr(SharedWork, "ask", fail)
    for again in on_threads(2, lambda ranks: run(job, ranks=ranks)):
        assert (again.e_hf, again.pairs) == (whole.e_hf, whole.pairs)
        assert again.system.scf_ran_on == whole.system.scf_ran_on


def test_an_scf_that_does_not_converge_ends_the_job():
    job = dataclasses.replace(JOB, max_cycle=1)
    with pytest.raises(NotConverged):
        on_threads(2, lambda ranks: run(job, ranks=ranks))
