"""The tasks of ``trnqc mp2``: several frames, interaction energies, limits, gradients and optimised geometries."""

from __future__ import annotations

import json
import re

import numpy as np
import pytest
from pyscf import gto, scf
from pyscf.data.nist import BOHR, HARTREE2EV

from tests.mp2.thread_ranks import on_threads
from trnqc import DFMP2, MP2Result, accelerate
from trnqc.cli import _parser
from trnqc.cli.mp2.jobs import jobs_from
from trnqc.interfaces.surface import Surface
from trnqc.ranks import ALONE

H2 = "2\n\nH 0 0 0\nH 0 0 {}\n"
SMALL = ("--basis", "6-31g", "--threads", "1")


@pytest.fixture
def write(tmp_path):
    def to(name, text):
        path = tmp_path / name
        path.write_text(text)
        return path

    return to


def peer(distance, basis="6-31g"):
    mol = gto.M(atom=f"H 0 0 0; H 0 0 {distance}", basis=basis, verbose=0)
    return DFMP2(accelerate(scf.RHF(mol).density_fit()).run(conv_tol=1e-11)).run()


def test_frames_give_a_list_and_a_table(trnqc, write, tmp_path):
    path = write("curve.xyz", H2.format(0.7) + H2.format(0.8) + "\n")
    target, xyz = tmp_path / "out.json", tmp_path / "out.xyz"
    status, out, err = trnqc("mp2", path, *SMALL, "--json", target, "--xyz", xyz, "--checkpoint", tmp_path / "kept")
    assert (status, err) == (0, "")
    results = [MP2Result.from_dict(data) for data in json.loads(target.read_text())]
    assert [r.system.geometry.name for r in results] == ["curve-1", "curve-2"]
    for result, distance in zip(results, (0.7, 0.8)):
        assert result.e_tot == pytest.approx(peer(distance).e_tot, abs=1e-8)
        assert f"{result.e_tot:.10f}" in out
    assert sorted(p.name for p in (tmp_path / "kept").iterdir()) == ["curve-1", "curve-2"]
    energies = [float(text) for text in re.findall(r"energy=(\S+)", xyz.read_text())]
    assert energies == pytest.approx([r.e_tot * HARTREE2EV for r in results], abs=1e-9)


def test_extended_xyz_files_are_read_back(trnqc, write, tmp_path):
    path = tmp_path / "forces.xyz"
    assert trnqc("mp2", write("h2.xyz", H2.format(0.8)), *SMALL, "--gradient", "--xyz", path, "-q")[0] == 0
    status, out, _ = trnqc("mp2", path, *SMALL, "-q")
    assert status == 0
    assert float(re.search(r"E\(MP2\) = (\S+)", out)[1]) == pytest.approx(peer(0.8).e_tot, abs=1e-8)
    ase_io = pytest.importorskip("ase.io")
    atoms = ase_io.read(path)
    force = -peer(0.8).nuc_grad_method().kernel() * HARTREE2EV / BOHR
    assert atoms.get_forces() == pytest.approx(force, abs=1e-5)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (H2.format(0.7) + "2\n\nH 0 0 0\nH 0 0\n", ":8: 'symbol x y z' was expected, found 'H 0 0' (frame 2)"),
        (H2.format(0.7) + "3\n\nH 0 0 0\n", ":7: line 5 promises 3 atoms, the file ends after 1 (frame 2)"),
        (H2.format(0.7) + "next\n", ":5: the number of atoms was expected, found 'next' (frame 2)"),
        (H2.format(0.7) + H2.format(0.01), "curve.xyz:8: atom 2 lies 0.01 Angstrom from atom 1 (line 7)"),
        (H2.replace("\n\n", "\nProperties=pos:R:3:species:S:1\n"), "must begin with species:s:1:pos:r:3"),
        (H2.replace("\n\n", '\nLattice="5 0 0 0 5 0 0 0 5" pbc="F F T"\n'), "the frame is periodic"),
    ],
)
def test_a_malformed_frame_is_named(trnqc, write, text, words):
    status, out, err = trnqc("mp2", write("curve.xyz", text), *SMALL)
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert words in err


