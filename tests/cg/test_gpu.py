"""On a GPU, if there is one: every pass of published problems against dense sums, with arrays and tensors."""

from __future__ import annotations

import numpy as np
import pytest

from scripts.device import contractions
from scripts.workloads import tensor_product_oracle as oracle
from scripts.workloads.tensor_products import awkward, configuration
from tests.cg.test_cuda import close, expected, operands, taken
from trnqc.cg.cuda.engine import CudaEngine
from trnqc.cg.problem.graph import EdgeGraph
from trnqc.cg.programs.directions import DIRECTIONS
from trnqc.errors import BackendUnavailable
from trnqc.jit.device import CudaDevice, cuda_devices

LABELS = ("mace-medium", "nequip-lips", "DiffDock-L=2", "tetris-poly-1", "roofline-3")


@pytest.fixture(scope="module")
def gpu() -> CudaDevice:
    try:
        return cuda_devices()[0]
    except BackendUnavailable as reason:
        pytest.skip(str(reason))


def tuple_of(actual):
    return actual if isinstance(actual, tuple) else (actual,)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("layout", ["mul_ir", "ir_mul"])
@pytest.mark.parametrize("label", LABELS)
def test_batches(gpu, label, layout, dtype):
    problem = configuration(label, layout=layout)
    inputs = operands(problem, 20, dtype=dtype)
    engine = CudaEngine(problem, dtype, gpu)
    for name in ("forward", "backward", "double_backward"):
        ours = taken(inputs, DIRECTIONS[name].reads)
        close(tuple_of(getattr(engine, name)(*ours.values())), expected(problem, name, ours), dtype)


@pytest.mark.parametrize("options", [{}, {"atomic": True}, {"kahan": True}])
@pytest.mark.parametrize("label", ["mace-medium", "uvw-odd", "uvw-shared"])
def test_convolutions(gpu, label, options):
    problem = awkward(label) if label.startswith("uvw") else configuration(label)
    if options == {"kahan": True} and label != "mace-medium":
        pytest.skip("compensated sums are for uvu paths with outputs of their own")
    rng = np.random.default_rng(0)
    rows, cols = rng.integers(0, 6, (2, 900))
    there = EdgeGraph(rows, cols, 7)
    inputs = operands(problem, 7, len(rows))
    engine = CudaEngine(problem, np.float64, gpu, **options)
    for name in ("conv_forward", "conv_backward", "conv_double_backward"):
        ours = taken(inputs, DIRECTIONS.get(name, DIRECTIONS["double_backward"]).reads)
        first, second = (tuple_of(getattr(engine, name)(*ours.values(), there)) for _ in range(2))
        close(first, expected(problem, name, ours, graph=there))
        if not options.get("atomic"):
            for a, b in zip(first, second):
                np.testing.assert_array_equal(a, b)


def test_tensors_stay_on_the_device(gpu):
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("this PyTorch has no CUDA")
    problem = configuration("nequip-water")
    inputs = operands(problem, 33)
    engine = CudaEngine(problem, np.float64, gpu)
    for name in ("forward", "backward", "double_backward"):
        ours = taken(inputs, DIRECTIONS[name].reads)
        result = tuple_of(getattr(engine, name)(*(torch.as_tensor(a).cuda() for a in ours.values())))
        assert all(t.is_cuda for t in result)
        close([t.cpu().numpy() for t in result], expected(problem, name, ours))


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("label", ["tiny", "mace-medium"])
def test_symmetric_contractions(gpu, label, dtype):
    assert contractions.check(label, dtype, gpu)


def test_no_kernel_of_the_models_takes_memory_beside_registers(gpu):
    engine = CudaEngine(configuration("mace-large"), np.float32, gpu)
    assert all(engine.build(name).stack == 0 for name in ("forward", "backward", "double_backward"))


def test_large_batches(gpu):
    """More groups than a grid's second axis takes."""
    problem, batch = configuration("nequip-water"), 70_000
    x, y, w, _ = oracle.arrays(problem, batch, dtype=np.float32)
    z = CudaEngine(problem, np.float32, gpu).forward(x, y, w)
    part = slice(batch - 50, batch)
    close((z[part],), (oracle.forward(problem, x[part], y[part], w[part]),), np.float32)
