"""Plans for GPUs move each operand once, fit into the shared memory of a block, and report both."""

from __future__ import annotations

import pytest

from scripts.workloads.tensor_products import CHANNELWISE, FULL, LABELS, ROOFLINE, awkward, configuration
from trnqc.cg.cuda.couplings import couplings
from trnqc.cg.cuda.plan import KernelPlan
from trnqc.cg.cuda.schedule import SHARED, plan
from trnqc.cg.programs.directions import DIRECTIONS
from trnqc.errors import UnsupportedMode

UNFUSED = ("forward", "backward", "double_backward")


@pytest.mark.parametrize("layout", ["mul_ir", "ir_mul"])
@pytest.mark.parametrize("size", [4, 8])
@pytest.mark.parametrize("label", [*CHANNELWISE, *ROOFLINE, "DiffDock-L=1", "DiffDock-L=2", "e3tools_conv"])
def test_traffic_is_what_it_must_be(label, size, layout):
    for name in DIRECTIONS:
        kernel_plan = plan(configuration(label, layout=layout), name, size)
        assert 1 <= kernel_plan.moved / kernel_plan.minimum <= 1.05, kernel_plan


@pytest.mark.parametrize("label", LABELS)
def test_every_path_stands_in_one_phase(label):
    problem = configuration(label)
    for name, direction in DIRECTIONS.items():
        kernel_plan = plan(problem, name, 8)
        paths = [n for phase in kernel_plan.phases for n in phase.paths]
        assert sorted(paths) == list(range(len(problem.instructions)))
        assert kernel_plan.shared_bytes <= SHARED
        for phase in kernel_plan.phases:
            assert phase.blocks * phase.channels * kernel_plan.lanes >= problem.irreps_in1[phase.i_in1].mul
        # Gradients of x are written by the one phase of their slot.
        slots = [phase.i_in1 for phase in kernel_plan.phases]
        assert "gx" not in direction.writes or len(set(slots)) == len(slots)


def test_wider_numbers_take_fewer_channels_at_once():
    def most(name: str, size: int) -> int:
        return max(phase.channels for phase in plan(configuration("mace-large"), name, size).phases)

    assert most("forward", 4) == 4
    assert all(most(name, 8) <= most(name, 4) for name in DIRECTIONS)
    assert most("double_backward", 8) < most("forward", 8)


def test_sums_of_a_node_are_cut_to_the_registers():
    """A slot of x with many wide outputs takes several phases when their sums all have to stay."""
    problem = configuration("nequip-revmd17-benzene")
    batch, convolution = (plan(problem, name, 8) for name in ("forward", "conv_forward"))
    assert len(batch.phases) == 8
    assert len(plan(configuration("roofline-8"), "conv_forward", 8).phases) == 1
    assert all(_width(convolution, phase.paths) * 2 <= 128 for phase in convolution.phases)


def _width(kernel_plan: KernelPlan, paths: tuple[int, ...]) -> int:
    slots = {kernel_plan.problem.instructions[n].i_out for n in paths}
    return sum(kernel_plan.problem.irreps_out[n].ir.dim for n in slots)


def test_outputs_stay_shared_where_phases_meet_in_them():
    assert plan(configuration("mace-large"), "forward", 4).resident == ()
    assert plan(awkward("mixed"), "forward", 4).resident == (0, 1, 2)
    assert plan(configuration("DiffDock-L=1"), "backward", 4).resident == (0, 1, 2, 3)


def test_a_plan_tells_itself():
    text = str(plan(configuration("mace-large"), "backward", 8))
    assert text.startswith("mace-large: backward, 8 bytes a number, 32 lanes\n")
    assert "at least: 1.0" in text and "x 128x2e: 7 paths to 0e, 1o, 1o, 2e, 2e, 3o, 3o; " in text


def test_equal_couplings_are_formed_once():
    """mace-large has 187 of them; what differs by a sign or stands in several paths counts once."""
    problem = configuration("mace-large")
    paths = tuple(range(len(problem.instructions)))
    table = couplings(problem, paths)
    assert sum(len(path.forms) for path in table.paths.values()) == 187
    assert len(table.forms) < 130
    assert len(set(table.y)) == len(table.y) == problem.dims[1]
    assert set(FULL) <= set(LABELS)


def test_modes_that_no_gpu_has_are_told():
    missing = "u<vw, uuu, uuw, uvu<v, uvuv, uvv"
    with pytest.raises(UnsupportedMode, match=f"on a GPU: expected .* uvu and uvw, found {missing}: move"):
        plan(awkward("all-modes"), "forward", 4)
