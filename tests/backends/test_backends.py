from __future__ import annotations

import sys
from types import ModuleType

import pytest

from trnqc import backends
from trnqc.backends.base import Backend, BackendStatus
from trnqc.errors import BackendUnavailable, InputError, UnsupportedPrecision


class Fake:
    """A stand-in for a device that this machine lacks."""

    name = "neuron"
    precisions = ("fp32", "bf16x3")
    usable = True

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


def test_unknown_name():
    with pytest.raises(InputError, match="abacus"):
        backends.get("abacus")


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


def test_the_protocol_is_met():
    cpu: Backend = backends.get("cpu")
    assert {"status", "gemm", "batched_contraction", "mp2_pairs"} <= set(dir(cpu))
