"""Loops on tensors that NumPy cannot reach, tested on the CPU: the nest, divided steps, functions."""

from __future__ import annotations

import numpy as np
import pytest

from tests.contraction.test_loops import by_einsum, operands_of
from tests.contraction.workloads import small_workloads
from trnqc.contraction import einsum_plan
from trnqc.contraction.memory.schedule import schedule
from trnqc.contraction.run import device
from trnqc.contraction.run.device import run_on_device
from trnqc.errors import MemoryLimit, SlowPlanWarning

torch = pytest.importorskip("torch")


def tensors(tree):
    operands = operands_of(tree)
    return operands, {k: x if callable(x) else torch.tensor(x) for k, x in operands.items()}


@pytest.mark.parametrize("name", small_workloads())
@pytest.mark.parametrize("share", [1.0, 0.3, 0.1])
def test_loops_compute_the_product(name, share):
    tree = small_workloads()[name]
    operands, values = tensors(tree)
    scratch = 200
    try:
        fitted = schedule(tree, max(int(schedule(tree).memory * share), 20) + scratch, scratch)
    except MemoryLimit:
        pytest.skip("no schedule is that small")
    like = torch.zeros(1, dtype=torch.float64)
    np.testing.assert_allclose(
        run_on_device(torch, fitted, values, like).numpy(), by_einsum(tree, operands), rtol=1e-11
    )


def test_steps_are_cut_until_the_scratch_holds_them(monkeypatch):
    with pytest.warns(SlowPlanWarning):
        plan = einsum_plan("Qae,Qbf,efij->abij", (6, 9, 9), (6, 9, 9), (9, 9, 3, 4), memory_limit=8 * 900)
    loops = plan.assignments[0].parts[0].schedule
    rng = np.random.default_rng(0)
    operands = {
        leaf.name: rng.standard_normal([plan.extents[plan.trees[0].indices[x].symbol] for x in leaf.indices])
        for leaf in plan.trees[0].leaves
    }
    collected = []
    really = device.apply
    monkeypatch.setattr(device, "apply", lambda *a: (r := really(*a), collected.append(r[0].numel()))[0])
    values = {name: torch.tensor(x) for name, x in operands.items()}
    result = run_on_device(torch, loops, values, values["A"])
    np.testing.assert_allclose(result.numpy(), plan.run(operands), rtol=1e-11, atol=1e-12)
    assert max(collected) <= loops.scratch


@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_limit_on_the_gpu():
    rng = np.random.default_rng(0)
    operands = [rng.standard_normal(shape) for shape in ((6, 9, 9), (6, 9, 9), (9, 9, 3, 4))]
    plan = einsum_plan("Qae,Qbf,efij->abij", *operands, memory_limit=8 * 900)
    result = plan.run(*(torch.tensor(x, device="cuda") for x in operands))
    assert result.is_cuda
    np.testing.assert_allclose(result.cpu().numpy(), plan.run(*operands), rtol=1e-11, atol=1e-12)
