"""One contract for every device: always for the stand-in on the CPU, and for GPUs if there are any."""

from __future__ import annotations

import sys
from dataclasses import replace
from enum import IntEnum
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest

from scripts.device.recording_driver import RecordedDevice, RecordingDriver
from tests.gen.programs import polynomial
from trnqc.errors import BackendUnavailable, InputError, MemoryLimit
from trnqc.gen import run
from trnqc.jit import Recipe, Signature, gpu
from trnqc.jit.cuda.prepared import PreparedLaunch
from trnqc.jit.device import CudaDevice, Device, ExternalStream, cuda_devices
from trnqc.jit.simulated_device import SimulatedDevice


class Status(IntEnum):
    NVRTC_ERROR = 1


def devices() -> list:
    try:
        devices = list(cuda_devices())
    except BackendUnavailable as error:
        devices = [pytest.param(None, marks=pytest.mark.skip(reason=str(error)), id="cuda")]
    return [SimulatedDevice(), SimulatedDevice(lanes=4), *devices]


@cache
def cuda_makers() -> list:
    """GPUs of this machine, as functions that return them."""
    try:
        return [lambda gpu=gpu: gpu for gpu in cuda_devices()]
    except BackendUnavailable:
        return []


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


def recorded(**options) -> RecordedDevice:
    return RecordedDevice(RecordingDriver(**options), lanes=8, streams=3)


@pytest.mark.filterwarnings("ignore:.*cannot be captured")
@pytest.mark.parametrize("make", [SimulatedDevice, recorded, lambda: recorded(graphs=False), *cuda_makers()])
def test_prepared_launches_read_what_arrays_hold_when_they_are_launched(make):
    """The groups of both launches add to the elements of z, each on a stream of its own, after what is on stream 0."""
    device, f = make(), polynomial()
    groups, n, lanes = 3, 5, min(8, device.most_lanes)
    built = device.build(Recipe.of(f), lanes)
    x = np.random.default_rng(0).normal(size=(groups, n, lanes))
    arrays = [{"x": device.zeros(*x.shape), "y": device.zeros(*x.shape), "z": device.zeros(*x.shape)} for _ in range(2)]
    prepared = device.prepare(
        [PreparedLaunch(built, groups, {"n": n, **own}, number) for number, own in enumerate(arrays)]
    )
    for factor in (1.0, 2.0, 3.0):
        ours = {"n": n, "x": factor * x, "y": np.zeros_like(x), "z": np.zeros_like(x)}
        run(f, ours, lanes=lanes, groups=(0, groups))
        device.write_all([(own["x"], factor * x) for own in arrays])
        device.clear(*(own[name] for own in arrays for name in "yz"))
        prepared.launch()
        for own in arrays:
            for name in "yz":
                np.testing.assert_allclose(device.download(own[name]), ours[name], rtol=1e-13)
    device.prepare([]).launch()
    if isinstance(device, CudaDevice):
        assert device.graphs.available == (make in cuda_makers() or make is recorded)


def test_launches_are_captured_once_and_the_first_time_they_are_not():
    device = recorded()
    driver, built = device._modules.core.Device(0).driver, device.build(Recipe.of(polynomial()), 8)
    arrays = {name: device.zeros(1, 1, 8) for name in "xyz"}
    prepared = device.prepare([PreparedLaunch(built, 1, {"n": 1, **arrays}, stream) for stream in (0, 1, 2, 1)])
    for counts in ((4, 0, 0), (4, 4, 1), (4, 4, 2)):
        prepared.launch()
        assert tuple(map(driver.count, ("launch", "captured launch", "Graph.launch"))) == counts
    assert {call.stream for call in driver.calls if call.name == "captured launch"} == {0, 1, 2}


def test_a_driver_without_graphs_is_told_of_once():
    device = recorded(graphs=False)
    built = device.build(Recipe.of(polynomial()), 8)
    arrays = {name: device.zeros(1, 1, 8) for name in "xyz"}
    with pytest.warns(RuntimeWarning, match=r"recorded 0: .*CUDA_ERROR_NOT_SUPPORTED.*update the driver") as told:
        for _ in range(2):
            prepared = device.prepare([PreparedLaunch(built, 1, {"n": 1, **arrays}, 0)])
            for _ in range(3):
                prepared.launch()
    assert len(told) == 1 and device.graphs.available is False


def test_prepared_launches_have_streams_of_the_device():
    device = recorded()
    built = device.build(Recipe.of(polynomial()), 8)
    with pytest.raises(InputError, match="on streams of recorded 0"):
        device.prepare([PreparedLaunch(built, 1, {}, ExternalStream(7))])


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


