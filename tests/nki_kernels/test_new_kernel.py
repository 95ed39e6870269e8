"""A new kernel is two files; these suffice to launch, tune and warm it and to make it an operator."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import nki_kernels
from autotune.measure import measure_here
from autotune.runner import Request, tune
from nki_kernels import descriptors
from nki_kernels.descriptors.descriptor import GATE, random_fill
from trnqc.backends.neuron.device import NeuronDevice
from trnqc.backends.neuron.neff.programs import neff_program
from trnqc.backends.nki.launch import host_kernels
from trnqc.backends.simulator.device import SimulatedCore
from trnqc.tuning.choice import choose
from trnqc.tuning.requests import parse_shape

KERNEL = '''
"""Twice a matrix, a few columns at a time."""

from nki_kernels.lang import nisa, nki, nl


@nki.jit
def doubled(x, width):
    out = nl.ndarray(x.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    for start in range(0, x.shape[1], width):
        stop = min(start + width, x.shape[1])
        tile = nl.ndarray((x.shape[0], stop - start), dtype=nl.float32, buffer=nl.sbuf)
        nisa.dma_copy(dst=tile, src=x[:, start:stop])
        nisa.tensor_scalar(dst=tile, data=tile, op0=nl.multiply, operand0=2.0)
        nisa.dma_copy(dst=out[:, start:stop], src=tile)
    return out


def reference_doubled(x, width):
    return 2 * x
'''

DESCRIPTOR = '''
"""Descriptor of `doubled`; its knob is the number of columns on chip."""

from nki_kernels.descriptors.descriptor import KernelOperator, Launch, NkiKernel, operand_dtype, require, require_sbuf
from nki_kernels.doubled import doubled, reference_doubled


def _realise(point, shape, precision, target):
    require(point["width"] <= shape["N"], "no more columns than there are")
    require_sbuf(4 * point["width"], target)
    return dict(point)


def _example(shape, precision, constants, cores, fill):
    x = fill((shape["M"], shape["N"]), operand_dtype("fp32"))
    return Launch((x,), dict(constants), 1.0 * shape["M"] * shape["N"])


KERNEL = NkiKernel(
    name="doubled",
    function=doubled,
    reference=reference_doubled,
    small={"M": 3, "N": 33},
    contracted="N",
    workload="one matrix",
    knobs=lambda shape: {"width": [32, 128, 1 << 20]},
    default=lambda shape, precision: {"width": 32},
    default_point=lambda shape, precision: {"width": 32},
    realise=_realise,
    example=_example,
    gate=_example,
    operator=KernelOperator("doubled", tensors=1, result_shape=lambda x: x),
)
'''

SHAPE = {"M": 64, "N": 512}


@pytest.fixture
def doubled(tmp_path, monkeypatch):
    """The package with the two files of the kernel added to it."""
    (tmp_path / "descriptors").mkdir()
    (tmp_path / "doubled.py").write_text(KERNEL)
    (tmp_path / "descriptors" / "doubled.py").write_text(DESCRIPTOR)
    monkeypatch.setenv("TRNQC_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    monkeypatch.setattr(nki_kernels, "__path__", [*nki_kernels.__path__, str(tmp_path)])
    monkeypatch.setattr(descriptors, "__path__", [*descriptors.__path__, str(tmp_path / "descriptors")])
    descriptors.kernels.cache_clear()
    yield descriptors.kernels()["doubled"]
    descriptors.kernels.cache_clear()
    for name in ("nki_kernels.doubled", "nki_kernels.descriptors.doubled"):
        sys.modules.pop(name, None)


def matrix() -> np.ndarray:
    return np.random.default_rng(3).standard_normal((64, 512)).astype(np.float32)


def test_both_devices_launch_it(doubled):
    np.testing.assert_array_equal(SimulatedCore().call("doubled", matrix(), width=100), 2 * matrix())
    pytest.importorskip("torch")
    device = NeuronDevice("cpu", 1)
    for how in ("simulator", "reference"):
        with host_kernels(how):
            np.testing.assert_array_equal(device.call("doubled", device.put(matrix()), width=100), 2 * matrix())


def test_it_is_tuned_and_a_launch_takes_the_record(doubled):
    assert parse_shape("doubled", "64x512") == SHAPE
    outcome = tune(Request("doubled", SHAPE, "fp32", "trn2"), measure=measure_here)
    assert outcome.space.knobs == {"width": [32, 128]} and sum(outcome.space.cut.values()) == 1
    assert {measurement.trial.status for measurement in outcome.measurements} == {"ok"}
    assert outcome.record.constants == {"width": 128} and outcome.record.time_ns < outcome.record.default_ns
    choice = choose("doubled", SHAPE, "fp32", "trn2")
    assert choice.record == outcome.record and "user record" in choice.note


def test_a_wrong_result_is_noticed(doubled):
    """The gate compares with the reference: a kernel that doubles is no kernel that triples."""
    launch = doubled.gate(SHAPE, "fp32", {"width": 128}, 1, random_fill(0))
    assert doubled.error(launch, 2 * launch.args[0]) == 0
    assert doubled.error(launch, 3 * launch.args[0]) > GATE


def test_its_compiled_program_has_a_key(doubled):
    wanted, other = (
        neff_program("doubled", SHAPE, "fp32", "trn2"),
        neff_program("doubled", SHAPE | {"N": 256}, "fp32", "trn2"),
    )
    assert wanted.constants == {"width": 32} and wanted.source and wanted.key() != other.key()


def test_it_is_an_operator(doubled):
    torch = pytest.importorskip("torch")
    from trnqc.torch_ops.ops import register_kernel

    operator = register_kernel(doubled, doubled.operator)
    x = torch.from_numpy(matrix())
    with host_kernels("simulator"):
        torch.testing.assert_close(torch.ops.trnqc.doubled(x, 100), 2 * x)
        torch.library.opcheck(operator, (x, 100), test_utils=("test_schema", "test_faketensor"))
    assert operator._opoverload._schema.arguments[1].name == "width"
