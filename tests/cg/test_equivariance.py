"""Rotated or reflected inputs give outputs and gradients that are transformed by e3nn's Wigner matrices."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from scripts.workloads import tensor_product_oracle as oracle
from scripts.workloads.tensor_products import awkward, configuration
from trnqc.cg.cpu.engine import engine_for

o3 = pytest.importorskip("e3nn.o3")

CASES = ["uvu-high", "uvu-y3", "uvw-odd", "uvw-shared", "mixed", "unweighted", "all-modes"]
CASES += ["nequip-water", "DiffDock-L=2"]
# The Wigner matrices of l = 7 are exact to about 1e-14 themselves.
BOUND = 1e-12


def problem_of(label: str):
    known = {"nequip-water", "DiffDock-L=2"}
    return configuration(label) if label in known else awkward(label)


def turns(problem, seed: int, mirrored: bool) -> list[np.ndarray]:
    """Matrices that act on x, y and z for one random orthogonal matrix of determinant 1, or -1."""
    matrix, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((3, 3)))
    matrix = torch.tensor(matrix * np.sign(np.linalg.det(matrix)) * (-1 if mirrored else 1))
    sides = (problem.irreps_in1, problem.irreps_in2, problem.irreps_out)
    with oracle.constants_in_fp64():
        return [o3.Irreps(str(irreps)).D_from_matrix(matrix).numpy() for irreps in sides]


@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("label", CASES)
def test_turning_commutes_with_the_product(label: str, mirrored: bool) -> None:
    problem = problem_of(label)
    engine = engine_for(problem, "float64", threads=1)
    x, y, w, gz = oracle.arrays(problem, batch=2, seed=6)
    d1, d2, d3 = turns(problem, 7, mirrored)
    there = (x @ d1.T, y @ d2.T, w)
    assert oracle.error(engine.forward(*there), engine.forward(x, y, w) @ d3.T) < BOUND
    gx, gy, gw = engine.backward(x, y, w, gz)
    for actual, expected in zip(engine.backward(*there, gz @ d3.T), (gx @ d1.T, gy @ d2.T, gw), strict=True):
        assert oracle.error(actual, expected) < BOUND


def test_a_product_without_symmetry_is_noticed() -> None:
    """The bound above tells an equivariant product from one whose outputs are merely close."""
    problem = awkward("uvu-5")
    engine = engine_for(problem, "float64", threads=1)
    x, y, w, _ = oracle.arrays(problem, batch=2, seed=6)
    d1, d2, d3 = turns(problem, 7, mirrored=False)
    bent = engine.forward(x @ d1.T, y @ d2.T, w) + 1e-9 * np.roll(engine.forward(x, y, w), 1, axis=1)
    assert oracle.error(bent, engine.forward(x, y, w) @ d3.T) > BOUND
