"""Precisions are measured on a device before their first use, and refused if they break what they promise."""

from __future__ import annotations

import json

import numpy as np
import pytest

from nki_kernels.precision.splits import PRECISIONS
from trnqc import backends
from trnqc.backends.nki import accuracy
from trnqc.backends.simulator.backend import Simulator
from trnqc.backends.simulator.device import SimulatedCore
from trnqc.errors import UnsupportedPrecision
from trnqc.host.files import record_line


class Core(SimulatedCore):
    """A simulated device of a compiler version, which counts its launches."""

    def __init__(self, compiler="1", error=0.0):
        super().__init__()
        self.compiler, self.error, self.launches = compiler, error, 0

    def identity(self):
        return {"target": self.target, "compiler": self.compiler}

    def call(self, kernel, *args, **constants):
        self.launches += 1
        return super().call(kernel, *args, **constants) * (1 + self.error)


@pytest.fixture(autouse=True)
def empty_cache(tmp_path, monkeypatch):
    monkeypatch.setenv("TRNQC_CACHE_DIR", str(tmp_path))
    accuracy.forget()
    yield tmp_path / "accuracy"
    accuracy.forget()


@pytest.mark.parametrize("target", ["trn1", "trn2"])
@pytest.mark.parametrize("precision", PRECISIONS)
def test_exact_products_keep_every_promise(precision, target, monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", target)
    measured = accuracy.accuracy_of(SimulatedCore(), precision)
    assert measured.kept and measured.transposes == 0.0


@pytest.mark.parametrize("precision", ["bf16x6", "bf16x3"])
def test_rounded_products_are_refused_with_both_errors(precision, monkeypatch):
    monkeypatch.setenv("TRNQC_SIM_BF16_PRODUCTS", "rounded")
    promised = f"{PRECISIONS[precision].error:.1e}"
    words = rf"{precision}' promises .* {promised}, but 3\.8e-03 was measured on .*bf16x15.* or the backend 'cpu'"
    with pytest.raises(UnsupportedPrecision, match=words):
        accuracy.require_accuracy(SimulatedCore(), precision)


def test_parts_of_four_bits_are_accurate_where_products_are_rounded(monkeypatch):
    monkeypatch.setenv("TRNQC_SIM_BF16_PRODUCTS", "rounded")
    accuracy.require_accuracy(SimulatedCore(), "bf16x15")
    accuracy.require_accuracy(SimulatedCore(), "fp32")
    accuracy.require_accuracy(SimulatedCore(), "bf16")  # it promises no more


def test_rounded_fp32_is_refused_and_on_trn1_all_that_transposes_it(monkeypatch):
    monkeypatch.setenv("TRNQC_SIM_FP32_PRODUCTS", "rounded")
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn1")
    with pytest.raises(UnsupportedPrecision, match="transposes 3"):
        accuracy.require_accuracy(SimulatedCore(), "fp32")
    with pytest.raises(UnsupportedPrecision, match="use the backend 'cpu'"):
        accuracy.require_accuracy(SimulatedCore(), "bf16x15")
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    accuracy.require_accuracy(SimulatedCore(), "bf16x15")


def test_results_that_are_no_numbers_are_refused():
    with pytest.raises(UnsupportedPrecision, match="inf was measured"):
        accuracy.require_accuracy(Core(error=np.nan), "fp32")


def test_a_device_is_measured_once_and_then_read_from_the_cache(empty_cache):
    core = Core()
    first = accuracy.accuracy_of(core, "bf16x3")
    assert accuracy.accuracy_of(core, "bf16x3") == first and core.launches == 1
    accuracy.forget()
    assert accuracy.accuracy_of(core, "bf16x3") == first and core.launches == 1
    assert [path.name.split("-")[0] for path in empty_cache.iterdir()] == ["bf16x3"]
    accuracy.accuracy_of(core, "fp32")
    assert core.launches == 2


def test_another_compiler_is_measured_again(empty_cache):
    accuracy.require_accuracy(Core("1"), "fp32")
    with pytest.raises(UnsupportedPrecision, match=r"1\.0e-02 was measured"):
        accuracy.require_accuracy(Core("2", error=0.01), "fp32")
    accuracy.require_accuracy(Core("1"), "fp32")
    assert len(list(empty_cache.iterdir())) == 2


@pytest.mark.parametrize(
    "damage",
    [
        lambda data: b"",
        lambda data: data[:-9],
        lambda data: data.replace(b"e-0", b"e-1"),
        lambda data: data + data,
        lambda data: record_line({"precision": "bf16", "products": 0.0, "sums": 0.0, "transposes": 0.0}),
        lambda data: record_line({"unknown": 1}),
        lambda data: b"\x80\x04not a record",
    ],
    ids=["empty", "truncated", "edited", "twice", "of another precision", "of another version", "no text"],
)
def test_a_damaged_file_is_measured_again_and_replaced(empty_cache, damage):
    core = Core()
    first = accuracy.accuracy_of(core, "bf16x3")
    (path,) = empty_cache.iterdir()
    whole = path.read_bytes()
    path.write_bytes(damage(whole))
    accuracy.forget()
    assert accuracy.accuracy_of(core, "bf16x3") == first and core.launches == 2
    assert path.read_bytes() == whole


def test_a_cache_that_cannot_be_written_only_costs_time(tmp_path, monkeypatch):
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("TRNQC_CACHE_DIR", str(tmp_path / "file"))
    core = Core()
    accuracy.require_accuracy(core, "fp32")
    accuracy.forget()
    accuracy.require_accuracy(core, "fp32")
    assert core.launches == 2


@pytest.mark.parametrize("use", ["gemm", "batched_contraction", "pair_step", "select"])
def test_every_way_to_a_product_is_closed(use, monkeypatch):
    monkeypatch.setenv("TRNQC_SIM_BF16_PRODUCTS", "rounded")
    shapes = {"gemm": [(4, 3), (4, 2)], "batched_contraction": [(2, 4, 3), (2, 4, 2)], "pair_step": []}
    with pytest.raises(UnsupportedPrecision, match="was measured"):
        if use == "select":
            backends.select("simulator", "bf16x3")
        else:
            getattr(Simulator(), use)(*(np.ones(shape) for shape in shapes[use]), precision="bf16x3")


def test_figures_are_listed_with_what_is_refused(monkeypatch):
    monkeypatch.setenv("TRNQC_SIM_BF16_PRODUCTS", "rounded")
    lines = Simulator().accuracies()
    assert [line.split(":")[0] for line in lines] == list(PRECISIONS)
    assert [line.endswith("refused") for line in lines] == [False, False, True, True, False]
    assert all("promised" in line and "products" in line for line in lines)


def test_a_device_that_fails_is_reported_and_not_measured(monkeypatch):
    def fails(*args, **constants):
        raise RuntimeError("the compiler is missing")

    monkeypatch.setattr(SimulatedCore, "call", fails)
    assert Simulator().accuracies()[0] == "fp32: not measured: the compiler is missing"
    with pytest.raises(RuntimeError, match="the compiler is missing"):
        accuracy.require_accuracy(SimulatedCore(), "fp32")


def test_the_file_is_readable(empty_cache):
    accuracy.accuracy_of(Core(), "bf16x3")
    (path,) = empty_cache.iterdir()
    record = json.loads(path.read_bytes().partition(b" ")[2])
    assert list(record) == ["device", "precision", "products", "sums", "transposes"]