def test_a_frame_that_fails_is_named_and_the_ones_before_are_kept(trnqc, write, tmp_path):
    path = write("mixed.xyz", H2.format(0.7) + "1\n\nHe 0 0 0\n")
    status, _, err = trnqc("mp2", path, "--basis", "sto-3g", "--json", tmp_path / "out.json", "-q")
    assert status == 2
    assert "error: frame 2 of 2: " in err
    assert len(json.loads((tmp_path / "out.json").read_text())) == 1


def test_counterpoise(trnqc, write, tmp_path):
    path = write("dimer.xyz", "4\n\nH 0 0 0\nH 0 0 0.74\nH 0 0 3\nH 0 0 3.74\n")
    target = tmp_path / "out.json"
    status, out, _ = trnqc("mp2", path, *SMALL, "--counterpoise", "1-2/3,4", "--json", target)
    data = json.loads(target.read_text())
    assert status == 0
    assert data["uncorrected"]["e_tot"] == pytest.approx(
        data["complex"]["e_hf"] + data["complex"]["e_corr"] - 2 * peer(0.74).e_tot, abs=1e-8
    )
    assert data["uncorrected"]["e_tot"] < data["corrected"]["e_tot"]
    assert f"{data['corrected']['e_tot']:.10f}" in out and "superposition error" in out


def test_extrapolation_alone_and_of_interaction_energies(trnqc, write, tmp_path):
    target = tmp_path / "out.json"
    sets = ("--extrapolate", "cc-pvdz,cc-pvtz")
    status, out, _ = trnqc("mp2", write("h2.xyz", H2.format(0.74)), *sets, "--json", target)
    data = json.loads(target.read_text())
    small, large = peer(0.74, "cc-pvdz"), peer(0.74, "cc-pvtz")
    assert status == 0 and "limit" in out
    assert data["e_corr"] == pytest.approx((27 * large.e_corr - 8 * small.e_corr) / 19, abs=1e-8)
    assert data["e_hf"] < large.e_hf


def test_gradient_is_printed_and_written(trnqc, write, tmp_path):
    target = tmp_path / "out.json"
    status, out, _ = trnqc("mp2", write("h2.xyz", H2.format(0.8)), *SMALL, "--gradient", "--json", target)
    gradient = np.array(json.loads(target.read_text())["gradient"])
    assert status == 0 and "Gradient / Hartree/Bohr" in out
    assert gradient == pytest.approx(peer(0.8).nuc_grad_method().kernel(), abs=1e-6)
    assert f"{gradient[1, 2]:.8f}" in out


@pytest.mark.parametrize(("spin", "text"), [(1, "O 0 0 0\nH 0 0 0.97")])
def test_the_relaxed_dipole_of_a_gradient_is_written(trnqc, write, tmp_path, spin, text):
    """The dipole of a radical, whose spin follows from its electrons."""
    target = tmp_path / "out.json"
    status, _, err = trnqc("mp2", write("polar.xyz", f"2\n\n{text}\n"), *SMALL, "--gradient", "--json", target, "-q")
    assert (status, err) == (0, "")
    data = json.loads(target.read_text())
    assert data["units"]["relaxed_dipole"] == "e Bohr"
    assert data["derivatives_ran_on"].startswith("generated C")
    mol = gto.M(atom=text.replace("\n", "; "), basis="6-31g", spin=spin, verbose=0)
    mf = (scf.UHF if spin else scf.RHF)(mol).density_fit().run(conv_tol=1e-11)
    density = DFMP2(mf).set_frozen().make_rdm1(relaxed=True, ao_repr=True)
    assert data["relaxed_dipole"] == pytest.approx(mf.dip_moment(dm=density, unit="AU", verbose=0), abs=1e-5)


