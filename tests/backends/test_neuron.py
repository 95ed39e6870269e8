"""The Trainium backend without Trainium: packages and devices are replaced, kernels are simulated on CPU tensors."""

from __future__ import annotations

import sys
from types import ModuleType

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the neuron backend launches through torch (extra 'torch')")

from nki_kernels.descriptors import kernels  # noqa: E402
from tests.backends.fitted_contract import FittedContract  # noqa: E402
from tests.backends.gamma_contract import GammaContract  # noqa: E402
from trnqc import sim  # noqa: E402
from trnqc.backends import get, select  # noqa: E402
from trnqc.backends.base import BackendStatus  # noqa: E402
from trnqc.backends.neuron import packages  # noqa: E402
from trnqc.backends.neuron.backend import Neuron  # noqa: E402
from trnqc.backends.neuron.device import NeuronDevice, open_device  # noqa: E402
from trnqc.backends.nki import launch as launches  # noqa: E402
from trnqc.backends.nki import vendor  # noqa: E402
from trnqc.errors import BackendUnavailable, InputError  # noqa: E402
from trnqc.tuning import conditions  # noqa: E402

GEMM = kernels()["gemm"]


class OnHost(Neuron):
    """The backend as it is, except for its device: CPU tensors, for which ``host_kernels`` names the stand-in."""

    def devices(self):
        return (NeuronDevice("cpu", 1),)

    def status(self):
        return BackendStatus(True, versions={"nki": "simulated"})


class TestNeuronOnHost(GammaContract, FittedContract):
    backend = OnHost()
    sizes = ((1, 1, 1), (3, 1, 5), (2, 129, 140))

    @pytest.fixture(autouse=True)
    def simulated(self):
        with launches.host_kernels("simulator"):
            yield


# -- what is installed ------------------------------------------------------------------------------------------------


@pytest.fixture
def distribution(tmp_path, monkeypatch):
    """Writes a distribution (metadata and module) that imports see for the length of a test."""
    monkeypatch.syspath_prepend(str(tmp_path))

    def write(name: str, version: str, source: str) -> None:
        module = packages.REQUIREMENTS[name].module
        (tmp_path / f"{module}.py").write_text(source)
        info = tmp_path / f"{module}-{version}.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n")
        monkeypatch.delitem(sys.modules, module, raising=False)

    return write


@pytest.mark.parametrize(
    "version, source, problem",
    [
        ("0.0.1", "", "nki 0.0.1 is the public index's stub"),
        ("0.6.0", "raise ImportError('WRONG PACKAGE: get it elsewhere')", "nki 0.6.0 is the public index's stub"),
        ("0.2.0", "", "nki 0.2.0 is too old: 0.6 or newer is needed"),
        ("0.5.0", "", "nki 0.5.0 is too old: 0.6 or newer is needed"),
        ("0.6.0", "raise OSError('libnrt.so not found')", "nki 0.6.0 cannot be imported: libnrt.so not found"),
        ("0.6.0+abc", "", ""),
        ("0.10.1", "", ""),
    ],
)
def test_packages_are_judged(distribution, version, source, problem):
    distribution("nki", version, source)
    result = packages.find("nki")
    assert result.version == version
    assert result.problem.startswith(problem) and bool(result.problem) == bool(problem)


def test_an_absent_package_is_named(monkeypatch):
    def absent(name):
        raise packages.importlib.metadata.PackageNotFoundError(name)

    monkeypatch.setattr(packages.importlib.metadata, "version", absent)
    assert packages.find("torch-neuronx").problem == "torch-neuronx is not installed"


