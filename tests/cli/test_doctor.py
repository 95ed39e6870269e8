"""The table of `trnqc doctor` says why a backend cannot run and what to do."""

from __future__ import annotations

import json
import os

from pyscf import gto, lib, scf
from rich.console import Console

import trnqc as package
from trnqc import backends
from trnqc.backends.base import BackendStatus
from trnqc.backends.cuda import backend as cuda
from trnqc.cli import machine
from trnqc.cli.doctor import table
from trnqc.errors import BackendUnavailable, CompilerError
from trnqc.jit import device
from trnqc.jit.cache import Cache


def test_lists_every_backend(trnqc):
    status, out, _ = trnqc("doctor")
    assert status == 0
    for name in ("cpu", "simulator", "neuron", "cuda"):
        assert name in out
    for precision in ("fp32", "bf16x15", "bf16x6", "bf16x3", "bf16"):
        assert f"{precision}: error" in out
    assert "numpy" in out


def test_usable_and_not():
    console = Console(width=100, record=True)
    well = BackendStatus(usable=True, versions={"nki": "0.6"}, devices=("trn1 core 0",))
    ill = BackendStatus(usable=False, reason="a stub is installed [nki 0.0.1]", hint="install the vendor's")
    console.print(table({"well": well, "ill": ill}, {"well": ("bf16: error 1.0e-02, promised 1.6e-02",)}))
    text = console.export_text()
    for words in (
        "yes",
        "on trn1 core 0",
        "nki: 0.6",
        "bf16: error 1.0e-02, promised 1.6e-02",
        "no",
        "a stub is installed [nki 0.0.1]",
        "-> install the vendor's",
    ):
        assert words in text


def test_the_machine_is_described(trnqc, tmp_path):
    status, out, _ = trnqc("doctor", "--json", tmp_path / "facts.json")
    facts = json.loads((tmp_path / "facts.json").read_text())
    assert status == 0
    assert set(facts) == {"backends", "processor", "blas", "gpu", "kernel cache", "accelerate"}
    assert facts["backends"]["cpu"]["usable"] is True
    assert list(facts["gpu"]) == ["driver", "cuda-core", "nvmath-python", "nvcc", "devices"]
    assert facts["processor"]["threads"] == lib.num_threads()
    for words in (facts["processor"]["model"], "vectors", "driver", "nvcc", "cuda-core", "entries"):
        assert words in out


def test_the_cache_is_counted(monkeypatch, tmp_path):
    monkeypatch.setenv("TRNQC_CACHE_DIR", str(tmp_path / "kept"))
    assert machine.kernel_cache() == {"directory": str(tmp_path / "kept"), "entries": 0, "bytes": 0}
    (tmp_path / "kept" / "tuning").mkdir(parents=True)
    for name in ("a", "b"):
        Cache(tmp_path / "kept").get(name, lambda path: path.write_bytes(b"x" * 1000) and None)
    facts = machine.kernel_cache()
    assert (facts["entries"], facts["bytes"]) == (2, 2 * (1000 + 64))


def test_files_that_vanish_while_the_cache_is_counted(monkeypatch, tmp_path):
    """Another process renames its temporary file after the directory has been listed."""
    monkeypatch.setenv("TRNQC_CACHE_DIR", str(tmp_path))
    (tmp_path / "entry.sha256").write_bytes(b"x" * 64)
    names = os.listdir(tmp_path)
    monkeypatch.setattr(machine.os, "listdir", lambda _: [*names, "renamed-by-another-process"])
    assert machine.kernel_cache() == {"directory": str(tmp_path), "entries": 1, "bytes": 64}


def test_accelerate_is_what_runs():
    """The words are those that a direct build says afterwards."""
    mf = package.accelerate(scf.RHF(gto.M(atom="H 0 0 0; H 0 0 0.7", basis="sto-3g", verbose=0)))
    own = mf._builder(mf.mol, None)
    assert machine.accelerated()["auto"] == own.ran_on


def test_what_is_missing_is_said_in_one_line(monkeypatch):
    def no_compiler():
        raise CompilerError("no usable C compiler: install one\nfirst failure")

    def no_gpu():
        raise BackendUnavailable("no GPU is there")

    monkeypatch.setattr(machine, "find_compiler", no_compiler)
    monkeypatch.setattr(device, "cuda_devices", no_gpu)
    assert machine.processor()["compiler"] == "not usable: no usable C compiler: install one"
    status = backends.statuses()["cuda"]
    assert (status.usable, status.reason, status.devices) == (False, "no GPU is there", ())
    assert "trnqc[cuda]" in status.hint


def test_gpus_are_named(monkeypatch, tmp_path):
    class Device:
        name, arch = "H100", "sm_90"

    (tmp_path / "version").write_text("NVRM version: 580.1\nGCC version: 12\n")
    monkeypatch.setattr(cuda, "DRIVER", tmp_path / "version")
    monkeypatch.setattr(device, "cuda_devices", lambda: (Device(), Device()))
    status = backends.statuses()["cuda"]
    assert status.usable and status.devices == ("H100 (sm_90)",) * 2
    assert status.versions["driver"] == "NVRM version: 580.1"
    assert machine.accelerated()["cuda"] == "generated CUDA on H100, H100"


def test_facts_that_cannot_be_written(trnqc):
    status, out, err = trnqc("doctor", "--json", "/nowhere/facts.json")
    assert (status, out) == (2, "") and "/nowhere/facts.json: cannot be written" in err and err.count("\n") == 1
