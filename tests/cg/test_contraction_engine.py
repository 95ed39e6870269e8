"""Compiled symmetric contractions and their derivatives against dense coupling tensors, and their symmetries."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from scripts.workloads.contraction_oracle import reference
from scripts.workloads.tensor_product_oracle import constants_in_fp64
from trnqc.cg.cpu.contraction_engine import contraction_engine, groups_of, packed, unpacked
from trnqc.cg.problem.contraction import ContractionProblem, contraction_problem
from trnqc.cg.problem.polynomials import HornerNode, horner
from trnqc.cg.programs.polynomial import PolynomialChannel
from trnqc.errors import InputError, IrrepsError, OperandError
from trnqc.gen import Array, Var
from trnqc.gen import statements as st
from trnqc.gen.build import Builder
from trnqc.gen.values import walk

CASES = {
    "degree 1": ("3x0e+3x1o", "3x1o", 1),
    "degree 2": ("3x0e+3x1o+3x2e", "3x0e+3x2e", 2),
    "degree 3": ("3x0e+3x1o+3x2e", "3x0e+3x1o", 3),
    "degree 4": ("3x0e+3x1o", "3x0e+3x1o", 4),
    "degree of each output": ("3x0e+3x1o", "3x0e+3x1o", (3, 1)),
    "pseudoscalars": ("3x1o+3x1e", "3x0o+3x1e", 3),
    "an output of no path": ("3x1o", "3x0o+3x0e", 2),
    "only scalars": ("3x0e", "3x0e", 3),
    "high degree of irreps": ("3x3o", "3x0e+3x3o", 2),
}
# Rounding errors of sums of at most a hundred products of a few factors.
BOUND = {"float64": 1e-13, "float32": 1e-5}


def arrays(problem: ContractionProblem, dtype: str, nodes: int = 5, elements: int = 2, seed: int = 0):
    rng = np.random.default_rng(seed)
    weights = rng.standard_normal((elements, problem.weight_numel, problem.channels))
    x, h, gb = (rng.standard_normal((nodes, dim, problem.channels)) for dim in (*problem.dims[:1] * 2, problem.dims[1]))
    numbers = rng.integers(0, elements, nodes)
    return weights, x.astype(dtype), h.astype(dtype), gb.astype(dtype), numbers


def folded(problem: ContractionProblem, weights: np.ndarray, dtype: str = "float64") -> np.ndarray:
    return np.einsum("tk,ekc->etc", problem.folding, weights).astype(dtype)


def close(ours: np.ndarray, theirs: torch.Tensor, dtype: str = "float64") -> bool:
    expected = theirs.detach().numpy()
    return bool(np.abs(ours - expected).max(initial=0) <= BOUND[dtype] * max(1.0, np.abs(expected).max(initial=0)))


@pytest.mark.parametrize("dtype", BOUND)
@pytest.mark.parametrize("label", CASES)
def test_values_and_gradients_agree_with_dense_tensors(label: str, dtype: str) -> None:
    problem = contraction_problem(*CASES[label])
    engine = contraction_engine(problem, dtype, threads=1)
    weights, x, _, gb, elements = arrays(problem, dtype)
    c = folded(problem, weights, dtype)
    w, t = torch.tensor(weights, requires_grad=True), torch.tensor(x.astype(float), requires_grad=True)
    b = reference(problem, w[torch.tensor(elements)], t)
    gw, gt = torch.autograd.grad(b, (w, t), torch.tensor(gb.astype(float)), allow_unused=True)
    assert close(engine.value(c, x, elements), b, dtype)
    assert close(engine.gradient(c, x, elements, gb), gt, dtype)
    gx, gc = engine.gradients(c, x, elements, gb)
    assert close(gx, gt, dtype)
    assert close(np.einsum("tk,etc->ekc", problem.folding, gc), gw, dtype)


@pytest.mark.parametrize("label", ["degree 2", "degree 4"])
def test_derivatives_along_directions_agree_with_dense_tensors(label: str) -> None:
    problem = contraction_problem(*CASES[label])
    engine = contraction_engine(problem, "float64", threads=1)
    weights, x, h, gb, elements = arrays(problem, "float64")
    directions = [h, h[::-1].copy()]
    c, w, t = folded(problem, weights), torch.tensor(weights), torch.tensor(x)

    def along(number: int, w: torch.Tensor, t: torch.Tensor) -> torch.Tensor:
        if not number:
            return reference(problem, w[torch.tensor(elements)], t)
        step = torch.tensor(directions[number - 1])
        return torch.func.jvp(lambda t: along(number - 1, w, t), (t,), (step,))[1]

    for number in (1, 2):
        value, pull = torch.func.vjp(lambda w, t: along(number, w, t), w, t)  # noqa: B023
        gw, gt = pull(torch.tensor(gb))
        assert close(engine.value(c, x, elements, *directions[:number]), value)
        gx, gc = engine.gradients(c, x, elements, gb, *directions[:number])
        assert close(gx, gt)
        assert np.array_equal(gx, engine.gradient(c, x, elements, gb, *directions[:number]))
        assert close(np.einsum("tk,etc->ekc", problem.folding, gc), gw)


@pytest.mark.parametrize("channels", [1, 8, 17, 32])
@pytest.mark.parametrize("nodes", [0, 1, 37])
def test_any_number_of_channels_and_nodes_on_any_number_of_threads(channels: int, nodes: int) -> None:
    irreps = f"{channels}x0e+{channels}x1o"
    problem = contraction_problem(irreps, irreps, 4)
    weights, x, h, gb, elements = arrays(problem, "float64", nodes, elements=4)
    c = folded(problem, weights)
    one, two = (contraction_engine(problem, "float64", threads) for threads in (1, 2))
    b = one.value(c, x, elements)
    assert close(b, reference(problem, torch.tensor(weights)[torch.tensor(elements)], torch.tensor(x)))
    assert np.array_equal(b, two.value(c, x, elements))
    for ours, theirs in zip(one.gradients(c, x, elements, gb, h), two.gradients(c, x, elements, gb, h)):
        assert np.array_equal(ours, theirs)


@pytest.mark.parametrize("mirrored", [False, True])
@pytest.mark.parametrize("label", ["degree 3", "degree 4", "pseudoscalars"])
def test_rotations_and_reflections_commute_with_it(label: str, mirrored: bool) -> None:
    o3 = pytest.importorskip("e3nn.o3")
    problem = contraction_problem(*CASES[label])
    matrix, _ = np.linalg.qr(np.random.default_rng(1).standard_normal((3, 3)))
    matrix = torch.tensor(matrix * np.sign(np.linalg.det(matrix)) * (-1 if mirrored else 1))
    with constants_in_fp64():
        of_x, of_b = (
            o3.Irreps("+".join(str(slot.ir) for slot in irreps)).D_from_matrix(matrix).numpy()
            for irreps in (problem.irreps_in, problem.irreps_out)
        )
    weights, x, _, _, elements = arrays(problem, "float64")
    c, engine = folded(problem, weights), contraction_engine(problem, "float64", threads=1)
    turned = engine.value(c, np.einsum("ij,njc->nic", of_x, x), elements)
    # The bound is that of e3nn's matrices.
    assert np.abs(turned - np.einsum("ij,njc->nic", of_b, engine.value(c, x, elements))).max() < 1e-11


def test_horner_form_has_every_monomial_once() -> None:
    terms = [(0,), (0, 0), (0, 0, 1), (0, 1, 2), (1, 1, 2), (2, 2, 2)]
    node = horner(terms)
    assert sorted(node.monomials()) == sorted(terms)
    assert node.degree == 3
    assert horner([(1,)]) == HornerNode(
        None,
        (
            (
                1,
                HornerNode((1,)),
            ),
        ),
    )


def test_nodes_are_grouped_by_element() -> None:
    groups = groups_of(np.array([2, 0, 2, 2, 0]), 2)
    assert groups.nodes.tolist() == [1, 4, 0, 2, 3]
    assert groups.starts.tolist() == [0, 2, 4, 5]
    assert groups.elements.tolist() == [0, 2, 2]


def test_packed_coefficients_are_unpacked() -> None:
    c = np.arange(2 * 3 * 5.0).reshape(2, 3, 5)
    assert packed(c, 4).shape == (2, 2, 3, 4)
    assert np.array_equal(unpacked(packed(c, 4), 5), c)


def test_nan_of_a_node_stays_with_it() -> None:
    problem = contraction_problem(*CASES["degree 4"])
    weights, x, _, _, elements = arrays(problem, "float64")
    x[1, :, 2] = np.nan
    b = contraction_engine(problem, "float64").value(folded(problem, weights), x, elements)
    assert np.isnan(b[1, :, 2]).all()
    assert np.isnan(b).sum() == b.shape[1]


def test_one_error_for_wrong_problems_and_operands() -> None:
    with pytest.raises(IrrepsError, match="equal multiplicities"):
        contraction_problem("3x0e+2x1o", "3x0e", 2)
    with pytest.raises(IrrepsError, match="found nothing"):
        contraction_problem("", "3x0e", 2)
    with pytest.raises(InputError, match="at least 1"):
        contraction_problem("3x0e", "3x0e", 0)
    problem = contraction_problem(*CASES["degree 2"])
    weights, x, _, gb, elements = arrays(problem, "float64")
    c, engine = folded(problem, weights), contraction_engine(problem, "float64")
    for wrong, message in (
        ((c, x, elements + 1), "found 2"),
        ((c, x, elements[:2]), "one for each node"),
        ((c, x[:, :2], elements), r"x: expected float64\[5, 9, 3\]"),
        ((c[:, :2], x, elements), "c: expected"),
        ((c, x.astype("float32"), elements), "found float32"),
    ):
        with pytest.raises(OperandError, match=message):
            engine.value(*wrong)
    with pytest.raises(OperandError, match="gb: expected"):
        engine.gradient(c, x, elements, gb[:, :1])


@pytest.mark.parametrize("directions", [0, 1])
def test_a_gradient_keeps_few_numbers_at_once(directions: int) -> None:
    """Those of the nodes above the present one, whose number does not grow with that of the terms."""
    problem = contraction_problem("1x0e+1x1o+1x2e+1x3o", "1x0e", 3)
    b, (node,) = Builder(), problem.components
    x, *along = ([Var(f"{name}{i}") for i in range(problem.dims[0])] for name in ("x", "h")[: 1 + directions])
    channel = PolynomialChannel(b, x, along, lambda component, m: Array("c", "f64")[problem.terms[component, m]])
    gx = [Var(f"gx{i}") for i in range(problem.dims[0])]
    channel.gradient(0, node, Var("gb"), gx, None)
    born = {s.var: n for n, s in enumerate(b.body) if isinstance(s, st.Let)}
    last = {
        v: n for n, s in enumerate(b.body) if isinstance(s, st.Let | st.Assign) for v in walk((s.value,)) if v in born
    }
    alive = [sum(born[v] <= n < last[v] for v in last) for n in range(len(b.body))]
    assert len(born) > 100 and max(alive) <= 6 << directions
