"""Generated CUDA through NVRTC on a GPU, if bindings and a GPU are there; otherwise the error message."""

from __future__ import annotations

import importlib.util
import sys

import numpy as np
import pytest

from tests.gen.programs import polynomial
from trnqc.errors import BackendUnavailable, CompilerError
from trnqc.gen import emit_cuda, run
from trnqc.jit import gpu


def nvrtc_is_here() -> bool:
    try:
        gpu.nvrtc_version()
    except (BackendUnavailable, ImportError):
        return False
    return True


def gpu_is_here() -> bool:
    if not importlib.util.find_spec("torch"):
        return False
    import torch

    return nvrtc_is_here() and torch.cuda.is_available()


needs_nvrtc = pytest.mark.skipif(not nvrtc_is_here(), reason="needs cuda-core and NVRTC")
needs_gpu = pytest.mark.skipif(not gpu_is_here(), reason="needs an NVIDIA GPU, cuda-core and PyTorch for CUDA")


@pytest.fixture(autouse=True)
def directory(tmp_path, monkeypatch):
    monkeypatch.setenv("TRNQC_CACHE_DIR", str(tmp_path / "cache"))


def test_missing_bindings_say_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "cuda.core", None)
    with pytest.raises(BackendUnavailable, match=r"pip install 'trnqc\[cuda\]'"):
        gpu.compile_nvrtc("")


@needs_nvrtc
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_generated_text_compiles(arch):
    assert gpu.compile_nvrtc(emit_cuda(polynomial()), arch=arch)[:4] == b"\x7fELF"


@needs_nvrtc
def test_a_text_that_nvrtc_rejects_is_shown():
    with pytest.raises(CompilerError, match="undeclared_name"):
        gpu.compile_nvrtc('extern "C" __global__ void f(double *x) { *x = undeclared_name; }')


@needs_gpu
def test_a_kernel_does_on_the_gpu_what_the_interpreter_says():
    import torch

    groups, n, lanes = 3, 5, 32
    x = np.random.default_rng(0).normal(size=(groups, n, lanes))
    ours = {"n": n, "x": x, "y": np.zeros_like(x), "z": np.zeros_like(x)}
    run(polynomial(), ours, lanes=lanes, groups=(0, groups))
    arch = "sm_{}{}".format(*torch.cuda.get_device_capability())
    module = gpu.Module(gpu.compile_nvrtc(emit_cuda(polynomial(), lanes=lanes), arch=arch))
    there = [torch.from_numpy(a).cuda() for a in (x, np.zeros_like(x), np.zeros_like(x))]
    torch.cuda.synchronize()
    module.launch("polynomial", groups, lanes, [np.int64(n), *(t.data_ptr() for t in there)])
    np.testing.assert_allclose(there[1].cpu().numpy(), ours["y"], rtol=1e-13)
    np.testing.assert_allclose(there[2].cpu().numpy(), ours["z"], rtol=1e-13)
