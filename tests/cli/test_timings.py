"""The wall time that jobs print: all of it, by the names of parts."""

from __future__ import annotations

import json
import time

import pytest

H2 = "2\n\nH 0 0 0\nH 0 0 0.8\n"


@pytest.fixture
def timed(trnqc, tmp_path, monkeypatch):
    """timed(*words) -> (seconds by part, what is printed), after all of the wall time was accounted for.

    Kernels are compiled anew, which is the longest part of a short job.
    """
    monkeypatch.setenv("TRNQC_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "h2.xyz").write_text(H2)
    trnqc("scf", "--xc", "no functional")  # Modules are imported before the job begins.

    def call(command, *words):
        place = tmp_path / "result.json"
        start = time.perf_counter()
        status, out, err = trnqc(command, tmp_path / "h2.xyz", "--basis", "sto-3g", *words, "--json", place)
        wall = time.perf_counter() - start
        assert status == 0, err
        seconds = json.loads(place.read_text())["timings"]
        # What is outside of the job: options, files, tables.
        assert 0.95 * wall - 0.5 < sum(seconds.values()) <= wall
        assert seconds["other"] < 0.05 * wall + 0.3
        return seconds, out

    return call


def test_a_gradient_of_mp2_names_its_parts(timed):
    seconds, out = timed("mp2", "--gradient")
    for part in ("SCF", "integrals", "pairs", "gradient", "Z-vector", "pair densities", "compiling kernels"):
        assert seconds[part] > 0
    assert seconds["compiling kernels"] == max(seconds.values())
    table = out[out.index("Wall time") :]
    assert "compiling kernels" in table and f"{sum(seconds.values()):.3f}" in table


def test_steps_of_mp2_have_seconds(timed, tmp_path):
    seconds, _ = timed("mp2", "--optimize")
    steps = json.loads((tmp_path / "result.json").read_text())["steps"]
    assert seconds["geometry steps"] > 0
    assert 0 < sum(step["seconds"] for step in steps) < sum(seconds.values())


def test_interaction_energies_have_times(timed):
    seconds, out = timed("mp2", "--counterpoise", "1:0:1/2:0:1")
    assert seconds["SCF"] > 0 and "Wall time" in out


def test_steps_of_an_scf_name_their_parts(timed, tmp_path):
    seconds, out = timed("scf", "--xc", "pbe", "--optimize", "--tddft", "1")
    for part in ("SCF", "gradient", "geometry steps", "excited states", "compiling kernels", "dipole and charges"):
        assert seconds[part] > 0 and part in out
    assert all(step["seconds"] > 0 for step in json.loads((tmp_path / "result.json").read_text())["steps"])


def test_double_hybrids_name_factors_and_pairs(timed):
    seconds, _ = timed("scf", "--xc", "b2plyp")
    assert seconds["pairs"] > 0 and seconds["integrals"] > 0
