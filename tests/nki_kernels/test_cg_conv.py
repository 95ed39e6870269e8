"""The kernels of convolutions and of their gradients on the simulator, against sums over edges and generated C."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from nki_kernels.cg.conv import cg_conv, reference_cg_conv
from nki_kernels.cg.gradients import cg_gradients, reference_cg_gradients
from nki_kernels.cg.windows import Sorted, choose, windows_of
from tests.nki_kernels.cg_launches import case, columns_of, mace_layer
from trnqc import sim
from trnqc.cg import TPProblem
from trnqc.cg.cpu.engine import engine_for
from trnqc.cg.nki.paths import blocks_of
from trnqc.cg.problem.graph import EdgeGraph

# (channels, nodes, edges): one of each; primes; one over a tile of edges and a vector of channels; several windows.
SIZES = [(1, 1, 1), (7, 13, 101), (129, 5, 129), (16, 40, 700)]
# Sums of some ten products of order one in fp32, relative to the largest.
CLOSE = 2e-6


def error(result, expected):
    return float(np.abs(result - expected).max() / np.abs(expected).max())


@pytest.fixture(params=["trn1", "trn2"])
def target(request, monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", request.param)
    return request.param


@pytest.mark.parametrize("size", SIZES, ids=str)
def test_agrees_with_sums_over_edges(size, target):
    job = case(mace_layer(size[0]), *size[1:])
    (block,) = job.blocks
    args, constants, _ = job.launch(block, *job.chosen(block))
    result = sim.simulate(cg_conv)(*args, **constants)
    assert error(result, reference_cg_conv(*args, **constants)) < CLOSE


@pytest.mark.parametrize(("window", "depth"), [(1, 1), (3, 2), (18, 16)])
def test_windows_and_depths_agree_with_the_generated_kernels(window, depth):
    job = case(mace_layer(4), 19, 400)
    (block,) = job.blocks
    args, constants, _ = job.launch(block, window, depth)
    expected = engine_for(job.problem, "float64", 1).conv_forward(
        *(a.astype(np.float64) for a in (job.x, job.y, job.w)), job.graph
    )
    assert error(sim.simulate(cg_conv)(*args, **constants)[:19], expected) < CLOSE


def test_several_channels_of_y_paths_without_weights_and_shared_slots():
    paths = [(0, 0, 0, "uvu", True, 0.5), (0, 1, 0, "uvu", False), (1, 2, 0, "uvu", True), (1, 0, 1, "uvu", True)]
    problem = TPProblem("5x1o+3x2e", "3x0e+1e+2x3o", "5x1o+3x2e", paths[:2] + paths[3:], layout="ir_mul")
    job = case(problem.changed(shared_weights=False), 6, 50)
    (block,) = job.blocks
    args, constants, _ = job.launch(block, 4, 2)
    expected = engine_for(job.problem, "float64", 1).conv_forward(
        *(a.astype(np.float64) for a in (job.x, job.y, job.w)), job.graph
    )
    assert error(sim.simulate(cg_conv)(*args, **constants)[:6], expected) < CLOSE


def test_wide_problems_are_divided_into_blocks():
    job = case(mace_layer(513), 3, 40)
    assert len(job.blocks) > 2
    reached = np.concatenate([columns_of(block) for block in job.blocks])
    assert sorted(reached) == list(range(job.problem.dims[2]))
    block = job.blocks[1]
    args, constants, _ = job.launch(block, *job.chosen(block))
    columns = columns_of(block)
    result, reference = sim.simulate(cg_conv)(*args, **constants), reference_cg_conv(*args, **constants)
    expected = np.isnan(reference)
    assert not expected[:, columns].any() and expected.sum() == expected.shape[0] * (expected.shape[1] - len(columns))
    assert error(result[:, columns], reference[:, columns]) < CLOSE


def test_two_cores_share_the_windows(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    job = case(mace_layer(2), 30, 300)
    (block,) = job.blocks
    args, constants, windows = job.launch(block, 4, 1, cores=2)
    assert windows.bounds[0, 0] == 0 and windows.bounds[0, 1] == windows.bounds[1, 0] < windows.bounds[1, 1]
    one, constants_of_one, _ = job.launch(block, 4, 1)
    result = sim.simulate(cg_conv[2])(*args, **constants)
    np.testing.assert_array_equal(result, sim.simulate(cg_conv)(*one, **constants_of_one))


def test_receivers_without_edges_get_zero():
    job = case(mace_layer(2), 9, 20)
    job = replace(job, graph=EdgeGraph(np.full(20, 7), job.graph.cols, 9))
    (block,) = job.blocks
    args, constants, _ = job.launch(block, 2, 1)
    result = sim.simulate(cg_conv)(*args, **constants)[:9]
    assert np.abs(result[7]).max() > 0
    assert not np.delete(result, 7, axis=0).any()


def test_the_program_does_not_grow_with_edges_and_nodes():
    counts = []
    for nodes, edges in ((20, 300), (60, 2000)):
        job = case(mace_layer(8), nodes, edges)
        (block,) = job.blocks
        args, constants, _ = job.launch(block, 8, 2)
        counts.append(sum(sim.trace(cg_conv)(*args, **constants).static.values()))
    assert counts[0] == counts[1]


def test_the_model_fills_tiles():
    """Sixty neighbours: windows of nearly all receivers that fit, and items of whole windows."""
    job = case(mace_layer(128), 1, 1)
    (block,) = blocks_of(job.problem)
    edges = Sorted(np.arange(3840), np.arange(0, 3841, 60), np.zeros(3840, np.int64))
    window, depth = choose(edges, block.terms, block.results)
    tiles = len(windows_of(edges, window, depth).table) * depth
    assert window > 12 and tiles <= 1.1 * 3840 / 128


@pytest.mark.parametrize("size", SIZES[:3], ids=str)
def test_gradients_agree_with_sums_over_edges(size, target):
    job = case(mace_layer(size[0]), *size[1:])
    (block,) = job.blocks
    args, constants = job.launch_gradients(block, *job.chosen(block, backward=True))
    results = sim.simulate(cg_gradients)(*args, **constants)
    for result, expected in zip(results, reference_cg_gradients(*args, **constants), strict=True):
        assert error(result, expected) < CLOSE


def test_gradients_sum_over_deep_windows_and_two_cores(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    job = case(mace_layer(2), 150, 700)
    (block,) = job.blocks
    args, constants = job.launch_gradients(block, 4, 1, cores=2)
    results = sim.simulate(cg_gradients[2])(*args, **constants)
    for result, expected in zip(results, reference_cg_gradients(*args, **constants), strict=True):
        assert error(result, expected) < CLOSE
