"""The dense reference against e3nn: values and two orders of derivatives of every awkward problem."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from scripts.workloads import tensor_product_oracle as oracle
from scripts.workloads.tensor_products import AWKWARD, awkward

o3 = pytest.importorskip("e3nn.o3")


def peer(problem):
    """e3nn's module of the same problem, its constants made in fp64."""
    paths = problem.instructions
    rules = [(p.i_in1, p.i_in2, p.i_out, p.connection_mode, p.has_weight, p.path_weight**2) for p in paths]
    irreps = [str(ir) for ir in (problem.irreps_in1, problem.irreps_in2, problem.irreps_out)]
    unnormalized = {"irrep_normalization": "none", "path_normalization": "none", "internal_weights": False}
    with oracle.constants_in_fp64():
        return o3.TensorProduct(*irreps, rules, shared_weights=problem.shared_weights, **unnormalized)


@pytest.mark.parametrize("label", AWKWARD)
def test_agrees_with_e3nn(label: str) -> None:
    problem = awkward(label)
    tp = peer(problem)
    x, y, w, gz = oracle.arrays(problem, batch=3)
    gg = [np.random.default_rng(1).standard_normal(a.shape) for a in (x, y, w)]
    tensors = [torch.tensor(a, requires_grad=True) for a in (x, y, w, gz)]
    z = tp(*tensors[:3])
    assert oracle.error(oracle.forward(problem, x, y, w), z.detach().numpy()) < 1e-14
    if not z.requires_grad:
        return
    first = torch.autograd.grad(z, tensors[:3], tensors[3], create_graph=True, materialize_grads=True)
    for ours, theirs in zip(oracle.backward(problem, x, y, w, gz), first):
        assert oracle.error(ours, theirs.detach().numpy()) < 1e-14
    total = sum((g * torch.tensor(cotangent)).sum() for g, cotangent in zip(first, gg))
    second = torch.autograd.grad(total, tensors, materialize_grads=True)
    for ours, theirs in zip(oracle.double_backward(problem, x, y, w, gz, *gg), second):
        assert oracle.error(ours, theirs.numpy()) < 1e-14


def test_convolution_is_gather_product_and_sum() -> None:
    problem = awkward("uvu-5")
    rng = np.random.default_rng(2)

    class Ring:
        n_nodes, rows, cols = 4, rng.integers(0, 4, 9), rng.integers(0, 4, 9)

    x, y, w, _ = oracle.arrays(problem, batch=9)
    x = x[:4]
    z = oracle.conv_forward(problem, x, y, w, Ring)
    expected = np.zeros_like(z)
    np.add.at(expected, Ring.rows, oracle.forward(problem, x[Ring.cols], y, w))
    assert oracle.error(z, expected) < 1e-15
