"""One contract for every device: always for the stand-in on the CPU, and for GPUs if there are any."""

from __future__ import annotations

import sys
from dataclasses import replace

import numpy as np
import pytest

from tests.gen.programs import polynomial
from trnqc.errors import BackendUnavailable, MemoryLimit
from trnqc.gen import run
from trnqc.jit import Recipe, Signature
from trnqc.jit.device import CudaDevice, Device, cuda_devices
from trnqc.jit.simulated_device import SimulatedDevice


def devices() -> list:
    try:
        devices = list(cuda_devices())
    except BackendUnavailable as error:
        devices = [pytest.param(None, marks=pytest.mark.skip(reason=str(error)), id="cuda")]
    return [SimulatedDevice(), SimulatedDevice(lanes=4), *devices]


@pytest.mark.parametrize("device", devices())
def test_a_launch_does_what_the_interpreter_says(device: Device):
    groups, n, lanes = 3, 5, min(32, device.most_lanes)
    x = np.random.default_rng(0).normal(size=(groups, n, lanes))
    ours = {"n": n, "x": x, "y": np.zeros_like(x), "z": np.zeros_like(x)}
    run(polynomial(), ours, lanes=lanes, groups=(0, groups))
    built = device.build(Recipe.of(polynomial()), lanes)
    there, y, z = device.upload(x), device.zeros(*x.shape), device.zeros(*x.shape)
    device.launch(built, groups, {"n": n, "x": there, "y": y, "z": z}, stream=1)
    device.synchronize()
    np.testing.assert_allclose(device.download(y), ours["y"], rtol=1e-13)
    np.testing.assert_allclose(device.download(z), ours["z"], rtol=1e-13)
    free = device.free_memory()
    device.release(there, y, z)
    assert device.free_memory() >= free


@pytest.mark.parametrize("device", devices())
@pytest.mark.parametrize("kind", [np.float64, np.int64])
def test_memory_keeps_arrays(device: Device, kind):
    for shape in ((0,), (7,), (3, 2, 5)):
        inputs = np.arange(np.prod(shape)).reshape(shape).astype(kind)
        memory = device.upload(inputs)
        assert (memory.shape, memory.nbytes) == (shape, inputs.nbytes)
        np.testing.assert_array_equal(device.download(memory), inputs)
    memory = device.zeros(4, dtype=kind)
    device.write(memory, np.array([3, 5], kind))
    device.synchronize(stream=0)
    np.testing.assert_array_equal(device.download(memory), [3, 5, 0, 0])


def test_what_has_a_key_is_made_once(monkeypatch, tmp_path):
    monkeypatch.setenv("TRNQC_CACHE_DIR", str(tmp_path))
    f, generated = polynomial(), []
    recipe = Recipe(f.name, (Signature.of(f),), lambda: generated.append(f) or (f,), "trnqc.errors", variant="a")
    for _ in range(2):
        SimulatedDevice().build(recipe, 4)
    assert len(generated) == 1
    SimulatedDevice().build(replace(recipe, variant="b"), 4)
    SimulatedDevice().build(recipe, 8)
    assert len(generated) == 3


def test_memory_runs_out():
    device = SimulatedDevice("small", memory=1000)
    first = device.zeros(100)
    assert device.free_memory() == 200
    with pytest.raises(MemoryLimit, match=r"small has .* left"):
        device.zeros(26)
    device.release(first)
    assert device.free_memory() == 1000


def test_a_stream_must_be_there():
    device = SimulatedDevice(streams=2)
    built = device.build(Recipe.of(polynomial()), 8)
    with pytest.raises(BackendUnavailable, match=r"the streams 0 \.\. 1"):
        device.launch(built, 0, {"n": 1, **{name: device.zeros(0) for name in "xyz"}}, stream=2)


def test_without_bindings_or_a_gpu_they_say_why(monkeypatch):
    monkeypatch.setitem(sys.modules, "cuda.core", None)
    for make in (cuda_devices, CudaDevice):
        with pytest.raises(BackendUnavailable, match=r"pip install 'trnqc\[cuda\]'"):
            make()


def test_the_bindings_have_what_is_called():
    """Without a GPU the calls cannot be made, but their names and keywords can be looked up."""
    core = pytest.importorskip("cuda.core", reason="needs cuda-core")
    from cuda.bindings import driver

    of_device = (
        "allocate",
        "create_stream",
        "get_all_devices",
        "set_current",
        "arch",
        "name",
        "properties",
        "memory_resource",
    )
    wanted = {
        core.Device: of_device,
        core.Kernel: ("attributes",),
        core.Buffer: ("fill", "close", "handle"),
        core.DeviceMemoryResource: ("attributes",),
        core.ObjectCode: ("from_cubin", "get_kernel"),
        core.Stream: ("sync", "handle"),
        driver: ("cuMemcpyHtoD", "cuMemcpyDtoH", "cuMemGetInfo", "cuStreamSynchronize"),
    }
    assert not [(owner, name) for owner, names in wanted.items() for name in names if not hasattr(owner, name)]
    core.LaunchConfig(grid=1, block=32)
