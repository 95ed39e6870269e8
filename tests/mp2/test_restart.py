"""An interrupted job continues with the same digits, and data on disk that have changed are recognised."""

from __future__ import annotations

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import zlib
from functools import partial
from pathlib import Path

import h5py
import numpy as np
import pytest
from pyscf import scf

import trnqc
from trnqc.errors import CheckpointError, InputError, MemoryLimit, StorageError
from trnqc.host.files import Records
from trnqc.mp2.checkpoint import Checkpoint
from trnqc.mp2.dfmp2 import DFMP2
from trnqc.mp2.factors.memory import FactorMemory
from trnqc.mp2.job import Job
from trnqc.mp2.reference.molecule import Geometry, build_mole, load_geometry
from trnqc.mp2.run import method_of, run
from trnqc.mp2.scf.hartree_fock import run_scf

ROOT = Path(__file__).resolve().parents[2]
WATER = Job(
    load_geometry("water"), "6-31g", "cc-pvdz-ri", frozen=0, backend="cpu", fused=True, threads=2, conv_tol=1e-8
)
HYDROGEN = Geometry("hydrogen", ("H", "H"), ((0.0, 0.0, 0.0), (0.0, 0.3, 0.7)))
ENERGIES = ("e_hf", "e_corr_os", "e_corr_ss", "pairs")


class Cut(BaseException):
    """Where a kill would end the process."""


def energies(result):
    return [getattr(result, name) for name in ENERGIES]


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A finished job with a checkpoint, and its result."""
    job = dataclasses.replace(WATER, checkpoint=tmp_path_factory.mktemp("jobs") / "kept")
    return job, run(job)


@pytest.fixture
def kept(whole, tmp_path):
    """A copy of it, free to be damaged."""
    job, result = whole
    shutil.copytree(job.checkpoint, tmp_path / "kept")
    return dataclasses.replace(job, checkpoint=tmp_path / "kept"), result


def begun(whole, directory):
    """The job with nothing done but its SCF: another one would differ in its last digits."""
    job, _ = whole
    directory.mkdir()
    for name in ("job.json", "orbitals.chk"):
        shutil.copy(job.checkpoint / name, directory)
    first = (job.checkpoint / "records.jsonl").read_bytes().split(b"\n")[0]
    (directory / "records.jsonl").write_bytes(first + b"\n")
    return dataclasses.replace(job, checkpoint=directory)


def stop(stage: str, at: int):
    """A progress function that cuts the job off when so much of a stage is done."""

    def progress(now, done, total):
        if (now, done) == (stage, at):
            raise Cut

    return progress


def cut_off(job, stage, at):
    with pytest.raises(Cut):
        run(job, stop(stage, at))


def stages_of(job):
    seen = []
    result = run(job, lambda *step: seen.append(step))
    return result, seen


@pytest.mark.parametrize("fused", [True, False])
def test_a_checkpoint_changes_no_digit(tmp_path, fused):
    job = dataclasses.replace(WATER, checkpoint=tmp_path / "kept", fused=fused)
    first = run(job)
    mf = run_scf(build_mole(WATER.geometry, WATER.basis), conv_tol=1e-8)
    mf.__dict__.update(scf.chkfile.load(str(job.checkpoint / "orbitals.chk"), "scf"))
    plain = DFMP2(mf, WATER.auxbasis, backend="cpu", fused=fused, threads=2).run()
    assert energies(plain.result) == energies(first)
    assert "on disk" in first.run.factors and str(job.checkpoint) in first.run.factors
    again, seen = stages_of(job)
    assert energies(again) == energies(first)
    assert seen == []


def test_a_checkpoint_knows_what_made_j_and_k(kept):
    job, result = kept
    assert result.system.scf_ran_on == run(job).system.scf_ran_on != ""


def test_a_checkpoint_from_before_says_pyscf_and_keeps_its_digits(kept):
    """Older checkpoints, whose SCF was PySCF's, name nothing."""
    job, result = kept
    path, records = job.checkpoint / "orbitals.chk", job.checkpoint / "records.jsonl"
    orbitals = scf.chkfile.load(str(path), "scf")
    path.unlink()
    scf.chkfile.dump(str(path), "scf", {name: orbitals[name] for name in orbitals if name != "ran_on"})
    first = Records(records).entries[0]
    records.unlink()
    Records(records).add(**first | {"orbitals": zlib.crc32(path.read_bytes())})
    again = run(job)
    assert again.system.scf_ran_on == "PySCF"
    assert energies(again) == energies(result)


