"""The programs for GPUs, interpreted and as kernels of a simulated device, against dense sums."""

from __future__ import annotations

import numpy as np
import pytest

from scripts.device.recording_driver import RecordedDevice, RecordingDriver
from scripts.workloads import tensor_product_oracle as oracle
from scripts.workloads.tensor_products import AWKWARD, awkward, channelwise
from trnqc.cg.cuda.engine import CudaEngine
from trnqc.cg.cuda.program import product_kernel
from trnqc.cg.cuda.row_sums import levels, levels_rows, sum_level
from trnqc.cg.cuda.schedule import plan
from trnqc.cg.cuda.segments import LONGEST, segments
from trnqc.cg.problem.graph import EdgeGraph
from trnqc.cg.programs.directions import DIRECTIONS
from trnqc.errors import BackendUnavailable, OperandError, UnsupportedError
from trnqc.gen import run
from trnqc.jit.simulated_device import SimulatedDevice

CLOSE = {np.float64: 1e-14, np.float32: 1e-6}
BATCH = ("forward", "backward", "double_backward")


def graph(n_nodes=5, edges=23, seed=0) -> EdgeGraph:
    """Node 0 sends and receives nothing; edges come twice, and lead back to their start."""
    rng = np.random.default_rng(seed)
    rows, cols = rng.integers(1, n_nodes, (2, edges))
    if edges:
        rows[:2], cols[:2], rows[2] = rows[0], cols[0], cols[2]
    return EdgeGraph(rows, cols, n_nodes)


def operands(problem, batch, edges=None, dtype=np.float64) -> dict[str, np.ndarray]:
    """All that passes read; of a convolution x and gz have a row a node."""
    inputs = {}
    for seed, prefix in enumerate(("", "gg")):
        x, y, w, gz = oracle.arrays(problem, batch, seed, dtype)
        if edges is not None:
            _, y, w, _ = oracle.arrays(problem, edges, seed + 5, dtype)
        inputs |= {f"{prefix}x": x, f"{prefix}y": y, f"{prefix}w": w} | ({} if prefix else {"gz": gz})
    return inputs


def expected(problem, name, inputs, **more) -> tuple[np.ndarray, ...]:
    result = getattr(oracle, name)(problem, *inputs.values(), **more)
    return result if isinstance(result, tuple) else (result,)


def close(actual, wanted, dtype=np.float64):
    assert len(actual) == len(wanted)
    for ours, theirs in zip(actual, wanted):
        assert oracle.error(ours, theirs) <= CLOSE[dtype]


def taken(inputs, names) -> dict[str, np.ndarray]:
    return {name: inputs[name] for name in names}


@pytest.mark.parametrize("layout", ["mul_ir", "ir_mul"])
@pytest.mark.parametrize("label", [label for label in AWKWARD if label != "all-modes"])
def test_programs_by_definition(label, layout):
    """Every element is written: results hold NaN before, but for gy."""
    problem, batch = awkward(label, layout=layout), 2
    inputs = operands(problem, batch)
    lengths = {
        "x": inputs["x"].shape,
        "y": inputs["y"].shape,
        "w": (batch, problem.weight_numel),
        "z": inputs["gz"].shape,
    }
    for name in BATCH:
        kernel_plan = plan(problem, name, 8, lanes=4)
        results = {
            n: np.full(lengths[n.removeprefix("gg").removeprefix("g")], 0.0 if n == "gy" else np.nan)
            for n in kernel_plan.direction.writes
        }
        ours = taken(inputs, kernel_plan.direction.reads)
        if problem.shared_weights and "gw" in results:
            results["gw"] = np.full((batch + 1, problem.weight_numel), np.nan)
        run(product_kernel(kernel_plan), {"first": 0, **ours, **results}, lanes=4, groups=(0, batch))
        if problem.shared_weights and "gw" in results:
            results["gw"] = results["gw"][1:].sum(axis=0)
        close(list(results.values()), expected(problem, name, ours))