@pytest.mark.parametrize(
    "environment, product, cores",
    [
        ({"NEURON_LOGICAL_NC_CONFIG": "1"}, "trn2.48xlarge", 1),
        ({"NEURON_LOGICAL_NC_CONFIG": "2"}, "trn2.48xlarge", 2),
        ({}, "trn1.2xlarge", 1),
        ({}, "inf2.xlarge", 1),
        ({}, "trn2.48xlarge", 2),
        ({"NEURON_PLATFORM_TARGET_OVERRIDE": "trn1"}, "trn2.48xlarge", 1),
        ({}, None, 1),
    ],
)
def test_logical_cores_follow_the_machine(monkeypatch, tmp_path, environment, product, cores):
    for name in ("NEURON_LOGICAL_NC_CONFIG", "NEURON_PLATFORM_TARGET_OVERRIDE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(conditions, "PRODUCT", tmp_path / "product_name")
    if product is not None:
        conditions.PRODUCT.write_text(product + "\n")
    assert conditions.logical_cores() == cores


# -- status -----------------------------------------------------------------------------------------------------------


@pytest.fixture
def machine(monkeypatch):
    """A machine with the devices and packages that a test names; returns the way to say so."""

    def build(devices, problems=(), native=True):
        monkeypatch.setattr(packages, "device_files", lambda: tuple(devices))
        names = list(packages.REQUIREMENTS)
        result = {n: packages.Package(n, "2.9", dict(problems).get(n, "")) for n in names}
        monkeypatch.setattr(packages, "find", result.__getitem__)
        module = ModuleType("torch_neuronx")
        if native:
            module.wrap_nki = lambda kernel: kernel
        monkeypatch.setitem(sys.modules, "torch_neuronx", module)

    return build


def test_without_device_or_packages_it_says_both(machine):
    machine([], {"nki": "nki is not installed"})
    status = Neuron().status()
    assert not status.usable
    assert "no /dev/neuron* device" in status.reason and "nki is not installed" in status.reason
    assert packages.INDEX in status.hint
    with pytest.raises(BackendUnavailable, match=r"no /dev/neuron\* device.*pip install"):
        get("neuron")


def test_with_packages_but_no_device_it_asks_for_one(machine):
    machine([])
    status = Neuron().status()
    assert not status.usable and "instance" in status.hint and status.versions == {"nki": "2.9", "torch-neuronx": "2.9"}


@pytest.mark.parametrize("native, path", [(True, "native device"), (False, "PyTorch/XLA")])
def test_a_complete_machine_is_usable_by_the_path_it_has(machine, native, path):
    machine(["/dev/neuron0"], native=native)
    status = Neuron().status()
    assert status.usable and path in status.reason and status.devices == ("/dev/neuron0",)


def test_auto_takes_a_usable_device_where_it_has_the_precision(machine, monkeypatch):
    """The accuracy of the device is asked for before it is taken; tests/backends/test_accuracy.py measures one."""
    machine(["/dev/neuron0"])
    asked = []
    monkeypatch.setattr(Neuron, "require_accuracy", lambda self, precision: asked.append(precision))
    assert select("auto", "fp32").backend.name == "neuron"
    assert select("auto", "fp64").backend.name == "cpu"
    assert asked == ["fp32"]


@pytest.mark.parametrize("native", [True, False])
def test_the_device_is_opened_by_the_path_there_is(machine, monkeypatch, native):
    machine(["/dev/neuron0"], native=native)
    xla = ModuleType("torch_xla")
    xla.device = lambda: "xla:0"
    monkeypatch.setitem(sys.modules, "torch_xla", xla)
    assert open_device().device == ("neuron" if native else "xla:0")


# -- launches ---------------------------------------------------------------------------------------------------------


def operands():
    rng = np.random.default_rng(1)
    return rng.standard_normal((1, 30, 7)).astype(np.float32), rng.standard_normal((1, 30, 5)).astype(np.float32)


def test_cpu_tensors_need_a_decision():
    tensors = [vendor.to_tensor(x) for x in operands()]
    with pytest.raises(BackendUnavailable, match="host_kernels"):
        launches.launch(GEMM, *tensors)


@pytest.mark.parametrize("how", launches.HOST_KERNELS)
def test_the_decision_is_followed_and_ends(how):
    a_t, b = operands()
    tensors = [vendor.to_tensor(x) for x in (a_t, b)]
    with launches.host_kernels(how):
        result = launches.launch(GEMM, *tensors)
    torch.testing.assert_close(result, torch.from_numpy(a_t[0].T @ b[0]), atol=1e-5, rtol=0)
    assert launches._host.get() is None


def test_an_unknown_stand_in_is_refused():
    with pytest.raises(InputError, match="simulator, reference"), launches.host_kernels("gpu"):
        pass


def test_devices_are_not_mixed():
    with pytest.raises(InputError, match=r"one device.*found cpu, meta"):
        launches.launch(GEMM, torch.ones(1, 2, 2), torch.ones(1, 2, 2, device="meta"))
    with pytest.raises(InputError, match=r"one device.*found cpu, numpy"):
        launches.launch(GEMM, torch.ones(1, 2, 2), np.ones((1, 2, 2), np.float32))


def test_devices_launch_kernels_by_name():
    with pytest.raises(InputError, match=r"a kernel is one of batched_contraction, .*; found 'gem'"):
        NeuronDevice("cpu", 1).call("gem", torch.ones(1, 2, 2), torch.ones(1, 2, 2))


def test_the_native_path_wraps_once_and_names_its_cores(monkeypatch):
    """Up to the vendor's call, whose place the simulator takes."""
    grids, wrapped = [], []

    class Wrapped:
        def __init__(self, kernel):
            wrapped.append(kernel)
            self.kernel = kernel

        def __getitem__(self, grid):
            grids.append(grid)
            return lambda *args, **constants: sim.simulate(self.kernel)(*args, **constants)

    module = ModuleType("torch_neuronx")
    module.wrap_nki = Wrapped
    monkeypatch.setitem(sys.modules, "torch_neuronx", module)
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", "2")
    vendor._wrapped.cache_clear()
    a_t, b = operands()
    for _ in range(2):
        result = vendor.native(GEMM, (a_t, b), {"rows": 128, "cols": 5, "kchunk": 1})
    vendor._wrapped.cache_clear()
    np.testing.assert_allclose(result, a_t[0].T @ b[0], atol=1e-5)
    assert wrapped == [GEMM.function] and grids == [(2,), (2,)]


@pytest.mark.parametrize("cores", ["1", "2"])
def test_the_xla_path_calls_the_kernel_on_its_cores(monkeypatch, cores):
    monkeypatch.setenv("NKI_SIMULATOR", "1")
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", cores)
    a_t, b = operands()
    result = vendor.xla(GEMM, (a_t, b), {})
    np.testing.assert_allclose(result, a_t[0].T @ b[0], atol=1e-5)


@pytest.mark.parametrize(
    "device, module, attribute", [("neuron", "torch.neuron", "synchronize"), ("xla", "torch_xla", "sync")]
)
def test_waiting_reaches_the_device(monkeypatch, device, module, attribute):
    calls = []
    fake = ModuleType(module)
    setattr(fake, attribute, lambda **options: calls.append(options))
    monkeypatch.setitem(sys.modules, module, fake)
    monkeypatch.setattr(torch, "neuron", fake, raising=False)
    vendor.synchronize(device)
    assert calls == [{"wait": True} if device == "xla" else {}]


def test_bf16_survives_the_border():
    x = torch.randn(3, 4).to(torch.bfloat16)
    array = vendor.to_numpy(x)
    assert array.dtype.name == "bfloat16"
    assert torch.equal(vendor.to_tensor(array), x)


@pytest.mark.device
@pytest.mark.skipif(not packages.device_files(), reason="no Trainium device here")
def test_on_the_device_itself():
    backend = get("neuron")
    a_t, b = (x[0].astype(np.float64) for x in operands())
    np.testing.assert_allclose(backend.gemm(a_t, b, precision="fp32"), a_t.T @ b, atol=1e-4)