def test_a_job_runs_on_the_chip_from_b_to_the_dipole(trnqc, write, tmp_path):
    """J and K of the SCF, pair energies and Γ by NKI kernels: energy, gradient and dipole of a job on the host."""
    geometry, data = write("polar.xyz", "2\n\nH 0 0 0\nF 0 0 0.92\n"), {}
    for backend in ("cpu", "simulator"):
        target = tmp_path / f"{backend}.json"
        options = ("--scf-backend", backend, "--backend", backend, "--precision", "fp32")
        status, _, err = trnqc("mp2", geometry, *SMALL, *options, "--gradient", "--json", target, "-q")
        assert (status, err) == (0, "")
        data[backend] = json.loads(target.read_text())
    host, chip = data["cpu"], data["simulator"]
    assert "fp32; the others in fp64" in chip["system"]["scf_ran_on"] and "NKI" in chip["run"]["ran_on"]
    assert chip["e_hf"] == pytest.approx(host["e_hf"], abs=1e-9)
    assert chip["energies"]["e_tot"] == pytest.approx(host["energies"]["e_tot"], abs=1e-6)
    assert np.array(chip["gradient"]) == pytest.approx(np.array(host["gradient"]), abs=1e-5)
    assert chip["relaxed_dipole"] == pytest.approx(host["relaxed_dipole"], abs=1e-5)


def test_optimisation_reports_steps_and_writes_a_plot(trnqc, write, tmp_path):
    files = {name: tmp_path / name for name in ("out.json", "path.xyz", "plot.html", "end.xyz")}
    options = ("--trajectory", files["path.xyz"], "--plot", files["plot.html"], "--xyz", files["end.xyz"])
    pytest.importorskip("geometric")
    status, out, err = trnqc(
        "mp2", write("h2.xyz", H2.format(0.9)), *SMALL, "--optimize", "--json", files["out.json"], *options
    )
    data = json.loads(files["out.json"].read_text())
    assert (status, "Optimised geometry" in out, "step   1  E = " in err) == (0, True, True)
    assert np.abs(data["gradient"]).max() < 4.5e-4
    assert len(data["steps"]) == files["path.xyz"].read_text().count("energy=")
    assert data["steps"][-1]["energy"] == pytest.approx(data["energies"]["e_tot"], abs=1e-7)
    page = files["plot.html"].read_text()
    assert page.count("<polyline") == 2 and "converged" in page and "<script" not in page
    status, _, err = trnqc("mp2", files["end.xyz"], *SMALL, "--optimize", "--max-steps", "3")
    assert status == 0, err


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (("--counterpoise", "1/2", "--gradient"), "--counterpoise computes energies only: leave out --gradient"),
        (("--counterpoise", "1-2/3"), "fragment 2: atom 3 is not one of the 2 atoms, which are counted from 1"),
        (("--counterpoise", "1-2/2"), "both have atom 2 (from 1)"),
        (("--counterpoise", "1/1"), "both have atom 1 (from 1)"),
        (("--counterpoise", "one/two"), "such as 1-3/4-6"),
        (("--counterpoise", "1::1/2::1", "--xyz", "x.xyz"), "leave one out"),
        (("--extrapolate", "cc-pvdz,cc-pvqz"), "must be consecutive"),
        (("--extrapolate", "cc-pvdz"), "two basis sets were expected"),
        (("--extrapolate", "def2-svp,def2-tzvp"), "correlation-consistent basis set"),
        (("--extrapolate", "cc-pvdz,cc-pvtz", "--optimize"), "--extrapolate computes energies only"),
        (("--plot", "plot.html"), "--plot shows the steps of --optimize"),
        (("--optimize", "--plot", "/nowhere/plot.html"), "--plot /nowhere/plot.html: cannot be written"),
        (("--optimize", "--max-steps", "0"), "--max-steps must be positive"),
    ],
)
def test_options_that_do_not_fit(trnqc, write, options, words):
    status, out, err = trnqc("mp2", write("h2.xyz", H2.format(0.9)), *SMALL, *options, "-q")
    assert (status, out, err.count("\n")) == (2, "", 1)
    assert words in err


ENERGIES = ((), ("--extrapolate", "cc-pvdz,cc-pvtz"), ("--counterpoise", "1:0:1/2:0:1"))
FORCES = (("--gradient",), ("--optimize",))


