"""The interpreter of NKI 0.6 and the tracer of 0.7 give the same instructions for every kernel of ours."""

from __future__ import annotations

import numpy as np
import pytest

from nki_kernels.descriptors import kernels
from nki_kernels.descriptors.descriptor import random_fill
from trnqc import sim
from trnqc.sim.nki import language as nl


def program(kernel, launch):
    """Instructions with their operands, and the counts of a trace; tensors in HBM are numbered as they occur."""
    trace = sim.trace(kernel, records=True)(*launch.args, **launch.constants)
    numbers: dict[int, int] = {}

    def place(region):
        on_chip = region.buffer in ("sbuf", "psum")
        tile = region.tile if on_chip else numbers.setdefault(region.tile, len(numbers))
        return region.buffer, tile, region.partitions, region.bytes, region.dtype

    records = [
        (r.id, r.op, r.engine, tuple(map(place, r.outputs)), tuple(map(place, r.inputs)), r.loops, r.name)
        for r in trace.records
    ]
    return records, trace.static, trace.executed, trace.sbuf_high_water, trace.psum_high_water


@pytest.mark.parametrize("cores", [1, 2])
@pytest.mark.parametrize("name", kernels())
def test_both_ways_give_the_same_program(name, cores, monkeypatch):
    known = kernels()[name]
    constants = known.default(known.small, "fp32")
    launch = known.gate(known.small, "fp32", constants, cores, random_fill(0))
    monkeypatch.setenv("TRNQC_NKI", "0.6")
    parsed = program(known.function[cores], launch)
    monkeypatch.setenv("TRNQC_NKI", "0.7")
    assert parsed == program(known.function[cores], launch)
    assert len(parsed[0]) > 10


def test_the_values_are_the_same(monkeypatch):
    known = kernels()["gemm"]
    launch = known.gate(known.small, "fp32", known.default(known.small, "fp32"), 1, random_fill(0))
    traced = sim.simulate(known.function)(*launch.args, **launch.constants)
    monkeypatch.setenv("TRNQC_NKI", "0.6")
    np.testing.assert_array_equal(sim.simulate(known.function)(*launch.args, **launch.constants), traced)


def unequal(x):
    def body(i):
        nl.load(x)

    nl.fori_loop(0, 2, body)
    nl.fori_loop(0, 2 + nl.program_id(0), body)


def test_device_loops_have_the_places_of_the_kernel(monkeypatch):
    """The cores of a launch are compared loop by loop, by its line in the kernel."""
    monkeypatch.setenv("TRNQC_NKI", "0.6")
    with pytest.raises(sim.NkiValidationError, match=r"test_parser_programs.py:\d+ makes 2 passes on core 0 and 3"):
        sim.simulate(sim.jit(unequal)[2])(np.ones((3, 4), np.float32))
