"""Scratch of kernels lies on the stack of a thread; kernels that need too much of it are refused."""

from __future__ import annotations

import pytest

from trnqc.cg.cpu import batch, stack
from trnqc.cg.cpu.engine import CpuEngine
from trnqc.cg.cpu.target import ProductTarget
from trnqc.cg.problem.problem import TPProblem
from trnqc.cg.programs.directions import DIRECTIONS
from trnqc.errors import MemoryLimit

MODES = {"uvw": 8, "uvu": 600, "uvv": 600, "uuw": 8, "uuu": 600, "uvuv": 360_000, "uvu<v": 179_700, "u<vw": 8}


def problem(mode: str, mul: int, out: int) -> TPProblem:
    return TPProblem(f"{mul}x2e", f"{mul}x2e", f"{out}x4e", [(0, 0, 0, mode, True)])


@pytest.mark.parametrize("mode", ["uvw", "uvu<v", "u<vw"])
def test_many_channels_are_told(mode):
    engine = CpuEngine(problem(mode, 600, MODES[mode]), "float64", 1)
    with pytest.raises(MemoryLimit, match=r"double_backward of .* needs [\d.]+ MiB of scratch .* has [\d.]+ MiB: use"):
        engine.build("double_backward")


@pytest.mark.parametrize("mode", ["uuu", "uuw", "uvuv", "uvv"])
def test_modes_whose_scratch_grows_with_the_channels_alone(mode):
    paths = ProductTarget(problem(mode, 600, MODES[mode]), "f64", 8)
    assert stack.needs(batch.batch_program(paths, DIRECTIONS["double_backward"]), 8) < 2**20


def test_edges_are_taken_one_by_one_where_several_have_no_place():
    """A product of 128 channels with 128, weights shared, ended the process."""
    few, many = (ProductTarget(problem("uvw", mul, 8), "f64", 8) for mul in (16, 128))
    assert few.problem.shared_weights
    groups = [batch.batch_program(paths, DIRECTIONS["forward"]).group for paths in (few, many)]
    assert groups[0] is None and groups[1] is not None
    assert stack.needs(batch.batch_program(many, DIRECTIONS["double_backward"]), 8) < stack.available()
