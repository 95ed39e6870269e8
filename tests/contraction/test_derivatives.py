"""Derivatives of programs against those that PyTorch finds for the same sums of products, and what is refused."""

from __future__ import annotations

import re
from itertools import groupby, pairwise

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as some

from tests.contraction.numbers import antisymmetric, term_by_term
from trnqc.contraction import einsum_plan, gradient, parse, tangent
from trnqc.errors import ExpressionError
from trnqc.expression.program import Program

HEAD = """
space o
space v
index i j k l : o
index a b c d : v
tensor t[v,v,o,o] antisymmetric(0,1) antisymmetric(2,3)
tensor g[o,o,v,v] antisymmetric(0,1) antisymmetric(2,3)
tensor w[o,v,v,o]
tensor p[v,v,o,o] symmetric(0,1)(2,3)
tensor h[v,v,v] symmetric(0,1,2)
tensor f[v,v]
tensor s[v,o]
tensor z
"""
PROGRAMS = {
    "one product": "E = g[i,j,a,b] * t[a,b,i,j]",
    "exchanges": """R[a,b,i,j] = P(i,j) * P(a,b) * (t[a,c,i,k] * w[k,b,c,j] - 1/2 * s[a,k] * s[c,i] * w[k,b,c,j])
        E = 1/4 * g[i,j,a,b] * R[a,b,i,j]""",
    "three axes": "E = h[a,b,c] * s[a,i] * f[b,c] * s[b,i] * z",
    "shared intermediates": """X[a,b] = f[a,c] * f[c,b] - f[b,a] * z
        Y[a,i] = X[a,b] * s[b,i] + s[a,i]
        E = X[b,a] * X[a,b] + Y[a,i] * Y[a,i] * z""",
    "scalars": "A = f[a,b] * f[b,a] - z * z\nB = 2 * A * A - A\nE = B * z - 3 * B + A",
    "division": "N[a,i] = s[a,i] / f[a,a] * z\nX[a,b] = f[a,b] / f[b,a]\nE = N[a,i] * s[a,i] / z + X[a,b] * f[b,a] / z",
    "additions": """X[a,b] = f[a,c] * f[c,b]
        X[b,a] += z * f[a,b]
        Y[a,b] = X[a,c] * X[c,b]
        X[a,b] -= 1/2 * X[b,a] * z
        Y[c,d] += X[c,a] * f[a,d]
        E = X[a,b] * Y[b,a]
        E += Y[a,b] * f[a,b]
        E -= E * E""",
    "inputs that change": """Y[a,i] = f[a,b] * s[b,i]
        f[a,b] += 1/3 * f[b,a] * z
        s[b,i] = f[a,b] * Y[a,i]
        E = s[a,i] * s[b,i] * f[a,b]""",
    "pairs": "tau[a,b,i,j] = p[a,b,i,j] + s[a,i] * s[b,j]\nE = p[a,b,i,j] * tau[b,a,i,j] + w[i,a,b,j] * tau[a,b,i,j]",
    "another name": "X'[a,b] = f[b,a]\nX[a,b] = f[a,b]\nX[a,b] += X[b,a]\nE = X'[a,b] * X[b,c] * f[c,a]",
}
# The diagonal of f divides in one program; its derivative is asked for with respect to the others only.
FIXED = {"division": {"f"}}
EXTENTS = [(2, 3), (1, 5), (3, 1), (2, 2)]


def arrays_of(program: Program, o: int, v: int, seed: int = 7) -> dict[str, np.ndarray]:
    """Random inputs with the declared symmetry, away from zero."""
    rng = np.random.default_rng(seed)
    arrays = {}
    for tensor in program.tensors:
        x = rng.standard_normal(tuple({"o": o, "v": v}[space.name] for space in tensor.spaces))
        x = x + 3 * np.sign(x)
        arrays[tensor.name] = projected(x, tensor.every_exchange)
    return arrays


def projected(x: np.ndarray, exchanges) -> np.ndarray:
    """The part of x with the symmetry, as exchanges are repeated until nothing changes."""
    for _ in range(60 if exchanges else 0):
        for exchange in exchanges:
            x = (x + exchange.sign * x.transpose(exchange.order(x.ndim))) / 2
    return x


