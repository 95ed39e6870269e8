"""The division of pairs among GPUs: every pair once, within the memory, and the work shared evenly."""

from __future__ import annotations

from itertools import product

import pytest

from trnqc.backends.cuda.blocks import USABLE, Buffers, FactorShape, PanelPlan, plan_blocks
from trnqc.backends.cuda.formats import DEVICE_FORMATS
from trnqc.errors import MemoryLimit
from trnqc.jit.simulated_device import SimulatedDevice

GB = 10**9
MEDIUM = FactorShape((64, 64), (448, 448), 1536, True)
CAFFEINE = FactorShape((37, 37), (509, 509), 1434, True)
# A cluster whose B, 31 GB in fp32, is larger than the memory of a GPU.
LARGE = FactorShape((200, 200), (2600, 2600), 15000, True)
SPINS = FactorShape((9, 7), (30, 32), 100, False)


def plan(
    shape: FactorShape, memory: int, gpus: int = 1, precision: str = "fp32", **options
) -> tuple[PanelPlan, Buffers]:
    buffers = Buffers(DEVICE_FORMATS[precision], 2, **options)
    return plan_blocks(shape, buffers, [SimulatedDevice(f"{n}", memory) for n in range(gpus)]), buffers


def visited(plan: PanelPlan, gpus: int, lower: bool) -> list[tuple[int, int]]:
    """All pairs (i, j) of all blocks, those that do not count left out."""
    return [
        (i, j)
        for lefts in plan.shares(gpus)
        for panels in plan.panel_pairs(lefts)
        for block in plan.blocks(*panels, lower=lower)
        for i, j in product(*(range(s.start, s.stop) for s in (block.rows, block.columns)))
        if j <= i or not (lower and plan.shape.triangle)
    ]


@pytest.mark.parametrize("gpus", [1, 2, 8])
@pytest.mark.parametrize("shape", [MEDIUM, CAFFEINE, SPINS, FactorShape((1, 1), (5, 5), 9, True)], ids=str)
def test_every_pair_is_in_one_block(shape, gpus):
    chosen, _ = plan(shape, 24 * GB, gpus)
    pairs = visited(chosen, gpus, lower=True)
    assert len(pairs) == len(set(pairs)) == shape.pairs
    counted = sum(
        block.pairs(shape.triangle)
        for lefts in chosen.shares(gpus)
        for panels in chosen.panel_pairs(lefts)
        for block in chosen.blocks(*panels, lower=True)
    )
    assert counted == shape.pairs


def test_densities_visit_both_orders_of_a_pair():
    """Γ takes whole blocks: pairs of two panels stand for both orders, and a panel with itself has all of its pairs."""
    chosen, _ = plan(MEDIUM, 24 * GB, densities=True)
    pairs = visited(chosen, 1, lower=False)
    panel_of = {i: n for n, panel in enumerate(chosen.panels_of(0)) for i in range(panel.start, panel.stop)}
    both = pairs + [(j, i) for i, j in pairs if panel_of[i] != panel_of[j]]
    assert sorted(both) == list(product(range(64), repeat=2))


@pytest.mark.parametrize("precision", DEVICE_FORMATS)
@pytest.mark.parametrize("options", [{}, {"densities": True, "amplitudes": 4}], ids=["energies", "densities"])
@pytest.mark.parametrize(("shape", "memory"), [(MEDIUM, 24 * GB), (MEDIUM, GB), (LARGE, 24 * GB)], ids=str)
def test_what_a_gpu_holds_fits_its_memory(shape, memory, options, precision):
    chosen, buffers = plan(shape, memory, precision=precision, **options)
    panels = chosen.panels * chosen.panel * buffers.panel(shape)
    gamma = (buffers.fixed(shape) - 2 * buffers.panel(shape)) * chosen.panel
    blocks = buffers.pair(shape) * chosen.panel * chosen.rows
    assert panels + gamma + blocks + buffers.staging(shape) <= USABLE * memory
    assert chosen.panels >= 2 and chosen.rows >= 1


def test_gpus_have_about_the_same_work():
    chosen, _ = plan(LARGE, 80 * GB, gpus=8)
    work = [sum(map(chosen._work, lefts)) for lefts in chosen.shares(8)]
    assert max(work) < 1.1 * min(work)


def test_small_jobs_are_not_cut_into_pieces():
    """Each block of a small job would take less time than its launches."""
    chosen, _ = plan(FactorShape((16, 16), (112, 112), 384, True), 24 * GB)
    assert (chosen.panel, chosen.rows, chosen.diagonal) == (16, 16, 16)
    assert str(chosen).startswith("1 panel of 16 orbitals")
    assert plan(MEDIUM, 24 * GB)[0].panel < 16


def test_the_gpu_with_the_least_memory_decides():
    buffers = Buffers(DEVICE_FORMATS["fp64"], 2)
    devices = [SimulatedDevice("large", 80 * GB), SimulatedDevice("small", GB // 10)]
    with pytest.raises(MemoryLimit, match=r"needs 732.5 MB, but small has 0 MB left"):
        plan_blocks(LARGE, buffers, devices)