@pytest.mark.parametrize(
    ("label", "layout"), [("uvu-y3", "ir_mul"), ("mixed", "mul_ir"), ("uvw-shared", "ir_mul"), ("nothing", "mul_ir")]
)
def test_convolutions_on_a_device(label, layout, monkeypatch):
    """Segments of two edges, so that most nodes have several; what shared weights get is summed in several parts.

    Atomic sums of one problem stand for those of all: only the way to memory differs.
    """
    monkeypatch.setattr("trnqc.cg.cuda.engine.KEPT", 500)
    monkeypatch.setattr("trnqc.cg.cuda.operands.segments", lambda order: segments(order, longest=2))
    problem, there = awkward(label, layout=layout), graph()
    inputs = operands(problem, there.n_nodes, len(there.rows))
    for options in ({}, {"atomic": True}) if label in ("uvw-shared", "nothing") else ({},):
        engine = CudaEngine(problem, np.float64, SimulatedDevice(lanes=4), **options)
        for name in ("conv_forward", "conv_backward", "conv_double_backward"):
            ours = taken(inputs, DIRECTIONS.get(name, DIRECTIONS["double_backward"]).reads)
            result = getattr(engine, name)(*ours.values(), there)
            result = result if isinstance(result, tuple) else (result,)
            close(result, expected(problem, name, ours, graph=there))
        assert "conv_double_inputs" in engine.build_report and engine.ran_on == "generated CUDA on simulated"


@pytest.mark.parametrize(
    ("label", "dtype"),
    [("uvu-33", np.float64), ("uvw-odd", np.float64), ("uvw-shared", np.float32)],
)
def test_batches_on_a_device(label, dtype, monkeypatch):
    monkeypatch.setattr("trnqc.cg.cuda.engine.KEPT", 2000)
    problem = awkward(label)
    inputs = operands(problem, 7, dtype=dtype)
    device = SimulatedDevice(lanes=8)
    engine = CudaEngine(problem, dtype, device)
    for name in BATCH:
        ours = taken(inputs, DIRECTIONS[name].reads)
        result = getattr(engine, name)(*ours.values())
        close(result if isinstance(result, tuple) else (result,), expected(problem, name, ours), dtype)
    out = np.empty((7, problem.dims[2]), dtype)
    assert engine.forward(inputs["x"], inputs["y"], inputs["w"], out=out) is out
    assert device.used == 0


@pytest.mark.parametrize("capability", [80, 90, 120])
def test_gpus_of_several_generations(capability):
    """The same sums on each for which there is a compiler, and else one error."""
    problem = awkward("uvu-33")
    ours = taken(operands(problem, 3), DIRECTIONS["forward"].reads)
    engine = CudaEngine(problem, np.float64, RecordedDevice(RecordingDriver(capability=capability), lanes=8))
    if capability == 120:
        with pytest.raises(BackendUnavailable, match=r"recorded 0 has compute capability 12\.0, but NVRTC"):
            engine.forward(*ours.values())
    else:
        close((engine.forward(*ours.values()),), expected(problem, "forward", ours))


def test_compensated_sums_lose_less():
    """In every segment one message is large; what is lost of all others has one sign."""
    problem, n = channelwise("3x0e", "1x0e", "3x0e"), 4 * LONGEST
    y = np.full((n, 1), 0.1, np.float32)
    y[::LONGEST] = 4096
    inputs = {"x": np.ones((1, 3), np.float32), "y": y, "w": np.ones((n, 3), np.float32)}
    nowhere = np.zeros(n, np.int64)
    there, device = EdgeGraph(nowhere, nowhere, 1), SimulatedDevice(lanes=4)
    wanted = oracle.conv_forward(problem, *inputs.values(), there)
    plain, kept = (
        oracle.error(CudaEngine(problem, np.float32, device, kahan=kahan).conv_forward(*inputs.values(), there), wanted)
        for kahan in (False, True)
    )
    assert plain > 5e-7 and kept < 1.2e-7


def test_sums_repeat_bit_by_bit():
    problem, there = awkward("uvu-5"), graph(edges=300)
    inputs = operands(problem, there.n_nodes, len(there.rows), np.float32)
    ours = taken(inputs, DIRECTIONS["backward"].reads)
    device = SimulatedDevice(lanes=4)
    first, second = (CudaEngine(problem, np.float32, device).conv_backward(*ours.values(), there) for _ in range(2))
    for a, b in zip(first, second):
        np.testing.assert_array_equal(a, b)
    close(first, expected(problem, "conv_backward", ours, graph=there), np.float32)


