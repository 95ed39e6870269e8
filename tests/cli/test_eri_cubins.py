"""``trnqc eri build --cuda`` with a stand-in for NVRTC."""

from __future__ import annotations

import json

import pytest
from pyscf import gto, scf

from scripts.device.recording_driver import RecordedDevice, RecordingDriver
from trnqc.eri.cuda.builder import CudaJKBuilder
from trnqc.eri.cuda.scf.programs import PARAMETERS, build
from trnqc.errors import BackendUnavailable
from trnqc.jit import cubin_builder, gpu
from trnqc.jit.cubins import Needs

HYDROGEN = ("eri", "build", "--basis", "sto-3g", "--elements", "H", "--workers", 1)


@pytest.fixture(autouse=True)
def stand_in(tmp_path, monkeypatch) -> RecordingDriver:
    monkeypatch.setenv("TRNQC_CACHE_DIR", str(tmp_path))
    driver = RecordingDriver()
    monkeypatch.setattr(gpu, "bindings", lambda: driver.bindings)
    monkeypatch.setattr(cubin_builder, "needs", lambda cubin: Needs(255, 0, 0))
    return driver


def test_a_gpu_finds_what_was_built_ahead(trnqc, stand_in):
    status, out, _ = trnqc(*HYDROGEN, "--cuda", "sm_80", "sm_90")
    assert status == 0
    assert "(00|00)" in out and "22 kernels compiled by NVRTC 13.0 for sm_80, sm_90" in out
    mol = gto.M(atom="H 0 0 0; H 0 0 1", basis="sto-3g", verbose=0)
    for capability in (80, 90):
        driver = RecordingDriver(capability=capability)
        CudaJKBuilder(mol, devices=[RecordedDevice(driver, lanes=1024)]).get_jk(scf.hf.init_guess_by_minao(mol))
        for name in PARAMETERS:
            build(RecordedDevice(driver, lanes=1024), name)
        assert driver.count("launch") == 2 and driver.count("Program.compile") == 0
    assert "0 kernels compiled" in trnqc(*HYDROGEN, "--cuda", "sm_90")[1]


def test_the_form_that_spills_least_is_taken(trnqc, monkeypatch):
    """Registers, shared, memory with fences and atomics, columns: two of them are beyond the compiler."""
    stacks = iter([60_000, 8, 16, 60_000, 24])
    monkeypatch.setattr(cubin_builder, "needs", lambda cubin: Needs(255, next(stacks, 0), 0))
    status, out, _ = trnqc(*HYDROGEN, "--cuda", "sm_90", "--json", "-")
    kernel = json.loads(out)[0]
    assert status == 0 and (kernel["tier"], kernel["stack"]) == ("shared", 8)
    words = "60000 bytes a thread beside the registers"
    assert kernel["rejected"] == [f"targets in registers: {words}", f"targets in memory: {words}"]


def test_without_nvrtc_it_is_one_error(trnqc, monkeypatch):
    def missing() -> gpu.Bindings:
        raise BackendUnavailable("the CUDA bindings cannot be imported: pip install 'trnqc[cuda]'")

    monkeypatch.setattr(gpu, "bindings", missing)
    status, _, err = trnqc(*HYDROGEN, "--cuda", "sm_90")
    assert status == 2 and err.count("\n") == 1 and "pip install 'trnqc[cuda]'" in err


def test_what_gpus_do_not_have_is_refused(trnqc):
    status, _, err = trnqc(*HYDROGEN, "--cuda", "sm_90", "--gradients")
    assert status == 2 and "leave out --gradients" in err
