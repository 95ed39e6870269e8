"""The memory of the Clebsch-Gordan kernels: the sums of their tiles against the simulator's count, and the limits."""

from __future__ import annotations

import numpy as np
import pytest

from nki_kernels.cg.conv import cg_conv
from nki_kernels.cg.gradients import cg_gradients
from nki_kernels.cg.memory import fits, sbuf_bytes, usable_bytes, widest_window
from nki_kernels.cg.windows import Sorted, choose
from tests.nki_kernels.cg_launches import case, mace_layer
from trnqc import sim
from trnqc.cg import TPProblem
from trnqc.cg.nki.engine import NkiEngine
from trnqc.cg.nki.paths import blocks_of
from trnqc.cg.problem.graph import EdgeGraph
from trnqc.errors import MemoryLimit, OperandError, UnsupportedError


def wide(mul: int, degree: int = 3) -> TPProblem:
    """The components of a slot of x lie `mul` columns apart, and the kernels keep all columns between them."""
    irreps = f"{mul}x{degree}o"
    return TPProblem(irreps, "0e", irreps, [(0, 0, 0, "uvu", True)], shared_weights=False, layout="ir_mul")


@pytest.mark.parametrize("backward", [False, True], ids=["conv", "gradients"])
@pytest.mark.parametrize(
    "problem, idle", [(mace_layer(1), 0), (mace_layer(129), 0), (wide(300), 2100)], ids=["one", "129", "wide"]
)
def test_the_sum_of_the_tiles_is_what_a_launch_takes(problem, idle, backward):
    """In deep items all buffers are in use at once, except those of bounds and, with one path, a tile of gx."""
    job = case(problem, 9, 40)
    block = job.blocks[0]
    args, constants = job.launch_gradients(block, 2, 4) if backward else job.launch(block, 2, 4)[:2]
    trace = sim.trace(cg_gradients if backward else cg_conv)(*args, **constants)
    counted = sbuf_bytes(block.terms, block.results, 2, 4, backward)
    assert 0 <= counted - trace.sbuf_high_water <= 16 + 4 * idle


@pytest.mark.parametrize("target", ["trn1", "trn2"])
def test_the_chosen_window_fits(target):
    """The masked harmonics of 128 receivers would take 240 KiB."""
    paths = [(0, n, 0, "uvu", False) for n in range(60)]
    problem = TPProblem("40x0e", "+".join(["4x0e"] * 60), "40x0e", paths, layout="ir_mul")
    block = blocks_of(problem, target)[0]
    edges = Sorted(np.arange(600), np.arange(0, 601, 3), np.zeros(600, np.int64))
    window, depth = choose(edges, block.terms, block.results, target=target)
    assert window < widest_window(block.terms, block.results, False)
    assert fits(block.terms, block.results, window, depth, False, target)
    assert not fits(block.terms, block.results, 128, 1, False, target)


def test_blocks_are_joined_only_if_they_fit():
    """Two slots of x, far apart: one block would keep the columns between them."""
    between = 12000
    paths = [(0, 0, 0, "uvu", True), (2, 0, 1, "uvu", True)]
    problem = TPProblem(f"4x0e+{between}x0e+4x1o", "0e", "4x0e+4x1o", paths, shared_weights=False, layout="ir_mul")
    blocks = blocks_of(problem)
    assert len(blocks) == 2
    assert all(fits(block.terms, block.results, 1, 1, True, "trn2") for block in blocks)
    near = TPProblem("4x0e+4x1o", "0e", "4x0e+4x1o", [(0, 0, 0, "uvu", True), (1, 0, 1, "uvu", True)])
    assert len(blocks_of(near)) == 1


def test_what_does_not_fit_is_refused_before_a_launch(monkeypatch):
    message = r"at most 212992 bytes of SBUF per partition, which trn2 has, found \d+ for the convolution of 4000x3o"
    with pytest.raises(MemoryLimit, match=message + ", whose paths read rows of 2"):
        blocks_of(wide(4000), "trn2")
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    job = case(wide(2000), 2, 3)
    engine = NkiEngine(job.problem)
    assert np.isfinite(engine.conv_forward(job.x, job.y, job.w, job.graph)).all()
    with pytest.raises(MemoryLimit, match="for the gradients of 2000x3o"):
        engine.conv_backward(job.x, job.y, job.w, job.gz, job.graph)
    assert usable_bytes("trn1") < usable_bytes("trn2")


def test_too_many_columns_of_y_for_the_gradients_are_refused():
    problem = TPProblem("0e", "600x0e", "0e", [(0, 0, 0, "uvu", False)], layout="ir_mul")
    job = case(problem, 2, 3)
    engine, w = NkiEngine(problem), np.zeros(0, np.float32)
    engine.conv_forward(job.x, job.y, w, job.graph)
    with pytest.raises(UnsupportedError, match="at most 512 columns of y, found 600 for the gradients of 1x0e"):
        engine.conv_backward(job.x, job.y, w, job.gz, job.graph)


def test_arrays_beyond_the_range_of_addresses_are_refused():
    problem = TPProblem("65536x0e", "0e", "65536x0e", [(0, 0, 0, "uvu", False)], layout="ir_mul")
    x = np.broadcast_to(np.float32(0), (1 << 15, 1 << 16))
    graph, none = EdgeGraph(np.zeros(1, np.int64), np.zeros(1, np.int64), 1 << 15), np.zeros(0, np.float32)
    with pytest.raises(OperandError, match="x: expected fewer than 2147483648 elements"):
        NkiEngine(problem).conv_forward(x, np.zeros((1, 1), np.float32), none, graph)
