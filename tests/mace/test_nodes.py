"""The programs of atoms, with edges by the oracle, against the oracle's whole model."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from tests.mace import oracle
from tests.mace.descriptions import CASES, NUMBERS, description
from tests.mace.node_run import NodeRun
from trnqc.jit import find_compiler
from trnqc.mace.gemm import RegisterTile
from trnqc.mace.model import Model
from trnqc.mace.nodes.kernels import NodeKernels
from trnqc.mace.nodes.layout import FeatureLayout
from trnqc.mace.nodes.plan import plan

# Relative to the largest number: rounding of sums of some hundred terms, and of the weights, in a few layers.
TOLERANCES = {"f64": 1e-12, "f32": 2e-5}


def graph(atoms: int, seed: int = 1) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor]:
    """Elements in ascending order, vectors, senders and receivers of a random graph without short edges."""
    rng = np.random.default_rng(seed)
    elements = np.sort(rng.integers(len(NUMBERS), size=atoms))
    count = 6 * atoms
    vectors = rng.normal(size=(count, 3))
    vectors *= rng.uniform(1.0, 3.9, (count, 1)) / np.linalg.norm(vectors, axis=1, keepdims=True)
    senders, receivers = rng.integers(atoms, size=(2, count)) if atoms else np.zeros((2, 0), np.int64)
    return tuple(map(torch.tensor, (elements, vectors, senders, receivers)))


def evaluate(model: Model, dtype: str, threads: int, atoms: int) -> tuple[np.ndarray, np.ndarray]:
    """Energies of the atoms and the gradient with respect to the vectors, without the pair repulsion."""
    elements, vectors, senders, receivers = graph(atoms)
    kernels = NodeKernels(plan(model, RegisterTile.of(find_compiler(), dtype), dtype))
    run = NodeRun(kernels, elements.numpy(), threads)
    vectors.requires_grad_()
    edges = oracle.edges_of(model, elements, vectors, senders, receivers)
    lanes, kept = kernels.plan.tile.lanes, []
    run.begin()
    for t, block in enumerate(model.interactions):
        problem = block.convolution.problem
        sent, summed = FeatureLayout(problem.irreps_in1, lanes), FeatureLayout(problem.irreps_out, lanes)
        x = torch.tensor(sent.flat(run.arrays[f"x{t}"]), requires_grad=True)
        sums, rho = oracle.convolve(block, x, edges)
        run.arrays[f"a{t}"][...] = summed.rows(sums.detach().numpy(), run.arrays[f"a{t}"].dtype)
        if rho is not None:
            run.arrays[f"rho{t}"][...] = rho.detach().numpy()[:, 0]
        kept.append((x, sums, rho, sent, summed))
        run.forward(t)
    gradient = torch.zeros_like(vectors)
    for t in reversed(range(len(kept))):
        run.reverse(t)
        x, sums, rho, sent, summed = kept[t]
        g = [torch.tensor(summed.flat(run.arrays[f"ga{t}"]))]
        g += [torch.tensor(run.arrays[f"grho{t}"][:, None], dtype=torch.float64)] if rho is not None else []
        outputs = [sums, rho] if rho is not None else [sums]
        gx, part = torch.autograd.grad(outputs, (x, vectors), g, retain_graph=True)
        gradient += part
        if t:
            run.arrays[f"gx{t}"][...] = sent.rows(gx.numpy(), run.arrays[f"gx{t}"].dtype)
    return run.arrays["energies"].copy(), gradient.detach().numpy()


@pytest.mark.parametrize("dtype", ["f64", "f32"])
@pytest.mark.parametrize("case", CASES)
def test_energies_and_gradients_are_those_of_the_oracle(case, dtype):
    model = description(**CASES[case] | {"repulsion": False})
    elements, vectors, senders, receivers = graph(31)
    energies, gradient = evaluate(model, dtype, 1, 31)
    vectors.requires_grad_()
    expected = oracle.node_energies(model, elements, vectors, senders, receivers)
    (slope,) = torch.autograd.grad(expected.sum(), vectors)
    for ours, theirs in ((energies, expected.detach().numpy()), (gradient, slope.numpy())):
        np.testing.assert_allclose(ours, theirs, rtol=0, atol=TOLERANCES[dtype] * np.abs(theirs).max())


@pytest.mark.parametrize("atoms", [1, 2, 25, 97])
def test_any_number_of_atoms_and_threads_gives_the_same_bits(atoms):
    model = description()
    one, two = evaluate(model, "f64", 1, atoms), evaluate(model, "f64", 2, atoms)
    assert all(np.array_equal(a, b) for a, b in zip(one, two))


def test_no_atoms():
    energies, gradient = evaluate(description(), "f64", 1, 0)
    assert energies.shape == (0,) and gradient.shape == (0, 3)
