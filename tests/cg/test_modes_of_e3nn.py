"""Problems at random, of all modes, by the interpreter: e3nn's values, and equivariance."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as hs

torch = pytest.importorskip("torch")
o3 = pytest.importorskip("e3nn.o3")

from scripts.workloads import tensor_product_oracle as oracle  # noqa: E402
from trnqc.cg.cpu import batch  # noqa: E402
from trnqc.cg.cpu.target import ProductTarget  # noqa: E402
from trnqc.cg.problem.irreps import Irreps  # noqa: E402
from trnqc.cg.problem.modes import MODES  # noqa: E402
from trnqc.cg.problem.problem import TPProblem, from_e3nn  # noqa: E402
from trnqc.cg.programs.directions import DIRECTIONS  # noqa: E402
from trnqc.gen import run  # noqa: E402

BOUND = 1e-12


@hs.composite
def products(draw):
    """(irreps, irreps, irreps, instructions) with a slot of z for every instruction, sometimes one for two of them."""
    kinds = hs.sampled_from([(l, p) for l in range(3) for p in (1, -1)])
    mul = draw(hs.integers(1, 6))
    one, two = ([(draw(hs.sampled_from([mul, mul, 1, 3])), draw(kinds)) for _ in range(2)] for _ in range(2))
    out, rules = [], []
    for (a, (m1, (l1, p1))), (b, (m2, (l2, p2))) in itertools.product(enumerate(one), enumerate(two)):
        mode, weight = draw(hs.sampled_from(sorted(MODES))), draw(hs.booleans())
        if MODES[mode].pairs != "uv" and m1 != m2:
            mode = "uvv"
        weight = weight or MODES[mode].result == "w"
        counts = int(np.prod(MODES[mode].counts(m1, m2)))
        m3 = {"u": m1, "v": m2, "pair": counts, "w": draw(hs.integers(1, 5))}[MODES[mode].result]
        slot = (m3, (draw(hs.integers(abs(l1 - l2), l1 + l2)), p1 * p2))
        if slot not in out or draw(hs.booleans()):
            out.append(slot)
        rules.append((a, b, len(out) - 1 - out[::-1].index(slot), mode, weight, draw(hs.sampled_from([1.0, 0.5]))))
    return one, two, out, rules


def forward(problem, x, y, w):
    """z by the program that is compiled otherwise, four lanes at a time."""
    z = np.full((len(x), problem.dims[2]), np.nan)
    program = batch.batch_program(ProductTarget(problem, "f64", 4), DIRECTIONS["forward"])
    arguments = {"x": x, "y": y, "w": w, "z": z}
    if program.group is None:  # The program computes several edges together.
        arguments |= {"begin": 0, "end": len(x)}
    run(program, arguments, lanes=4, groups=(0, len(x)))
    return z


@settings(max_examples=25, deadline=None)
@given(products(), hs.sampled_from(["element", "path"]), hs.sampled_from(["component", "norm"]), hs.booleans())
def test_values_of_e3nn(arguments, by_path, by_irrep, shared):
    options = {"path_normalization": by_path, "irrep_normalization": by_irrep, "shared_weights": shared}
    with oracle.constants_in_fp64():
        theirs = o3.TensorProduct(*arguments, internal_weights=False, **options)
    problem = TPProblem(*arguments, **options)
    assert from_e3nn(theirs) == problem
    x, y, w, _ = oracle.arrays(problem, batch=2)
    wanted = theirs(*map(torch.from_numpy, (x, y, w))).numpy()
    assert oracle.error(forward(problem, x, y, w), wanted) < BOUND
    assert oracle.error(oracle.forward(problem, x, y, w), wanted) < BOUND


ALL_UVW = (
    [(1, (0, 1))] * 2,
    [(1, (0, 1))] * 2,
    [(2, (0, 1)), (1, (0, 1))],
    [(0, 0, 0, "uvw", True), (1, 1, 1, "uvw", True)],
)


@settings(max_examples=15, deadline=None)
@example(ALL_UVW, False)
@given(products(), hs.booleans())
def test_turned_operands_give_turned_results(arguments, mirrored):
    problem = TPProblem(*arguments)
    x, y, w, _ = oracle.arrays(problem, batch=1)
    matrix = torch.linalg.qr(torch.randn(3, 3, dtype=torch.float64, generator=torch.Generator().manual_seed(1)))[0]
    matrix = matrix * torch.linalg.det(matrix).sign() * (-1 if mirrored else 1)
    with oracle.constants_in_fp64():
        d1, d2, d3 = (o3.Irreps(str(Irreps.of(irreps))).D_from_matrix(matrix).numpy() for irreps in arguments[:3])
    assert oracle.error(forward(problem, x @ d1.T, y @ d2.T, w), forward(problem, x, y, w) @ d3.T) < BOUND