@pytest.mark.parametrize(
    ("stage", "at"), [("integrals", 1), ("integrals", 3), ("fitting", 1), ("fitting", 5), ("pairs", 15)]
)
def test_a_job_cut_off_goes_on_with_the_same_digits(whole, tmp_path, stage, at):
    job = begun(whole, tmp_path / "cut")
    cut_off(job, stage, at)
    again, seen = stages_of(dataclasses.replace(job, threads=1))
    assert energies(again) == energies(whole[1])
    assert "SCF" not in [now for now, _, _ in seen]
    assert not [step for step in seen if step[0] == stage and step[1] <= at]


def test_every_moment_at_which_something_is_written(whole, tmp_path, monkeypatch):
    """The process ends half-way through the n-th write, for all n."""
    n, finished = 0, False
    while not finished:
        job = begun(whole, tmp_path / f"cut{n}")
        count = iter(range(10**6))

        def write(real, file, data, *at, count=count, n=n):
            if next(count) == n:
                real(file, bytes(data)[: len(data) // 2], *at)
                raise Cut
            return real(file, data, *at)

        with monkeypatch.context() as patch:
            for name in ("pwrite", "write"):
                patch.setattr(os, name, partial(write, getattr(os, name)))
            try:
                run(job)
                finished = True
            except Cut:
                pass
        assert energies(run(job)) == energies(whole[1])
        n += 1
    assert n > 20


def damage(path, at=0.5):
    """Change one bit."""
    data = bytearray(path.read_bytes())
    data[int(at * len(data))] ^= 4
    path.write_bytes(data)


def test_a_changed_row_is_made_again(kept):
    job, result = kept
    damage(job.checkpoint / "factors.h5", 0.6)
    again, seen = stages_of(job)
    assert energies(again) == energies(result)
    assert [step for step in seen if step[0] == "fitting"] == [("fitting", 5, 5)]
    assert "SCF" not in [now for now, _, _ in seen]
    assert not (job.checkpoint / "integrals.h5").exists()


def test_changed_integrals_are_made_again(whole, tmp_path):
    job = begun(whole, tmp_path / "cut")
    cut_off(job, "fitting", 1)
    damage(job.checkpoint / "integrals.h5", 0.9)
    again, seen = stages_of(job)
    assert energies(again) == energies(whole[1])
    assert len([step for step in seen if step[0] == "integrals"]) == 1


@pytest.mark.parametrize("name", ["factors.h5", "integrals.h5", "records.jsonl"])
@pytest.mark.parametrize("share", [0.0, 0.4, 0.99])
def test_a_file_that_was_cut_off(whole, tmp_path, name, share):
    job = begun(whole, tmp_path / "cut")
    cut_off(job, "fitting", 3)
    path = job.checkpoint / name
    path.write_bytes(path.read_bytes()[: int(share * path.stat().st_size)])
    again = run(job)
    if name == "records.jsonl" and share == 0.0:  # the SCF runs again and may differ in its last digits
        assert again.e_corr == pytest.approx(whole[1].e_corr, abs=1e-8)
    else:
        assert energies(again) == energies(whole[1])


def test_nothing_old_is_mixed_with_what_is_made_anew(kept):
    """The size of blocks is lost and chosen otherwise: what was made with the old one does not count any more."""
    job, result = kept
    path = job.checkpoint / "records.jsonl"
    lines = path.read_bytes().split(b"\n")
    path.write_bytes(b"\n".join([line for line in lines if b"auxiliary functions a block" not in line]))
    assert path.read_bytes().count(b"\n") == len(lines) - 2
    again, seen = stages_of(dataclasses.replace(job, threads=1))
    assert again.e_corr == pytest.approx(result.e_corr, abs=1e-12)
    for stage, total in (("fitting", 5), ("pairs", 15)):
        assert [(done, of) for now, done, of in seen if now == stage][-1] == (total, total)


@pytest.mark.parametrize("name", ["orbitals.chk", "job.json"])
def test_what_all_rests_on_is_not_made_up_again(kept, name):
    job, _ = kept
    damage(job.checkpoint / name, 0.3 if name == "orbitals.chk" else 0)
    with pytest.raises(CheckpointError, match=rf"{name}.*remove .*kept and start the job again"):
        run(job)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"geometry": load_geometry("water2")}, 'molecule is "H2O" there and "H4O2" here'),
        ({"geometry": load_geometry("water", charge=2)}, "charge is 0 there and 2 here"),
        ({"basis": "sto-3g"}, 'basis is "6-31g" there and "sto-3g" here'),
        ({"auxbasis": "cc-pvtz-ri"}, "auxiliary basis is .*cc-pvdz-ri.* there and .*cc-pvtz-ri"),
        ({"frozen": 1}, "frozen orbitals is 0 there and 1 here"),
        ({"precision": "fp32"}, 'precision is "fp64" there and "fp32" here'),
        ({"density_fit": False}, 'SCF is "density-fitted" there and "conventional" here'),
    ],
)
def test_the_checkpoint_of_another_job_is_refused(kept, change, words):
    job, _ = kept
    before = sorted((p.name, p.stat().st_mtime_ns) for p in job.checkpoint.iterdir() if p.name != "lock")
    with pytest.raises(CheckpointError, match=rf"another job: {words}.*name another directory"):
        run(dataclasses.replace(job, **change))
    assert before == sorted((p.name, p.stat().st_mtime_ns) for p in job.checkpoint.iterdir() if p.name != "lock")


