"""Kernels that are compiled without a GPU, by a stand-in for NVRTC and, where it is installed, by NVRTC."""

from __future__ import annotations

import os
import shutil
import struct
from pathlib import Path

import pytest

from scripts.device.recording_driver import RecordedDevice, RecordingDriver
from tests.gen.programs import polynomial
from trnqc.errors import BackendUnavailable, CompilerError, InputError
from trnqc.jit import Recipe, compile_cuda, cubin_builder, gpu
from trnqc.jit.cubin_builder import CubinBuilder
from trnqc.jit.cubins import Needs, needs


@pytest.fixture(autouse=True)
def directory(tmp_path, monkeypatch):
    monkeypatch.setenv("TRNQC_CACHE_DIR", str(tmp_path))


def cubin(*frames: int, shared: int = 0) -> bytes:
    """An ELF file with sections that name the stack frames of some functions and other needs, as NVRTC writes it."""
    names = b"\0.shstrtab\0.nv.info.f\0.nv.info\0.nv.shared.f\0"
    # An attribute of another kind, one with its value in place of a length, registers, and the frames.
    info = struct.pack("<BBHII", 4, 0x12, 8, 3, 99_999) + struct.pack("<BBH", 3, 0x1B, 99)
    info += struct.pack("<BBHII", 4, 0x2F, 8, 3, 168)
    info += b"".join(struct.pack("<BBHII", 4, 0x11, 8, n, size) for n, size in enumerate(frames))
    # Shared memory has a size, and nothing in the file.
    sections = [(0, 0, 0), (1, 64, len(names)), (11, 64, 3), (22, 64 + len(names), len(info)), (31, 64, shared)]
    table = b"".join(struct.pack("<IIQQQQIIQQ", n, 1, 0, 0, at, size, 0, 0, 1, 0) for n, at, size in sections)
    header = b"\x7fELF".ljust(0x28, b"\0") + struct.pack("<Q", 64 + len(names) + len(info))
    header = header.ljust(0x3A, b"\0") + struct.pack("<HHH", 64, len(sections), 1)
    return header + names + info + table


def test_local_memory_is_that_of_the_largest_frame():
    assert needs(cubin(0)) == Needs(168, 0, 0)
    assert needs(cubin(48, 4000, 8, shared=16384)) == Needs(168, 4000, 16384)


def test_resident_warps_follow_from_a_cubin(monkeypatch):
    """By 168 registers, by shared memory, and without limits that are known."""
    monkeypatch.setattr(cubin_builder, "cubin_of", lambda *_: (path, False))
    for arch, shared, lanes, warps in (("sm_80", 0, 128, 12), ("sm_80", 40960, 32, 4), ("sm_88", 0, 128, 0)):
        path = Path(os.environ["TRNQC_CACHE_DIR"]) / "one.cubin"
        path.write_bytes(cubin(8, shared=shared))
        monkeypatch.setattr(gpu, "require_arch", lambda *_: None)
        built = CubinBuilder(arch, RecordingDriver().bindings).build(Recipe.of(polynomial()), lanes)
        assert (built.warps, built.stack) == (warps, 8)


@pytest.mark.skipif(not shutil.which("nvcc"), reason="needs the CUDA compiler")
def test_the_needs_are_those_that_ptxas_reports():
    text = """extern "C" __global__ void f(double *x, int n) {
        __shared__ double s[300]; double a[64]; s[threadIdx.x] = x[n];
        for (int i = 0; i < n; i++) a[i % 64] += s[i % 300]; x[threadIdx.x] = a[n % 64]; }"""
    build = compile_cuda(text, name="needs", arch="sm_80")
    kernel = build.kernel("f")
    assert needs(build.cubin) == Needs(kernel.registers, kernel.stack, kernel.shared)
    assert kernel.shared == 2400 and kernel.stack >= 512


@pytest.mark.parametrize(
    ("data", "words"),
    [(b"cubin sm_80", "expected a cubin"), (cubin(8)[:80], "expected a cubin"), (cubin(), "does not say")],
)
def test_what_is_no_cubin_is_refused(data, words):
    with pytest.raises(CompilerError, match=words):
        needs(data)


@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_a_gpu_compiles_nothing_that_was_built_ahead_for_it(arch, monkeypatch):
    monkeypatch.setattr(cubin_builder, "needs", lambda cubin: Needs(255, len(cubin), 0))
    ahead, recipe = CubinBuilder(arch, RecordingDriver().bindings), Recipe.of(polynomial())
    for options in ({}, {"accumulate": "plain", "min_blocks": 2}):
        assert ahead.build(recipe, 32, **options).stack == len(f"cubin {arch}")
    assert len(ahead.compiled) == 2
    for capability, compiled in (("80", 2), ("90", 2)):
        driver = RecordingDriver(capability=int(capability))
        device = RecordedDevice(driver)
        for options in ({}, {"accumulate": "plain", "min_blocks": 2}):
            device.build(recipe, 32, **options)
        assert driver.count("Program.compile") == (0 if arch == f"sm_{capability}" else compiled)


def test_another_nvrtc_compiles_again(monkeypatch):
    monkeypatch.setattr(cubin_builder, "needs", lambda cubin: Needs(255, len(cubin), 0))
    CubinBuilder("sm_80", RecordingDriver(nvrtc=(13, 0)).bindings).build(Recipe.of(polynomial()), 32)
    driver = RecordingDriver(nvrtc=(13, 1))
    RecordedDevice(driver).build(Recipe.of(polynomial()), 32)
    assert driver.count("Program.compile") == 1


def test_what_cannot_be_built_ahead():
    with pytest.raises(InputError, match=r"such as sm_80 or sm_90; found '90'"):
        CubinBuilder("90", RecordingDriver().bindings)
    with pytest.raises(BackendUnavailable, match=r"compute capability 12\.0, but NVRTC 13\.0"):
        CubinBuilder("sm_120", RecordingDriver().bindings)


def test_local_memory_of_a_cubin_of_nvrtc():
    try:
        gpu.nvrtc_version()
    except BackendUnavailable as reason:
        pytest.skip(str(reason))
    text = """extern "C" __global__ void f(double *x, int n) {
        double a[500]; for (int i = 0; i < 500; i++) a[(i * n) % 500] = x[i];
        double s = 0; for (int i = 0; i < n; i++) s += a[(i * i) % 500]; x[threadIdx.x] = s; }"""
    assert needs(gpu.compile_nvrtc(text, arch="sm_90")).local >= 500 * 8