@pytest.mark.parametrize("task", [*ENERGIES, *FORCES], ids=lambda task: task[0] if task else "energy")
def test_every_task_takes_comparisons_a_checkpoint_and_a_memory_limit(trnqc, write, tmp_path, task):
    """Together, with the digits of the task alone, and again from the finished checkpoint."""
    if "--optimize" in task:
        pytest.importorskip("geometric")
    path, target, kept = write("h2.xyz", H2.format(0.75)), tmp_path / "out.json", tmp_path / "kept"
    together = ("--compare-with", "cpu:fp32", "--checkpoint", kept, "--max-memory", "3G")
    found = []
    for options in ((), together, together):
        status, _, err = trnqc("mp2", path, *SMALL, *task, "--json", target, *options, "-q")
        assert status == 0, err
        found.append(json.loads(target.read_text()))
    alone, first, again = (numbers(data) for data in found)
    assert first == pytest.approx(alone, abs=1e-8)
    assert again == first
    if task in FORCES or not task:
        assert [other["run"]["precision"] for other in found[1]["comparisons"]] == ["fp32"]


def numbers(data):
    """The energies and the gradient of a result in JSON."""
    found = [data["energies"]["e_tot"]] if "energies" in data else [data["e_tot"]] if "e_tot" in data else []
    found += [data[part]["e_tot"] for part in ("corrected", "uncorrected") if part in data]
    return [*found, *np.ravel(data.get("gradient", []))]


def test_an_optimisation_continues_from_its_checkpoint(trnqc, write, tmp_path, monkeypatch):
    pytest.importorskip("geometric")
    path, kept, target = write("h2.xyz", H2.format(0.9)), tmp_path / "kept", tmp_path / "out.json"
    computed, compute = [], Surface._computed
    monkeypatch.setattr(Surface, "_computed", lambda self, mol: computed.append(mol) or compute(self, mol))
    arguments = ("mp2", path, *SMALL, "--optimize", "--checkpoint", kept, "--json", target, "-q")
    assert trnqc(*arguments, "--max-steps", "2")[0] == 0
    assert (len(computed), sorted(p.name for p in kept.iterdir())) == (2, ["step-2", "steps"])
    assert trnqc(*arguments)[0] == 0
    assert len(computed) == len(json.loads(target.read_text())["steps"])
    status, _, err = trnqc(*arguments, "--conv-tol", "1e-9")
    assert status == 2 and "SCF threshold" in err


def test_ranks_share_the_steps_of_an_optimisation(write):
    job = jobs_from(_parser(arguments := ["mp2", str(write("h2.xyz", H2.format(0.9))), *SMALL]).parse_args(arguments))[
        0
    ]

    def point(ranks):
        surface = Surface(job, ranks=ranks)
        energy, gradient = surface(surface.mol)
        return np.array([energy, *gradient.ravel()])

    alone = point(ALONE)
    for shared in on_threads(2, point):
        assert shared == pytest.approx(alone, abs=1e-9)


def test_a_gradient_continues_from_its_checkpoint(trnqc, write, tmp_path):
    path, kept, target = write("h2.xyz", H2.format(0.8)), tmp_path / "kept", tmp_path / "gradient.json"
    gradients = []
    for options in ((), ("--checkpoint", kept), ("--checkpoint", kept)):
        status, _, err = trnqc("mp2", path, *SMALL, "--gradient", "--json", target, *options, "-q")
        assert status == 0, err
        gradients.append(json.loads(target.read_text())["gradient"])
    assert gradients[1] == gradients[2]
    assert np.abs(np.subtract(gradients[0], gradients[1])).max() < 1e-9
    assert (kept / "gamma-0.h5").exists()
    status, _, err = trnqc("mp2", path, *SMALL, "--gradient", "--conv-tol", "1e-9", "--checkpoint", kept, "-q")
    assert status == 2 and "SCF threshold" in err


def test_several_frames_are_not_optimised(trnqc, write):
    status, _, err = trnqc("mp2", write("two.xyz", H2.format(0.9) * 2), *SMALL, "--optimize")
    assert status == 2 and "has 2 frames" in err
