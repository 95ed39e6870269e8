"""``trnqc eri`` compiles the kernels of a basis set beforehand, and lists them."""

from __future__ import annotations

import os

import pytest

from trnqc.jit import compiler


@pytest.fixture(autouse=True)
def directory(tmp_path, monkeypatch):
    """An empty cache of this test's own; what this process has loaded already is forgotten."""
    monkeypatch.setenv("TRNQC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setattr("trnqc.jit.compile._loaded", {})
    return tmp_path / "cache"


def test_builds_once_and_lists(trnqc, directory):
    command = ("eri", "build", "--basis", "sto-3g", "--elements", "H", "he")
    status, out, _ = trnqc(*command)
    assert status == 0
    assert "(00|00)" in out and "J and K" in out and "in memory" in out
    assert "straight" in out
    assert "3 kernels compiled" in out
    assert len(list(directory.glob("*.so"))) == 3
    status, out, _ = trnqc(*command)
    assert "0 kernels compiled" in out and "3 were in the cache" in out
    status, out, _ = trnqc("eri", "list")
    assert status == 0
    assert "jk_eri_0000_sph" in out and "3 libraries" in out


def test_other_sources_of_the_same_kernels(trnqc, directory, monkeypatch):
    """Nothing is compiled again, and the list has each file once."""
    command = ("eri", "build", "--basis", "sto-3g", "--elements", "H")
    _, out, _ = trnqc(*command)
    assert "3 kernels compiled" in out
    monkeypatch.setattr("trnqc.jit.compile.sources", lambda module: f"{module} with a comment")
    _, out, _ = trnqc(*command)
    assert "0 kernels compiled" in out and "3 were in the cache" in out
    assert len(list(directory.glob("*.so"))) == 6
    _, out, _ = trnqc("eri", "list")
    assert "3 libraries" in out


def test_all_purposes(trnqc, directory):
    options = ("--gradients", "--aux", "sto-3g", "--workers", 1)
    status, out, _ = trnqc("eri", "build", "--basis", "sto-3g", "--elements", "H", *options)
    assert status == 0
    assert all(words in out for words in ("in memory", "gradients", "density fitting", "fitted gradients"))
    assert len(list(directory.glob("half_transform_f*.so"))) == 2


def test_hessians_and_seminumerical_exchange(trnqc):
    options = ("--hessians", "--seminumerical", "--workers", 1)
    status, out, _ = trnqc("eri", "build", "--basis", "sto-3g", "--elements", "H", *options)
    assert status == 0
    assert all(words in out for words in ("gradients", "Hessians", "seminumerical K", "gradients of seminumerical K"))
    assert "attraction by nuclei" in out


def test_cartesian_fitting_functions(trnqc):
    options = ("--aux", "weigend", "--cartesian", "--workers", 1)
    status, out, _ = trnqc("eri", "build", "--basis", "sto-3g", "--elements", "H", *options)
    assert status == 0
    assert "density fitting" in out and "Cartesian" in out


def test_range_separation(trnqc):
    status, out, _ = trnqc("eri", "build", "--basis", "sto-3g", "--elements", "H", "--operator", "erf")
    assert status == 0
    assert "erf" in out and "1 kernels compiled" in out


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ((), "--basis"),
        (("--basis", "nonsense"), "nonsense is no basis set"),
        (("--basis", "sto-3g", "--elements", "Q"), "element symbols"),
        (("--basis", "sto-3g", "--elements", "Og"), "Og"),
        (("--basis", "cc-pv5z", "--elements", "C", "--gradients"), "angular momentum 6"),
        (("--basis", "sto-3g", "--workers", "0"), "positive"),
    ],
    ids=str,
)
def test_what_cannot_be_built(trnqc, options, words):
    status, _, err = trnqc("eri", "build", *options)
    assert status == 2
    assert words in err
    assert err.startswith("trnqc: error: ") and err.count("\n") == 1


def test_no_compiler(trnqc, monkeypatch):
    monkeypatch.delenv("CC", raising=False)
    monkeypatch.setenv("PATH", os.devnull)
    monkeypatch.setattr(compiler.importlib.util, "find_spec", lambda name: None)
    status, _, err = trnqc("eri", "build", "--basis", "sto-3g", "--elements", "H")
    assert status == 2
    assert "install" in err


def test_an_empty_cache_is_an_empty_list(trnqc):
    status, out, _ = trnqc("eri", "list")
    assert status == 0
    assert "0 libraries" in out