def test_the_same_job_is_described_alike_in_every_process(kept):
    """Sets of words have another order in every process, and PySCF's tables with them."""
    job, _ = kept
    line = [sys.executable, "-m", "trnqc", "mp2", "water", "--basis", "6-31g", "--auxbasis", "cc-pvdz-ri", "-q"]
    more = ["--all-electron", "--backend", "cpu", "--conv-tol", "1e-8", "--checkpoint"]
    for seed in "12":
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(ROOT)}
        done = subprocess.run([*line, *more, job.checkpoint], env=environment, capture_output=True, text=True)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("name", ["trnqc", "format"])
def test_the_checkpoint_of_another_version_is_refused(kept, name):
    job, _ = kept
    path = job.checkpoint / "job.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {name: "0.0.9"}))
    with pytest.raises(CheckpointError, match=f'{name} is "0.0.9" there and'):
        run(job)


def test_a_directory_of_something_else_is_left_alone(tmp_path):
    (tmp_path / "thesis.tex").write_text("precious")
    with pytest.raises(CheckpointError, match=r"holds other files \(thesis.tex\)"):
        run(dataclasses.replace(WATER, checkpoint=tmp_path))
    assert [p.name for p in tmp_path.iterdir()] == ["thesis.tex"]
    with pytest.raises(CheckpointError, match="is a file"):
        run(dataclasses.replace(WATER, checkpoint=tmp_path / "thesis.tex"))


def test_what_a_killed_start_left_is_no_other_file(whole, tmp_path):
    for name in ("lock", ".job.json.123"):
        (tmp_path / name).touch()
    assert run(dataclasses.replace(WATER, checkpoint=tmp_path)).e_corr == whole[1].e_corr


def test_two_jobs_on_one_checkpoint(whole, tmp_path):
    job = begun(whole, tmp_path / "cut")
    met = []

    def second(stage, done, total):
        if not met:
            met.append(stage)
            with pytest.raises(CheckpointError, match=rf"another process \(pid {os.getpid()}\) writes to"):
                run(job)

    assert energies(run(job, second)) == energies(whole[1])
    assert met


def test_no_other_job_comes_between_scf_and_factors(tmp_path, monkeypatch):
    # Kernels of gradients take seconds to compile for water.
    job, met = dataclasses.replace(WATER, geometry=HYDROGEN, checkpoint=tmp_path / "kept"), []

    def second(mf):
        met.append(mf)
        with pytest.raises(CheckpointError, match=rf"another process \(pid {os.getpid()}\) writes to"):
            Checkpoint(job.checkpoint, {})

    monkeypatch.setattr("trnqc.mp2.run.drop_integrals", second)
    run(job)
    assert len(met) == 1
    with method_of(job) as mp2:
        second(mp2)
        energy, gradient = mp2.compute().e_tot, mp2.nuc_grad_method().kernel()
    assert mp2.checkpoint == job.checkpoint
    assert mp2.compute().e_tot == energy
    np.testing.assert_array_equal(mp2.nuc_grad_method().kernel(), gradient)


