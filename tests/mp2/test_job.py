"""Jobs from a geometry to a result, and errors that are raised before the SCF."""

from __future__ import annotations

import dataclasses

import pytest
from pyscf import df, gto, scf

import trnqc
from trnqc.errors import BackendUnavailable, InputError, MemoryLimit, MoleculeError, NotConverged
from trnqc.mp2.job import Job
from trnqc.mp2.reference.molecule import MOLECULES, Geometry, build_mole, load_geometry
from trnqc.mp2.run import run
from trnqc.mp2.scf import hartree_fock
from trnqc.mp2.scf import of_job as job_scf
from trnqc.mp2.scf.hartree_fock import run_scf

# Without d functions, whose kernels take long to compile.
WATER = Job(load_geometry("water"), "6-31g", fused=True)


@pytest.fixture
def no_scf(monkeypatch):
    def fail(*args, **options):
        pytest.fail("the SCF was started")

    monkeypatch.setattr(job_scf, "run_scf", fail)


def test_energy_is_that_of_pyscf(pyscf_mp2):
    result = run(WATER)
    mol = build_mole(WATER.geometry, "6-31g")
    mf = scf.RHF(mol).density_fit(auxbasis=df.make_auxbasis(mol)).run(conv_tol=1e-12)
    assert result.e_hf == pytest.approx(mf.e_tot, abs=1e-9)
    # Orbitals converged apart differ: E(corr) is linear in them.
    theirs = pyscf_mp2(mf, frozen=1, auxbasis="cc-pvdz-ri")
    assert (result.e_corr_os, result.e_corr_ss) == pytest.approx(theirs, abs=1e-6)


@pytest.mark.parametrize("density_fit", [True, False])
def test_the_scf_runs_on_our_integrals_and_on_pyscf_to_compare(monkeypatch, density_fit):
    objects = []

    def accelerate(mf, *arguments, **options):
        objects.append(trnqc.accelerate(mf, *arguments, **options))
        return objects[-1]

    monkeypatch.setattr(hartree_fock, "accelerate", accelerate)
    job = dataclasses.replace(WATER, density_fit=density_fit)
    ours = run(job)
    assert [ours.system.scf_ran_on] == [mf.ran_on for mf in objects]
    theirs = run(dataclasses.replace(job, scf="pyscf"))
    assert theirs.system.scf_ran_on == "PySCF" and len(objects) == 1
    for name in ("e_hf", "e_corr_os", "e_corr_ss"):
        assert getattr(ours, name) == pytest.approx(getattr(theirs, name), abs=1e-9)


def test_threads_change_nothing_but_rounding_of_the_scf():
    """J and K have the same bits for any number of threads, but PySCF's products of matrices do not."""
    first, *more = (run(dataclasses.replace(WATER, threads=threads)).e_hf for threads in (1, 2, 3))
    assert more == pytest.approx([first] * 2, abs=1e-11, rel=0)


def test_the_scf_keeps_no_integrals_for_the_pairs(monkeypatch):
    kept = []

    def scf(*args, **options):
        kept.append(run_scf(*args, **options))
        return kept[-1]

    monkeypatch.setattr(job_scf, "run_scf", scf)
    for density_fit in (True, False):
        run(dataclasses.replace(WATER, density_fit=density_fit))
    assert [mf._eri is None for mf in kept] == [True, True]
    assert kept[0].with_df._cderi is None


@pytest.mark.parametrize("prefix", ["Ghost-", "X-"])
@pytest.mark.parametrize("density_fit", [True, False])
def test_counterpoise_energies_are_those_of_pyscf(tmp_path, pyscf_mp2, prefix, density_fit):
    """One water of the dimer in the basis of both: the ghosts have no core and no electrons."""
    count, comment, *atoms = (MOLECULES / "water2.xyz").read_text().splitlines()
    atoms = [*atoms[:3], *(prefix + line.lstrip() for line in atoms[3:6])]
    path = tmp_path / "half.xyz"
    path.write_text("\n".join([count, comment, *atoms]) + "\n")
    result = run(Job(load_geometry(path), "6-31g", density_fit=density_fit, conv_tol=1e-12))
    mol = gto.M(atom="\n".join(atoms), basis="6-31g", verbose=0)
    mf = scf.RHF(mol)
    if density_fit:
        mf = mf.density_fit(auxbasis=df.make_auxbasis(mol))
    mf.run(conv_tol=1e-12)
    assert (result.frozen.occ, result.sizes.nocc, result.sizes.nao) == ((0,), 4, 26)
    assert result.e_hf == pytest.approx(mf.e_tot, abs=1e-9)
    actual = (result.e_corr_os, result.e_corr_ss)
    assert actual == pytest.approx(pyscf_mp2(mf, frozen=1, auxbasis="cc-pvdz-ri"), abs=1e-8)
    alone = run(Job(Geometry("half", ("O", "H", "H"), result.system.geometry.coordinates[:3]), "6-31g"))
    assert result.e_tot < alone.e_tot - 1e-4, "the functions of the ghosts lower the energy"


