"""Functions of elements in programs: exp, log, sqrt, abs, sign, tanh, sin and cos."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from tests.contraction.thread_ranks import on_ranks
from trnqc.contraction import einsum_plan, gradient, parse, tangent
from trnqc.contraction.cost.rates import RELATIVE_RATES
from trnqc.contraction.ranks import program as shared_programs
from trnqc.contraction.ranks.distributed import _distribution
from trnqc.contraction.ranks.program import over_ranks
from trnqc.errors import ExpressionError, MemoryLimit, UnsupportedError
from trnqc.expression.functions import FUNCTIONS

HEAD = """
space n = 4
space m = 3
index i j k : n
index a b : m
tensor x[n,m]
tensor y[n,m]
tensor e[n]
tensor t[m]
"""
# A program, and the same with NumPy's einsum.
MANY = (
    HEAD
    + """
d[i,a] = y[i,a] - e[i] * x[i,a]
R[i,j] = exp(-1/2 * t[a] * d[i,a]) * x[j,a] + tanh(x[i,a]) * sin(x[j,a]) / sqrt(t[a])
R[i,j] += log(e[i]) * abs(d[j,a]) * cos(d[j,a])
E = R[i,j] * R[j,i] / exp(e[i])
"""
)


def by_numpy(x, y, e, t):
    d = y - e[:, None] * x
    r = np.exp(-t * d / 2) @ x.T + np.tanh(x) / np.sqrt(t) @ np.sin(x).T
    r += np.log(e)[:, None] * (abs(d) * np.cos(d)).sum(1)
    return r, np.sum(r * r.T / np.exp(e)[:, None])


def numbers(seed=0):
    rng = np.random.default_rng(seed)
    return {name: 0.3 + rng.random(shape) for name, shape in (("x", (4, 3)), ("y", (4, 3)), ("e", 4), ("t", 3))}


@pytest.mark.parametrize("limit", [None, 1000])
def test_numpy_and_torch(limit):
    torch = pytest.importorskip("torch")
    arrays = numbers()
    before = {name: x.copy() for name, x in arrays.items()}
    plan = einsum_plan(MANY, outputs=("R", "E"), memory_limit=limit, max_slowdown=None)
    r, energy = by_numpy(**arrays)
    for found in (plan.run(arrays), plan.run({name: torch.tensor(x) for name, x in arrays.items()})):
        np.testing.assert_allclose(np.asarray(found["R"]), r, rtol=1e-13)
        np.testing.assert_allclose(float(found["E"]), energy, rtol=1e-13)
    for name, x in arrays.items():
        np.testing.assert_array_equal(x, before[name])


@settings(max_examples=30, deadline=None)
@given(
    some.lists(some.sampled_from([*FUNCTIONS]), min_size=1, max_size=2),
    some.sampled_from(["x[i,a]", "-2 * x[i,a] * t[a]", "x[i,a] + e[i] * t[a]", "y[j,b] * x[j,b]", "x[i,a] / y[i,a]"]),
    some.integers(0, 99),
)
def test_derivatives_are_those_of_autograd(names, argument, seed):
    """Reverse, forward and second derivatives of nested functions, where they exist, against PyTorch."""
    torch = pytest.importorskip("torch")
    inner = argument
    for name in names:
        inner = f"{name}({inner})"
    program = parse(f"{HEAD}E = y[{argument[argument.index('[') + 1 : argument.index(']')]}] * {inner}")
    arrays = numbers(seed)
    tensors = {name: torch.tensor(x, requires_grad=True) for name, x in arrays.items() if name in program.inputs}
    value = einsum_plan(program).run(tensors, check_finite=False)
    if not torch.isfinite(value):
        return  # The logarithm of a negative number.
    (expected,) = torch.autograd.grad(value, tensors["x"], create_graph=True, allow_unused=True)
    if expected is not None and not torch.isfinite(expected).all():
        return  # PyTorch's sign of nan is 0.
    if "sign" in names:
        assert expected is None or not expected.abs().sum()
        with pytest.raises(ExpressionError, match="does not depend on x"):
            gradient(program, "E", "x")
        return
    program_of_gradient = gradient(program, "E", "x")
    operands = {name: arrays[name] for name in program_of_gradient.inputs}
    found = einsum_plan(program_of_gradient).run(operands, check_finite=False)
    if not np.isfinite(found).all():
        return
    scale = 1 + abs(found).max()
    np.testing.assert_allclose(found, expected.detach().numpy(), rtol=0, atol=1e-10 * scale)
    direction = np.random.default_rng(seed + 1).standard_normal((4, 3))
    change = einsum_plan(tangent(program, "E", "x")).run(
        {name: arrays[name] for name in tangent(program, "E", "x").inputs if name != "dx"} | {"dx": direction}
    )
    np.testing.assert_allclose(change, np.vdot(found, direction), rtol=0, atol=1e-10 * scale)
    # The tangent of the gradient is the Hessian times the direction.
    (hessian,) = (
        torch.autograd.grad((expected * torch.tensor(direction)).sum(), tensors["x"], allow_unused=True)
        if expected.requires_grad
        else (None,)
    )
    if hessian is not None and hessian.abs().sum():
        second = tangent(program_of_gradient, "dE_dx", "x")
        values = {name: direction if name == "dx" else arrays[name] for name in second.inputs}
        again = einsum_plan(second).run(values, check_finite=False)
        scale = 1 + abs(again).max()
        np.testing.assert_allclose(again, hessian.numpy(), rtol=0, atol=1e-9 * scale)


def test_gradients_of_a_program_with_changing_tensors():
    torch = pytest.importorskip("torch")
    arrays = numbers(3)
    program = parse(MANY)
    tensors = {name: torch.tensor(x, requires_grad=True) for name, x in arrays.items()}
    einsum_plan(program, outputs=("E",)).run(tensors).backward()
    found = einsum_plan(gradient(program, "E", ("x", "y", "e", "t"))).run(arrays)
    for name, x in tensors.items():
        np.testing.assert_allclose(found[f"dE_d{name}"], x.grad.numpy(), rtol=1e-10)


def test_a_function_of_the_same_values_is_computed_once():
    program = parse(HEAD + "R[i,j] = exp(e[i]) * exp(e[j])\ne[i] += e[i]\nE = exp(e[k]) * R[k,k]")
    assert [str(s) for s in program.statements if s.function] == ["exp(e)[i] = exp(e[i])", "exp(e)'[k] = exp(e[k])"]
    e = np.array([0.1, -0.2, 0.3, 0.0])
    np.testing.assert_allclose(einsum_plan(program).run(e=e), np.sum(np.exp(2 * e) * np.exp(2 * e)))


BLOCKS = """
space o = 2 + 3
space v = 4 + 1
index i j : o
index a b : v
tensor x[o,v] conserving(0|1)
tensor y[o,v]
"""


@pytest.mark.parametrize("name", ["sqrt", "abs", "tanh", "sin", "sign"])
def test_blocks_of_zeros_stay_zero(name):
    x, y = np.zeros((5, 5)), np.random.default_rng(0).random((5, 5))
    x[:2, :4], x[2:, 4:] = y[:2, :4], y[2:, 4:]
    plan = einsum_plan(f"{BLOCKS}R[i,j] = {name}(x[i,a]) * y[j,a]", outputs=("R",))
    np.testing.assert_allclose(plan.run(x=x, y=y), getattr(np, name)(x) @ y.T, rtol=1e-13)
    assert plan.applied == 11  # elements of the blocks that are not zero


def test_functions_that_are_not_zero_at_zero():
    with pytest.raises(ExpressionError, match=r"exp is not 0 at 0, but block \(0, 1\) of its argument is"):
        einsum_plan(f"{BLOCKS}R[i,j] = exp(x[i,a]) * y[j,a]")
    plan = einsum_plan(f"{BLOCKS}R[i,a] = exp(y[i,a]) * x[i,a]")
    x, y = np.zeros((5, 5)), np.random.default_rng(0).random((5, 5))
    x[:2, :4], x[2:, 4:] = y[:2, :4], y[2:, 4:]
    np.testing.assert_allclose(plan.run(x=x, y=y), np.exp(y) * x)


def test_symmetry_of_functions():
    """Antisymmetric arguments make no antisymmetric values."""
    text = """