def test_blocks_found_are_held_to_the_limit(whole, tmp_path):
    job = begun(whole, tmp_path / "cut")
    cut_off(job, "integrals", 1)
    record = json.loads((job.checkpoint / "records.jsonl").read_bytes().split(b"\n")[1].partition(b" ")[2])
    width = record["auxiliary functions a block"]
    memory = FactorMemory(13, 5, 8, 84, 2)
    with pytest.raises(MemoryLimit, match="need at least"):
        run(dataclasses.replace(job, memory=memory.on_disk(width) - 1))
    run(dataclasses.replace(job, memory=memory.on_disk(width)))


@pytest.mark.parametrize("call", ["posix_fallocate", "pwrite"])
def test_a_full_disk_is_one_clear_error_and_the_job_goes_on_later(whole, tmp_path, monkeypatch, call):
    job = begun(whole, tmp_path / "full")

    def full(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch, pytest.raises(StorageError, match="No space left on device; make room"):
        patch.setattr(os, call, full)
        run(job)
    assert not list(job.checkpoint.glob("*.new"))
    assert energies(run(job)) == energies(whole[1])


class TestMethodObject:
    """DFMP2 with a checkpoint of its own."""

    def test_the_same_orbitals_go_on(self, reference, tmp_path):
        mf = reference("water")
        plain = DFMP2(mf).run()
        with pytest.raises(Cut):
            DFMP2(mf, checkpoint=tmp_path / "kept", progress=stop("fitting", 2)).kernel()
        kept = DFMP2(mf, checkpoint=str(tmp_path / "kept")).run()
        assert kept.e_corr == pytest.approx(plain.e_corr, abs=1e-12)
        assert kept.run().e_corr == kept.e_corr
        assert np.array_equal(kept.ao2mo().B[:], kept.ao2mo().B[:])

    def test_other_orbitals_are_refused_with_advice(self, reference, tmp_path):
        mf = reference("water")
        DFMP2(mf, checkpoint=tmp_path / "kept").kernel()
        other = mf.copy()
        other.mo_energy = mf.mo_energy + 1e-13
        with pytest.raises(CheckpointError, match=r"not to the last digit.*mf.__dict__.update\(scf.chkfile.load"):
            DFMP2(other, checkpoint=tmp_path / "kept").kernel()
        other.__dict__.update(scf.chkfile.load(str(tmp_path / "kept" / "orbitals.chk"), "scf"))
        DFMP2(other, checkpoint=tmp_path / "kept").kernel()

    def test_factors_of_ones_own_are_refused(self, reference, tmp_path):
        method = DFMP2(reference("water"), checkpoint=tmp_path / "kept")
        with pytest.raises(InputError, match="a checkpoint keeps its own factors"):
            method.kernel(method.ao2mo())


@pytest.mark.parametrize("stored", [True, False])
def test_pairs_of_ones_own_factors_are_kept(factors_like, tmp_path, stored):
    B, o, v = factors_like(19, 7, 23)
    whole = trnqc.mp2_energy(B, o, v, backend="cpu")

    def stop(done, total):
        if done > total / 2:
            raise Cut

    def energy(**more):
        if not stored:
            return trnqc.mp2_energy(B, o, v, backend="cpu", checkpoint=tmp_path / "kept", **more)
        with h5py.File(tmp_path / "B.h5", "a") as file:
            if "B" not in file:
                file["B"] = B
            return trnqc.mp2_energy(file["B"], o, v, backend="cpu", checkpoint=tmp_path / "kept", **more)

    with pytest.raises(Cut):
        energy(progress=stop)
    seen = []
    again = energy(progress=lambda *step: seen.append(step))
    assert (again.e_corr_os, again.e_corr_ss, again.pairs) == (whole.e_corr_os, whole.e_corr_ss, whole.pairs)
    assert 190 / 2 < seen[0][0] <= seen[-1][0] == 190
    B[18, 6, 22] += 1e-9
    with pytest.raises(CheckpointError, match="digest of B and orbital energies"):
        trnqc.mp2_energy(B, o, v, backend="cpu", checkpoint=tmp_path / "kept")


@pytest.mark.parametrize("text", ["null", "[]", "3"])
def test_a_description_that_is_no_object_is_damaged(tmp_path, text):
    (tmp_path / "job.json").write_text(text)
    with pytest.raises(CheckpointError, match=r"damaged .expected an object"):
        Checkpoint(tmp_path, {"molecule": "H2O"})