@pytest.mark.parametrize("edges", [0, 1, 7, 65, 500])
def test_segments_hold_every_edge_once(edges):
    rng = np.random.default_rng(edges)
    near, far = rng.integers(0, 4, (2, edges))
    cut = segments(EdgeGraph(near, far, 6).by_receiver, longest=5)
    held = np.concatenate([cut.order[b:e] for b, e in zip(cut.begin, cut.end)] or [[]])
    assert sorted(held) == list(range(edges))
    assert all((near[cut.order[b:e]] == n).all() for b, e, n in zip(cut.begin, cut.end, cut.node))
    np.testing.assert_array_equal(cut.far, far[cut.order])
    assert set(cut.node) == set(range(6)) and len(set(cut.target)) == len(cut)
    assert cut.rows == max(6, cut.target.max() + 1)
    for b, e, row in zip(cut.cut.begin, cut.cut.end, cut.cut.row):
        assert set(cut.node[np.isin(cut.target, np.arange(b, e))]) == {row} and e - b > 1


@pytest.mark.parametrize("count", [1, 2, 5, 26, 300])
def test_rows_are_summed_by_levels(count):
    lanes, columns = 4, 7
    rows = np.zeros((levels_rows(count, 5), columns))
    rows[:count] = np.random.default_rng(count).normal(size=(count, columns))
    wanted = rows.sum(axis=0)
    for level in levels(count, 5):
        inputs = {"columns": columns, "first": level.first, "stop": level.stop, "length": level.length, "to": level.to}
        run(sum_level(8, lanes), inputs | {"rows": rows}, lanes=lanes, groups=(0, len(level) * 2))
    np.testing.assert_allclose(rows[0], wanted, rtol=0, atol=1e-13)


def test_empty_batches_and_graphs():
    problem = awkward("uvw-shared")
    engine = CudaEngine(problem, np.float64, SimulatedDevice(lanes=4))
    inputs = operands(problem, 0)
    assert engine.forward(inputs["x"], inputs["y"], inputs["w"]).shape == (0, problem.dims[2])
    gw = engine.backward(*taken(inputs, DIRECTIONS["backward"].reads).values())[2]
    np.testing.assert_array_equal(gw, np.zeros(problem.weight_numel))
    there = graph(3, 0)
    inputs = operands(problem, 3, 0)
    z = engine.conv_forward(inputs["x"], inputs["y"], inputs["w"], there)
    np.testing.assert_array_equal(z, np.zeros((3, problem.dims[2])))


def test_refusals_name_both_sides():
    problem = awkward("uvu-5")
    engine = CudaEngine(problem, np.float32, SimulatedDevice(lanes=4))
    inputs = taken(operands(problem, 2, dtype=np.float32), ("x", "y", "w"))
    with pytest.raises(OperandError, match=r"y: expected float32 of shape \(2, 9\), found float64 of shape \(2, 9\)"):
        engine.forward(inputs["x"], inputs["y"].astype(np.float64), inputs["w"])
    with pytest.raises(UnsupportedError, match="deterministic"):
        product_kernel(plan(problem, "conv_forward", 4), kahan=True, atomic=True)
    wide = channelwise("4x7e", "200x7e", "4x7e")
    with pytest.raises(UnsupportedError, match="bytes of shared memory"):
        plan(awkward("uvw-odd").__class__("900x7e", "1x0e", "900x7e", [(0, 0, 0, "uvw", True)]), "backward", 8)
    assert plan(wide, "backward", 8).shared_bytes < 48 * 1024


class Spilling(SimulatedDevice):
    """Kernels take memory beside the registers, unless few blocks are asked for."""

    def build(self, recipe, lanes, **options):
        built = super().build(recipe, lanes, **options)
        object.__setattr__(built, "stack", 0 if options.get("min_blocks") else 16)
        return built


def test_a_kernel_that_spills_is_built_again_for_fewer_blocks():
    problem = awkward("uvu-5")
    engine = CudaEngine(problem, np.float64, Spilling(lanes=4))
    inputs = taken(operands(problem, 2), ("x", "y", "w"))
    close((engine.forward(*inputs.values()),), expected(problem, "forward", inputs))
    assert engine.build("forward").stack == 0