@pytest.mark.parametrize(
    ("driver", "words"),
    [
        ({"cuInit": lambda _: (Status.NVRTC_ERROR,)}, r"no GPU can be used \(cuInit returned NVRTC_ERROR\).*'cpu'"),
        ({"cuInit": lambda _: (0,), "cuDeviceGetCount": lambda: (0, 0)}, "no NVIDIA GPU; use the backend 'cpu'"),
        ({}, "no GPU can be used"),
    ],
)
def test_gpus_are_counted_by_the_driver(driver, words, monkeypatch):
    monkeypatch.setattr(gpu, "bindings", lambda: gpu.Bindings(None, SimpleNamespace(**driver), None))
    with pytest.raises(BackendUnavailable, match=words):
        cuda_devices()


def test_the_bindings_have_what_is_called():
    """Without a GPU the calls cannot be made, but their names and keywords can be looked up."""
    core = pytest.importorskip("cuda.core", reason="needs cuda-core")
    from cuda.bindings import driver, nvrtc

    of_device = (
        "allocate",
        "create_stream",
        "create_graph_builder",
        "set_current",
        "arch",
        "name",
        "properties",
        "memory_resource",
    )
    wanted = {
        core.Device: of_device,
        core.Kernel: ("attributes", "occupancy"),
        core.Buffer: ("fill", "close", "handle"),
        core.DeviceMemoryResource: ("attributes",),
        core.ObjectCode: ("from_cubin", "get_kernel"),
        core.Stream: ("sync", "handle", "wait"),
        core.graph.GraphBuilder: ("begin_building", "split", "join", "end_building", "complete", "close"),
        core.graph.Graph: ("launch",),
        nvrtc: ("nvrtcVersion", "nvrtcGetSupportedArchs"),
        driver: (
            "cuInit",
            "cuDeviceGetCount",
            "cuMemHostAlloc",
            "cuMemFreeHost",
            "cuMemcpyHtoDAsync",
            "cuMemcpyDtoHAsync",
            "cuMemGetInfo",
            "cuStreamSynchronize",
        ),
    }
    assert not [(owner, name) for owner, names in wanted.items() for name in names if not hasattr(owner, name)]
    core.LaunchConfig(grid=1, block=32)


@pytest.fixture
def directory(tmp_path, monkeypatch):
    monkeypatch.setenv("TRNQC_CACHE_DIR", str(tmp_path))
    return tmp_path


def build_on(**options) -> list[str]:
    """Build a kernel on a recorded device, and return what its driver compiled."""
    driver = RecordingDriver(**options)
    RecordedDevice(driver).build(Recipe.of(polynomial()), 32)
    return [call.detail for call in driver.calls if call.name == "Program.compile"]


def test_every_compiler_and_generation_has_kernels_of_its_own(directory):
    for options in ({}, {"nvrtc": (13, 1)}, {"capability": 90}):
        arch = f"sm_{options.get('capability', 80)}"
        assert build_on(**options) == [arch]
        assert build_on(**options) == []


def test_an_altered_cubin_is_compiled_again(directory):
    build_on()
    for cubin in directory.glob("*.cubin"):
        cubin.write_bytes(b"cubin sm_90")
    assert build_on() == ["sm_80"]


@pytest.mark.parametrize(("capability", "remedy"), [(70, "CUDA_VISIBLE_DEVICES"), (120, "--upgrade nvidia-cuda-nvrtc")])
def test_a_generation_without_a_compiler_is_named(directory, capability, remedy):
    words = rf"recorded 0 has compute capability {capability / 10}, but NVRTC 13\.0 .* for 7\.5 to 9\.0: .*{remedy}"
    with pytest.raises(BackendUnavailable, match=words):
        build_on(capability=capability)


def test_doubles_are_not_added_before_compute_capability_6(directory):
    assert build_on(capability=60, compiles_for=(50, 60, 80)) == ["sm_60"]
    with pytest.raises(BackendUnavailable, match=r"5\.0, but .* for 6\.0 to 8\.0"):
        build_on(capability=50, compiles_for=(50, 60, 80))


def test_a_cubin_of_another_generation_is_refused(directory, monkeypatch):
    monkeypatch.setattr(gpu, "_nvrtc", lambda *_: b"cubin sm_90")
    words = r"recorded 0 \(sm_80\) cannot load the kernel polynomial \(CUDA_ERROR_NO_BINARY.* 13\.0 .*remove .*cubin"
    with pytest.raises(BackendUnavailable, match=words):
        build_on()


def test_nvrtc_that_fails_says_what_to_install():
    driver = RecordingDriver()
    failing = driver.bindings.nvrtc
    failing.nvrtcVersion = lambda: (Status.NVRTC_ERROR, 0, 0)
    with pytest.raises(BackendUnavailable, match=r"nvrtcVersion of NVRTC returned NVRTC_ERROR.*pip install"):
        gpu.nvrtc_version(driver.bindings._replace(nvrtc=failing))