space v = 4
space o = 3
index a b e f : v
index i j : o
index Q : o
tensor B[o,v,v] symmetric(1,2)
tensor t[v,v,o,o] antisymmetric(0,1) antisymmetric(2,3)
u[e,f,i,j] = cos(t[e,f,i,j])
R[a,b,i,j] = B[Q,a,e] * B[Q,b,f] * u[e,f,i,j]
"""
    rng = np.random.default_rng(0)
    b, t = rng.standard_normal((3, 4, 4)), rng.standard_normal((4, 4, 3, 3))
    b, t = b + b.transpose(0, 2, 1), t - t.transpose(1, 0, 2, 3)
    t = t - t.transpose(0, 1, 3, 2)
    expected = np.einsum("Qae,Qbf,efij->abij", b, b, np.cos(t), optimize=True)
    np.testing.assert_allclose(einsum_plan(text).run(B=b, t=t), expected, atol=1e-12)


@pytest.mark.parametrize("size", [2, 3])
def test_over_ranks(size, monkeypatch):
    monkeypatch.setattr(shared_programs, "machine_rates", lambda: RELATIVE_RATES)
    plan, arrays = einsum_plan(MANY, outputs=("R", "E")), numbers(1)
    expected = by_numpy(**arrays)
    for found in on_ranks(size, lambda ranks: over_ranks(plan, ranks).run(arrays)):
        np.testing.assert_allclose(found["R"], expected[0], rtol=1e-13)
        np.testing.assert_allclose(found["E"], expected[1], rtol=1e-13)


def test_laplace_quadrature():
    """1/x as a sum of exponentials, as in scaled-opposite-spin energies, with a factor for each point."""
    text = HEAD + "tensor w[m]\nR[i,j] = w[a] * exp(-e[i] * t[a]) * exp(-e[j] * t[a])"
    t, w = np.array([0.1, 0.7, 2.0]), np.array([0.3, 0.9, 1.7])
    e = np.linspace(0.4, 1.0, 4)
    found = einsum_plan(text).run(e=e, t=t, w=w)
    np.testing.assert_allclose(found, np.einsum("a,ija->ij", w, np.exp(-(e[:, None, None] + e[:, None]) * t)))
    listing = str(einsum_plan(text)).splitlines()
    assert "exp(-e[i]*t[a])[i,a] = exp(- exp(-e[i]*t[a]).1)" in listing
    assert "elements     12 of which functions are taken" in listing


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("R[i] = erf(e[i])", r"the functions of a program are exp, log, .*; found erf\(\.\.\)"),
        ("R[i] = exp(e[i] + t[a])", r"all terms in exp\(\.\.\) have the same indices; index a is missing in e\[i\]"),
        ("R[i] = exp(1 + e[i])", "exp takes tensors; found the number 1"),
        ("R[i] = exp(z[i])", "z is neither a declared tensor nor computed before"),
        ("R[i] = exp(e[i]", r"expected '\)'"),
        ("R[i] = e(i)", r"indices of e stand in brackets"),
    ],
)
def test_refused_texts(line, message):
    with pytest.raises(ExpressionError, match=message):
        parse(HEAD + line)


def test_refused_plans():
    with pytest.raises(MemoryLimit):
        einsum_plan(HEAD + "E = exp(x[i,a] * e[j]) * y[i,a] * e[j]", memory_limit=100)
    with pytest.raises(UnsupportedError, match="this plan has the function exp"):
        _distribution(einsum_plan(HEAD + "R[i] = exp(e[i])", outputs=("exp(e)",)), (2,))
