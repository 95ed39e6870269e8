"""``trnqc mp2`` on the command line."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from trnqc import MP2Result
from trnqc.cli import main
from trnqc.errors import MoleculeError

ROOT = Path(__file__).resolve().parents[2]
SAID = (
    "H2O, 3 atoms",
    "6-31g",
    "cc-pvdz-ri",
    "1 occupied",
    "opposite spin",
    "same spin",
    "SCS-MP2",
    "SOS-MP2",
    "J and K",
    "backend",
    "cpu",
    "fp64",
    "three-centre integrals",
    "SCF",
    "integrals",
    "pairs",
)
WATER = ("mp2", "water", "--basis", "6-31g")


def total(text: str) -> float:
    return float(re.search(r"E\(MP2\) = (\S+) Hartree", text)[1])


def test_summary_says_what_was_computed(trnqc):
    status, out, err = trnqc(*WATER, "--pairs")
    assert (status, err) == (0, "")
    for words in SAID:
        assert words in out
    assert len(re.findall(r"^│\s+\d+ │\s+\d+ │", out, re.MULTILINE)) == 10
    assert "neuron" not in out and "estimated error" not in out  # A job on the CPU in fp64 has nothing to excuse.


def test_another_backend_or_precision_says_why_and_how_exact_it_is(trnqc):
    status, out, _ = trnqc(*WATER, "--precision", "fp32", "--backend", "simulator")
    assert status == 0
    assert re.search(r"selected because\s+simulator: asked for", out) and re.search(r"estimated error\s+\d", out)


def test_json_holds_what_was_printed(trnqc, tmp_path):
    path = tmp_path / "out.json"
    status, out, _ = trnqc(*WATER, "--json", path, "--quiet")
    result = MP2Result.load(path)
    assert status == 0
    assert total(out) == result.e_tot
    assert result.system.geometry.name == "water"


@pytest.mark.parametrize(
    ("options", "check"),
    [
        (("--all-electron",), lambda r: r.frozen.occ == ()),
        (("--frozen-core",), lambda r: r.frozen.occ == (0,)),
        (("--frozen", "2"), lambda r: r.frozen.occ == (0, 1)),
        (("--frozen", "0,12"), lambda r: (r.frozen.occ, r.frozen.vir) == ((0,), (12,))),
        (("--charge", "2"), lambda r: r.sizes.nocc == 3),
        (("--scs-os", "1", "--scs-ss", "0", "--sos", "2"), lambda r: (r.scs, r.sos) == ((1.0, 0.0), 2.0)),
        (("--precision", "fp32"), lambda r: r.run.precision == "fp32"),
        (("--backend", "cpu"), lambda r: "asked for" in r.run.note),
        (("--no-fused-energy",), lambda r: not r.run.fused),
        (("--auxbasis", "autoaux"), lambda r: set(r.system.auxbasis.values()) == {"autoaux"}),
        (("--conventional",), lambda r: "conventional" in r.system.scf),
        (("--scf", "pyscf"), lambda r: r.system.scf_ran_on == "PySCF"),
        (("--scf-backend", "simulator:bf16x3"), lambda r: "trn2, bf16x3; the others in fp64" in r.system.scf_ran_on),
        (("--scf", "trnqc"), lambda r: r.system.scf_ran_on not in ("", "PySCF", "nothing yet")),
        (("--threads", "1", "--max-memory", "500M", "--conv-tol", "1e-8"), lambda r: "1 thread" in r.run.ran_on),
        (("--compare-with", "cpu:fp32"), lambda r: r.comparisons[0].run.precision == "fp32"),
        (("--compare-with", "simulator"), lambda r: 0 < abs(r.comparisons[0].difference) < 1e-6),
        (("--backend", "simulator"), lambda r: (r.run.backend, r.run.precision) == ("simulator", "fp32")),
    ],
)
def test_options_reach_the_job(trnqc, tmp_path, options, check):
    path = tmp_path / "out.json"
    assert trnqc(*WATER, *options, "--json", path)[0] == 0
    assert check(MP2Result.load(path))


def test_a_checkpoint_is_taken_up_and_says_where_the_factors_are(trnqc, tmp_path):
    kept = tmp_path / "kept"
    first = trnqc(*WATER, "--checkpoint", kept)
    again = trnqc(*WATER, "--checkpoint", kept, "--quiet")
    assert (first[0], again[0]) == (0, 0)
    assert re.search(r"on disk, [\d.]+ MB at", first[1])
    assert f"{total(again[1]):.10f}" in first[1]
    status, out, err = trnqc("mp2", "water", "--basis", "sto-3g", "--checkpoint", kept)
    assert (status, out) == (2, "")
    assert 'basis is "6-31g" there and "sto-3g" here' in err and err.count("\n") == 1


def test_what_does_not_fit_goes_to_disk(trnqc, tmp_path):
    path = tmp_path / "out.json"
    basis = ("--basis", "6-31g", "--threads", "1")
    assert trnqc("mp2", "water2", *basis, "--max-memory", "0.8M", "--json", path, "-q")[0] == 0
    small = MP2Result.load(path)
    assert "on disk" in small.run.factors and "blocks of" in small.run.ran_on
    assert trnqc("mp2", "water2", *basis, "--json", path, "-q")[0] == 0
    assert small.e_corr == pytest.approx(MP2Result.load(path).e_corr, abs=1e-9)


def test_comparison_prints_the_differences(trnqc):
    _, out, _ = trnqc(*WATER, "--compare-with", "cpu:fp32")
    assert "Same factors on cpu (fp32)" in out
    assert len(re.findall(r" [+-]\d\.\de-\d\d │$", out, re.MULTILINE)) == 3


def test_geometry_file_in_bohr(trnqc, tmp_path):
    path = tmp_path / "h2.xyz"
    path.write_text("2\n\nH 0 0 0\nH 0 0 1.4\n")
    _, out, _ = trnqc("mp2", path, "--unit", "Bohr", "--basis", "cc-pvdz", "-q")
    # Hartree-Fock and MP2 of H2 at 1.4 Bohr, cc-pVDZ: -1.128714 and -0.026372 Hartree, here with fitting errors.
    assert total(out) == pytest.approx(-1.15509, abs=2e-4)


def test_radicals_are_unrestricted_by_default(trnqc, tmp_path):
    status, out, _ = trnqc("mp2", "water", "--charge", "1", "--pairs", "--json", tmp_path / "out.json")
    assert status == 0
    for words in ("charge +1, 1 unpaired electron", "UHF, density-fitted", "<S^2> = 0.7", "alpha alpha", "beta beta"):
        assert words in out
    assert "4 alpha and 3 beta correlated occupied" in out
    stored = json.loads((tmp_path / "out.json").read_text())
    parts = stored["e_corr_aa"] + stored["e_corr_bb"]
    assert stored["e_corr_ss"] == parts and stored["energies"]["e_corr"] == parts + stored["e_corr_os"]
    assert set(stored["pairs"]) == {"aa", "ab", "bb"} and stored["sizes"]["nocc_beta"] == 3


def test_restricted_open_shells_have_single_excitations(trnqc):
    status, out, _ = trnqc("mp2", "water", "--spin", "2", "--reference", "rohf", "--basis", "6-31g")
    assert status == 0
    for words in ("ROHF, density-fitted", "single excitations", "2 unpaired electrons"):
        assert words in out


def test_bf16_warns_on_standard_error(trnqc):
    status, _, err = trnqc(*WATER, "--precision", "bf16")
    assert status == 0
    assert "screening" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("mp2", "watre"), "did you mean 'water'"),
        (("mp2", "water", "--basis", "nonsense"), "no basis set 'nonsense'"),
        (("mp2", "water", "--basis", "cc-pvdz@3s2p1d"), "cannot be built for H"),
        (("mp2", "water", "--charge", "1", "--spin", "0"), "9 electrons"),
        (("mp2", "water", "--spin", "1"), "10 electrons"),
        (("mp2", "water", "--spin", "2", "--reference", "rhf"), "2 unpaired electrons, which RHF cannot describe"),
        (("mp2", "water", "--charge", "1", "--frozen", "5"), "the number of occupied beta orbitals is 4"),
        (("mp2", "water", "--frozen", "one"), "--frozen takes"),
        (("mp2", "water", "--frozen", "7"), "7 frozen orbitals leave none"),
        (("mp2", "water", "--threads", "0"), "--threads must be positive"),
        (("mp2", "water", "--conv-tol", "-1"), "--conv-tol must be positive"),
        (("mp2", "water", "--conv-tol", "nan"), "--conv-tol must be positive"),
        (("mp2", "water", "--conv-tol", "inf"), "--conv-tol must be positive"),
        (("mp2", "water", "--rank-timeout", "-1"), "--rank-timeout must be positive"),
        (("mp2", "water", "--max-memory=-4G"), "such as 4G"),
        (("mp2", "water", "--sos", "inf"), "two finite factors"),
        (("mp2", "water", "--max-memory", "lots"), "such as 4G"),
        (("mp2", "water", "--max-memory", "10k"), "need at least 0.169 MB of memory"),
        (("mp2", "water", "--max-memory", "10k"), "memory limit is 0.01 MB"),
        (("mp2", "water", "--checkpoint", "/dev/null"), "/dev/null is a file; a checkpoint is a directory"),
        (("mp2", "water", "--max-cycle", "1", "--basis", "sto-3g"), "has not converged"),
        (("mp2", "water", "--compare-with", "cpu:fp8"), "'fp8'"),
        (("mp2", "water", "--backend", "simulator", "--precision", "fp64"), "precision 'fp64' was asked for"),
        (("mp2", "water", "--json", "/nowhere/out.json"), "cannot be written"),
        (("mp2", "water", "--json", "/dev/null"), "cannot be written"),
    ],
)
def test_errors_are_one_line_and_status_two(trnqc, arguments, words):
    status, out, err = trnqc(*arguments)
    assert (status, out) == (2, "")
    assert words in err
    assert err.startswith("trnqc: error: ")
    assert err.count("\n") == 1


def test_traceback_on_request():
    with pytest.raises(MoleculeError):
        main(["mp2", "watre", "-vv"])


def test_interrupt(trnqc, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr("trnqc.cli.mp2.run_job", interrupt)
    assert trnqc(*WATER, "-q") == (130, "", "trnqc: interrupted\n")


@pytest.mark.parametrize("program", [["-m", "trnqc", "mp2"], [str(ROOT / "examples" / "df_mp2.py")]])
def test_module_and_example_are_the_same_job(program, tmp_path):
    done = subprocess.run(
        [sys.executable, *program, "water", "--basis", "sto-3g", "--auxbasis", "cc-pvdz-ri", "-q"],
        cwd=tmp_path,
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert total(done.stdout) == pytest.approx(-74.99, abs=0.02)
