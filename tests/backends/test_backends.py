from __future__ import annotations

import sys
from types import ModuleType

import pytest

from trnqc import backends
from trnqc.backends.base import Backend, BackendStatus
from trnqc.errors import BackendUnavailable, InputError, UnsupportedError, UnsupportedPrecision


class Fake:
    """A stand-in for a device that this machine lacks."""

    name = "neuron"
    precisions = ("fp32", "bf16x3")
    usable = True
    accurate = True

    def require_accuracy(self, precision):
        if not self.accurate:
            raise UnsupportedPrecision(f"{precision} is less accurate than it promises")

    def status(self) -> BackendStatus:
        return BackendStatus(self.usable, "no device is attached" * (not self.usable), "attach one", {}, ())


@pytest.fixture
def neuron(monkeypatch):
    """The registry with `Fake` in the place of neuron; its class, to change."""
    module = ModuleType("fake_neuron")
    module.Neuron = type("Neuron", (Fake,), {})
    monkeypatch.setitem(sys.modules, "fake_neuron", module)
    monkeypatch.setitem(backends._CLASSES, "neuron", ("fake_neuron", "Neuron"))
    backends._instance.cache_clear()
    yield module.Neuron
    backends._instance.cache_clear()


def test_every_backend_has_a_status_and_its_own_name():
    statuses = backends.statuses()
    assert tuple(statuses) == backends.names()
    assert statuses["cpu"].usable
    for name, status in statuses.items():
        assert status.usable or (status.reason and status.hint), name
        if status.usable:
            assert backends.get(name).name == name


@pytest.mark.parametrize("name", backends.names())
def test_devices_are_there_or_refused_in_words(name):
    """Whoever sends programs to a backend gets its devices, or an error that says why there are none."""
    try:
        assert len(backends.devices(name)) > 0
    except UnsupportedError as error:
        assert name == "cpu" and "backend 'cpu' has no devices" in str(error)
    except (BackendUnavailable, ImportError):
        assert not backends.statuses()[name].usable


def test_unknown_name():
    for ask in (backends.get, backends.devices):
        with pytest.raises(InputError, match="abacus"):
            ask("abacus")


def test_named_backend_that_cannot_run_is_an_error(neuron):
    neuron.usable = False
    for ask in (lambda: backends.get("neuron"), lambda: backends.select("neuron", "fp32")):
        with pytest.raises(BackendUnavailable, match=r"no device is attached.*attach one"):
            ask()


def test_a_module_that_does_not_import_is_unusable(monkeypatch):
    monkeypatch.setitem(backends._CLASSES, "neuron", ("no_such_module_of_ours", "Neuron"))
    backends._instance.cache_clear()
    status = backends.statuses()["neuron"]
    assert not status.usable
    assert "no_such_module_of_ours" in status.reason and "no_such_module_of_ours" in status.hint
    assert backends.select("auto", "fp32").backend.name == "cpu"


@pytest.mark.parametrize(
    ("usable", "precision", "chosen", "why"),
    [
        (True, "fp32", "neuron", "found"),
        (True, "fp64", "cpu", "no fp64"),
        (False, "fp32", "cpu", "no device is attached"),
    ],
)
def test_auto(neuron, usable, precision, chosen, why):
    neuron.usable = usable
    selection = backends.select("auto", precision)
    assert selection.backend.name == chosen
    assert why in selection.note


def test_precision_that_a_named_backend_lacks(neuron):
    with pytest.raises(UnsupportedPrecision, match=r"fp32, bf16x3.*fp64"):
        backends.select("neuron", "fp64")


@pytest.mark.parametrize("name", backends.names())
def test_a_backend_defines_all_that_it_claims(name):
    cls = type(backends._instance(name))
    for method in ("status", "_product", "_pair_step"):
        assert getattr(cls, method) is not getattr(Backend, method), method


def test_auto_does_not_replace_a_device_that_breaks_its_promise(neuron):
    neuron.accurate = False
    with pytest.raises(UnsupportedPrecision, match="fp32 is less accurate"):
        backends.select("auto", "fp32")