def test_result_knows_molecule_core_and_times():
    result = run(WATER)
    assert result.system.geometry == WATER.geometry
    assert result.frozen.occ == (0,)
    assert result.sizes.nocc == 4
    assert "SCF" in result.timings
    assert result.run.precision == "fp64"
    assert "neuron" in result.run.note or "cpu" in result.run.note
    assert result.warnings == ()


@pytest.mark.parametrize(("frozen", "nocc"), [(0, 5), (2, 3), ([1], 4)])
def test_frozen_as_asked(frozen, nocc):
    assert run(dataclasses.replace(WATER, frozen=frozen)).sizes.nocc == nocc


def test_conventional_reference_differs_by_the_fit():
    fitted, exact = run(WATER), run(dataclasses.replace(WATER, density_fit=False))
    assert 1e-7 < abs(fitted.e_hf - exact.e_hf) < 1e-4
    assert "conventional" in exact.system.scf


def test_comparison_runs_the_same_factors_again():
    result = run(dataclasses.replace(WATER, compare_with=(("cpu", "fp32"), ("cpu", None))))
    single, again = result.comparisons
    assert (single.run.precision, again.run.precision) == ("fp32", "fp64")
    assert 0 < abs(single.difference) < 1e-6
    assert single.e_corr_os == pytest.approx(result.e_corr_os + single.difference_os, abs=1e-15)
    assert abs(again.difference) < 1e-13


def test_progress_covers_every_stage():
    stages = set()
    run(dataclasses.replace(WATER, compare_with=(("cpu", "fp32"),)), lambda stage, done, total: stages.add(stage))
    assert {"SCF", "integrals", "fitting", "pairs", "pairs on cpu"} <= stages


@pytest.mark.parametrize(
    ("change", "kind", "words"),
    [
        ({"backend": "abacus"}, InputError, "abacus"),
        ({"compare_with": (("abacus", None),)}, InputError, "abacus"),
        ({"precision": "fp8"}, InputError, "fp8"),
        ({"scf": "psi4"}, InputError, "psi4"),
        ({"basis": "cc-pvxz"}, MoleculeError, "cc-pvxz"),
        ({"auxbasis": "cc-pvxz-ri"}, MoleculeError, "cc-pvxz-ri"),
        ({"frozen": 5}, MoleculeError, "leave none"),
        ({"memory": 1e5}, MemoryLimit, "limit is 0.1 MB"),
        ({"geometry": Geometry("he", ("He",), ((0.0, 0.0, 0.0),)), "basis": "sto-3g"}, MoleculeError, "no virtual"),
    ],
)
def test_what_can_be_known_fails_before_the_scf(no_scf, change, kind, words):
    with pytest.raises(kind, match=words):
        run(dataclasses.replace(WATER, **change))


def test_absent_backend_fails_before_the_scf(no_scf, monkeypatch):
    from trnqc import backends
    from trnqc.backends.base import BackendStatus

    absent = BackendStatus(usable=False, reason="no device", hint="use one")
    monkeypatch.setattr(backends, "_status", lambda name: absent)
    with pytest.raises(BackendUnavailable, match="no device"):
        run(dataclasses.replace(WATER, backend="neuron"))


def test_unconverged_scf_stops_unless_allowed():
    short = dataclasses.replace(WATER, max_cycle=1)
    with pytest.raises(NotConverged):
        run(short)
    result = run(dataclasses.replace(short, allow_unconverged=True))
    assert "NOT converged" in result.system.scf
    assert any("not converged" in message for message in result.warnings)


def test_generated_fitting_sets_are_told(capfd):
    result = run(Job(Geometry("kf", ("K", "F"), ((0.0, 0.0, 0.0), (0.0, 0.0, 2.2))), basis="6-31g", conv_tol=1e-8))
    assert result.system.generated == ("K",)
    assert [("RI" in m or "MP2" in m, "JK" in m) for m in result.warnings] == [(False, True), (True, False)]
    assert capfd.readouterr().out == ""


def test_reference_is_fitted_with_the_jk_set():
    mf = run_scf(build_mole(load_geometry("water"), "cc-pvdz"), source="pyscf")
    assert set(mf.with_df.auxbasis.values()) == {"cc-pvdz-jkfit"}
    assert mf.conv_tol_grad == pytest.approx(1e-6)