def with_torch(program: Program, arrays: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The values of all tensors after the program, term by term."""
    values = dict(arrays)
    for statement in program.statements:
        total = values[statement.target.tensor] if statement.accumulate else torch.zeros((), dtype=torch.float64)
        for term in statement.terms:
            letter = {label: chr(97 + k) for k, label in enumerate(term.labels)}
            inputs = ",".join("".join(letter[x] for x in factor.labels) for factor in term.factors)
            operands = [1 / values[f.tensor] if f.reciprocal else values[f.tensor] for f in term.factors]
            output = "".join(letter[x] for x in statement.target.labels)
            total = total + float(term.coefficient) * torch.einsum(f"{inputs}->{output}", *operands)
        values[statement.target.tensor] = total
    return values


def close(found: np.ndarray, expected: np.ndarray) -> None:
    """Equal within rounding of the largest element, since elements are sums of many products."""
    assert found.shape == expected.shape
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-11 * max(1.0, np.abs(expected).max(initial=0.0)))


def check_gradient(program: Program, arrays: dict[str, np.ndarray], wrt: list[str]) -> None:
    """Compare the gradient of E, term by term, with that of PyTorch and the symmetry of the inputs."""
    tensors = {name: torch.tensor(x, requires_grad=name in wrt) for name, x in arrays.items()}
    energy = with_torch(program, tensors)["E"]
    expected = torch.autograd.grad(energy, [tensors[name] for name in wrt])
    result = term_by_term(gradient(program, "E", wrt, keep=("E",)), arrays)
    close(np.asarray(result["E"]), energy.detach().numpy())
    for name, value in zip(wrt, expected):
        close(np.asarray(result[f"dE_d{name}"]), projected(value.numpy(), program.tensor(name).every_exchange))


def check_tangent(program: Program, arrays: dict[str, np.ndarray], wrt: list[str], of: list[str]) -> None:
    """Compare the change of targets with inputs, term by term, with that of PyTorch."""
    fixed = {name: torch.tensor(x) for name, x in arrays.items()}
    directions = {name: arrays[name][::-1] + 0.5 for name in wrt if arrays[name].ndim}
    directions |= {name: np.array(0.5) for name in wrt if not arrays[name].ndim}
    directions = {name: projected(x, program.tensor(name).every_exchange) for name, x in directions.items()}

    def values(*moving: torch.Tensor) -> tuple[torch.Tensor, ...]:
        after = with_torch(program, fixed | dict(zip(wrt, moving)))
        return tuple(after[name] for name in of)

    moving = tuple(tuple(torch.tensor(x[name].copy()) for name in wrt) for x in (arrays, directions))
    _, expected = torch.func.jvp(values, *moving)
    derivative = tangent(program, of, wrt)
    result = term_by_term(derivative, arrays | {f"d{name}": x for name, x in directions.items()})
    for name, value in zip(of, expected):
        close(np.asarray(result[f"d{name}"]), value.numpy())


@pytest.mark.parametrize("extents", EXTENTS, ids=str)
@pytest.mark.parametrize("name", PROGRAMS)
def test_gradients_are_those_of_pytorch(name, extents):
    program = parse(HEAD + PROGRAMS[name])
    wrt = [x for x in program.inputs if x not in FIXED.get(name, ())]
    check_gradient(program, arrays_of(program, *extents), wrt)


@pytest.mark.parametrize("name", PROGRAMS)
def test_tangents_are_those_of_pytorch(name):
    program = parse(HEAD + PROGRAMS[name])
    changed = {tensor.name for tensor in program.tensors}
    of = [x for x in program.targets if x not in changed]
    check_tangent(program, arrays_of(program, 2, 3), list(program.inputs), of)


def test_plans_of_derivatives():
    """A plan returns the derivatives and what is kept, and its numbers are those of the terms."""
    program = parse(HEAD + PROGRAMS["shared intermediates"])
    arrays = arrays_of(program, 2, 3)
    derivative = gradient(program, "E", ("f", "s"))
    plan = einsum_plan(derivative, arrays)
    assert set(plan.outputs) == {"dE_df", "dE_ds"}
    expected = term_by_term(derivative, arrays)
    for name, value in plan.run(arrays).items():
        close(value, expected[name])
    change = tangent(program, "E", "f", keep=("E",))
    plan = einsum_plan(change, arrays, outputs=("E", "dE"))
    result = plan.run(arrays | {"df": arrays["f"]})
    assert float(result["dE"]) == pytest.approx(np.vdot(expected["dE_df"], arrays["f"]), rel=1e-12)
    assert float(result["E"]) == pytest.approx(float(term_by_term(program, arrays)["E"]), rel=1e-12)


def test_second_derivatives():
    """The Hessian along a direction is the tangent of the gradient, and the gradient of the tangent."""
    program = parse(HEAD + PROGRAMS["shared intermediates"])
    arrays = arrays_of(program, 3, 2)
    direction = arrays | {"ds": arrays["s"][::-1] * 0.3}
    first = term_by_term(tangent(gradient(program, "E", "f"), "dE_df", "s"), direction)["ddE_df"]
    second = term_by_term(gradient(tangent(program, "E", "s"), "dE", "f"), direction)["ddE_df"]
    close(first, second)
    assert np.abs(first).max() > 0.1


def test_spins():
    """Over blocks the derivative is that over the whole spaces, and zero where nothing conserves the spin."""
    text = """
    space o = 1 + 2
    space v = 2 + 1
    index i j k l : o
    index a b c d : v
    tensor t[v,v,o,o] antisymmetric(0,1) antisymmetric(2,3) conserving(0,1|2,3)
    tensor g[o,o,v,v] antisymmetric(0,1) antisymmetric(2,3) conserving(0,1|2,3)
    tensor s[v,o] conserving(0|1)
    X[a,b] = g[i,j,c,a] * t[b,c,i,j]
    E = X[a,b] * X[b,a] + X[a,b] * s[a,i] * s[b,i] + g[i,j,a,b] * s[a,i] * s[b,j]
    """
    program = parse(text)
    rng = np.random.default_rng(4)
    spin = {"o": np.array([0, 1, 1]), "v": np.array([0, 0, 1])}
    arrays = {
        "t": antisymmetric(rng.standard_normal((3, 3, 3, 3))),
        "g": antisymmetric(rng.standard_normal((3, 3, 3, 3))),
        "s": rng.standard_normal((3, 3)) * (spin["v"][:, None] == spin["o"]),
    }
    for name, (x, y) in {"t": "vo", "g": "ov"}.items():
        arrays[name] *= np.add.outer(*[spin[x]] * 2)[:, :, None, None] == np.add.outer(*[spin[y]] * 2)
    derivative = gradient(program, "E", program.inputs)
    expected = term_by_term(derivative, arrays)
    for name, value in einsum_plan(derivative).run(arrays).items():
        close(value, expected[name])
        assert not expected[name][arrays[name.removeprefix("dE_d")] == 0].any()


REFUSED = [
    ("f", "E = f[a,a] * z", "diagonal f[a,a]"),
    ("f", "E = f[a,b] * s[b,i] * s[b,i]", "index a of f[a,b] stands in no other tensor"),
    ("z", "E = z - z * f[a,b] * f[a,b]", "with respect to z has a constant, 1,"),
    ("f", "F[a,b] = f[a,b] * z\nE = s[a,i] * s[a,i]", "E does not depend on f"),
    ("f", "E[a] = f[a,b] * f[b,a]", "a target without indices; found E[a]"),
    ("f", "X = f[a,b] * f[a,b]", "a target without indices; found E, which is no target"),
    ("f", "dE_df = z * z\nE = f[a,b] * f[a,b] * dE_df", "dE_df is the name of a derivative"),
]


@pytest.mark.parametrize("wrt, text, message", REFUSED)
def test_what_is_no_program_is_refused(wrt, text, message):
    with pytest.raises(ExpressionError, match=re.escape(message)):
        gradient(parse(HEAD + text), "E", wrt)


def test_names_are_checked():
    program = parse(HEAD + "X[a,b] = f[a,b] * z\nX[a,b] -= X[b,a]\nE = X[a,b] * f[a,b]\ndf = s[a,i] * s[a,i]")
    with pytest.raises(ExpressionError, match="Q is no input of the program; inputs are f, s, z"):
        gradient(program, "E", ("f", "Q"))
    with pytest.raises(ExpressionError, match="one input or more; found none"):
        gradient(program, "E", ())
    with pytest.raises(ExpressionError, match="t is no target that can be kept"):
        gradient(program, "E", "f", keep=["t"])
    with pytest.raises(ExpressionError, match="Q is no target; targets are X, E, df"):
        tangent(program, ("E", "Q"), "f")
    with pytest.raises(ExpressionError, match="df does not depend on z"):
        tangent(program, ("E", "df"), "z")
    with pytest.raises(ExpressionError, match="df is the name of a derivative"):
        tangent(program, "E", "f")
    assert gradient(program, "E", "f", keep=["X"]).targets == ("X'", "X", "dE_dX", "dE_dX'", "dE_df")


@some.composite
def texts(draw):
    """Statements over matrices of which some are added to, change or divide; E ends the program."""
    names, lines = ["f", "x", "y"], []
    for _ in range(draw(some.integers(1, 4))):
        target = draw(some.sampled_from(["X", "Y", "x"]))
        adds = target in names and draw(some.booleans())
        terms = []
        for _ in range(draw(some.integers(1, 2))):
            middle = draw(some.lists(some.sampled_from("abcd"), max_size=2))
            ends = [label for label, _ in groupby(["a", *middle, "b"])]  # without diagonals
            words = [f"{draw(some.sampled_from(names))}[{p},{q}]" for p, q in pairwise(ends)]
            if draw(some.booleans()):
                words.append("z")
            below = f" / {draw(some.sampled_from(['f', 'y']))}[b,a]" if draw(some.booleans()) else ""
            terms.append(f"{draw(some.integers(1, 3))} * " + " * ".join(words) + below)
        lines.append(f"{target}[{draw(some.sampled_from(['a,b', 'b,a']))}] {'+=' if adds else '='} {' - '.join(terms)}")
        names.append(target)
    ends = [draw(some.sampled_from(names)) for _ in range(3)]
    return "\n".join([*lines, "E = {}[a,b] * {}[b,c] * {}[c,a]".format(*ends)])


@given(texts())
@settings(deadline=None, max_examples=60)
def test_random_programs(text):
    head = "space v\nindex a b c d : v\ntensor f[v,v]\ntensor x[v,v] symmetric(0,1)\ntensor y[v,v]\ntensor z\n"
    program = parse(head + text)
    arrays = arrays_of(program, 1, 3)
    wrt = [name for name in ("f", "x", "y", "z") if depends(program, name)]
    if wrt:
        check_gradient(program, arrays, wrt)
        check_tangent(program, arrays, wrt, ["E"])


def depends(program: Program, name: str) -> bool:
    """Whether E depends on the value of an input at the start."""
    try:
        tangent(program, "E", name)
    except ExpressionError:
        return False
    return True
