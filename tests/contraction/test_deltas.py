"""Kronecker's delta in programs: the numbers against numpy.einsum with unit matrices, and what a delta costs."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from tests.contraction.numbers import antisymmetric, term_by_term
from tests.contraction.thread_ranks import on_ranks
from trnqc.contraction import Program, Space, Tensor, einsum_plan, expanded, gradient, identity, parse, tangent
from trnqc.contraction.ranks.program import over_ranks
from trnqc.errors import ExpressionError

HEAD = """
space o = 2 + 1
space v = 4
index i j k l : o
index a b c d : v
tensor F[o,o]
tensor t[v,v,o,o] antisymmetric(0,1) antisymmetric(2,3)
tensor x[o]
tensor z
"""
BLOCKS = HEAD.replace("F[o,o]", "F[o,o] conserving(0|1)")
UNITS = {"δ(o)": np.eye(3), "δ(v)": np.eye(4)}


@pytest.fixture(scope="module")
def arrays():
    rng = np.random.default_rng(5)
    F = rng.standard_normal((3, 3))
    F[:2, 2] = F[2, :2] = 0  # zero outside of its blocks
    t = antisymmetric(rng.standard_normal((4, 4, 3, 3)))
    return {"F": F, "t": t, "x": rng.standard_normal(3), "z": np.array(rng.standard_normal())}


def check(program: Program, arrays) -> None:
    """Compare all targets with numpy.einsum, as the program is written and as its text is read again."""
    expected = term_by_term(program, arrays | UNITS)
    plan = einsum_plan(program, outputs=program.targets)
    results = plan.run({name: arrays[name] for name in program.inputs})
    results = results if len(program.targets) > 1 else {program.targets[0]: results}
    for name in program.targets:
        np.testing.assert_allclose(results[name], expected[name], rtol=1e-12, atol=1e-12)


TERMS = ["F[{},{}]", "t[a,b,{},{}]", "x[{}] * x[{}]", "delta({},{})", "δ(a,b) * delta({},{})", "z * delta({},{})"]


@settings(max_examples=40, deadline=None)
@given(
    some.sampled_from([HEAD, BLOCKS]),
    some.lists(some.tuples(some.sampled_from(TERMS), *[some.sampled_from("ijkl")] * 2), min_size=1, max_size=4),
    some.integers(0, 2),
    some.booleans(),
)
def test_products_with_deltas_are_those_with_unit_matrices(arrays, head, factors, rank, swapped):
    """Labels that deltas make equal, in chains, twice and alone; kept, summed, and on both sides of a permutation."""
    written = [term.format(first, second) for term, first, second in factors]
    labels = list(dict.fromkeys(label for _, *both in factors for label in both))[:rank]
    target = f"R[{','.join(labels)}]" if labels else "R"
    sign = "P(" + ",".join(labels) + ") * " if swapped and len(labels) == 2 else ""
    program = parse(f"{head}\n{target} = {sign}{' * '.join(written)} * delta(k,l) - 1/3 * {' * '.join(written)}")
    assert parse(f"{head}\n{program}") == program
    check(program, arrays)


def test_a_summed_delta_costs_nothing(arrays):
    def work(text):
        return einsum_plan(HEAD + text).multiply_adds

    assert work("E = delta(i,j) * F[i,k] * F[k,j]") == work("E = F[i,k] * F[k,i]")
    assert work("R[i,k] = F[i,j] * delta(j,l) * F[l,k]") == work("R[i,k] = F[i,j] * F[j,k]")
    assert work("E = delta(i,i) * F[j,k] * F[k,j]") == work("E = F[j,k] * F[k,j]")
    assert einsum_plan(HEAD + "E = delta(a,a)").run() == 4


def test_a_delta_of_the_target_adds_along_the_diagonal(arrays):
    density = "D[i,j] = 2 * delta(i,j) - t[a,b,k,i] * t[a,b,k,j]"
    text = density + "\nG[i,j,a,b] = delta(i,j) * δ(a,b) * z\nG[i,j,a,b] += t[a,b,i,j]"
    check(parse(HEAD + text), arrays)
    # The product is formed for equal labels alone.
    diagonal = einsum_plan(HEAD + "R[i,j] = delta(i,j) * t[a,b,i,k] * t[a,b,k,j]")
    assert diagonal.multiply_adds == 4 * 4 * 3 * 3 + 3 * 3


def test_zero_blocks_of_a_delta_are_left_out(arrays):
    text = "R[i,j] = delta(i,j) * F[k,l] * F[l,k]"
    check(parse(BLOCKS + text), arrays)
    assert einsum_plan(BLOCKS + text).identities == {"δ(o)₀₀", "δ(o)₁₁"}


def test_intermediates_with_deltas_may_be_written_out(arrays):
    program = parse(HEAD + "D[i,j] = 2 * delta(i,j) - F[i,j]\nE = D[i,j] * F[j,i]\nR[i,k] = D[i,j] * F[j,k]")
    check(program, arrays)
    check(expanded(program, ("E", "R")), arrays)


def test_a_delta_is_constant_in_derivatives(arrays):
    program = parse(HEAD + "D[i,j] = delta(i,j) * F[i,j] + δ(i,j) * z\nE = D[i,j] * F[j,i] + delta(i,j) * x[i] * x[j]")
    inputs = {name: arrays[name] for name in program.inputs}
    slopes = einsum_plan(gradient(program, "E", ("F", "x", "z"))).run(inputs)
    F = arrays["F"]
    np.testing.assert_allclose(slopes["dE_dF"], np.diag(2 * np.diag(F) + arrays["z"]), atol=1e-13)
    np.testing.assert_allclose(slopes["dE_dx"], 2 * arrays["x"], atol=1e-13)
    np.testing.assert_allclose(slopes["dE_dz"], np.trace(F), atol=1e-13)
    change = einsum_plan(tangent(program, "D", "F")).run(dF=np.ones((3, 3)))
    np.testing.assert_array_equal(change, np.eye(3))


@pytest.mark.parametrize("kind", ["float32", "complex128", "int64"])
def test_a_delta_has_the_type_and_library_of_the_operands(kind):
    torch = pytest.importorskip("torch")
    plan = einsum_plan(HEAD + "D[i,j] = 2 * delta(i,j) - F[i,j]")
    F = np.arange(9).reshape(3, 3).astype(kind)
    ours, theirs = plan.run(F=F), plan.run(F=torch.from_numpy(F))
    assert ours.dtype == F.dtype and theirs.dtype == getattr(torch, kind)
    np.testing.assert_array_equal(ours, 2 * np.eye(3) - F)
    np.testing.assert_array_equal(theirs, ours)


def test_deltas_within_a_memory_limit_and_over_ranks():
    text = """
    space n = 24
    index i j k l : n
    tensor A[n,n]
    tensor B[n,n]
    R[i,j,k,l] = delta(i,j) * A[i,k] * B[j,l]
    S[i,j] = delta(i,j) * A[i,k] * B[k,l] * A[l,j]
    """  # A result that is returned is not counted.
    rng = np.random.default_rng(2)
    operands = {"A": rng.standard_normal((24, 24)), "B": rng.standard_normal((24, 24))}
    expected = term_by_term(parse(text), operands | {"δ(n)": np.eye(24)})
    plans = [einsum_plan(text, memory_limit=limit, max_slowdown=None) for limit in (None, 12_000)]
    assert any(part.schedule for part in plans[-1].parts)
    for plan in plans:
        results = [plan.run(operands), *on_ranks(2, lambda ranks, plan=plan: over_ranks(plan, ranks).run(operands))]
        for result in results:
            for name in "RS":
                np.testing.assert_allclose(result[name], expected[name], rtol=1e-12, atol=1e-12)


def test_programs_of_python_objects_take_identities(arrays):
    o = Space("o", 3)
    F = Tensor("F", (o, o))
    program = Program.of({"ij": o}, ("R", "ij", 2 * identity(o)["ij"] * F["ij"]))
    assert str(program) == "R[i,j] = 2 * delta(i,j) * F[i,j]" and program.inputs == ("F",)
    np.testing.assert_array_equal(einsum_plan(program).run(F=arrays["F"]), 2 * np.diag(np.diag(arrays["F"])))


@pytest.mark.parametrize(
    "text, message, pointed",
    [
        ("R[i,a] = delta(i,a)", r"one space; found i over o and a over v", "a)"),
        ("E = δ(i,q)", r"index q of δ\(i,q\) is not declared", "q)"),
        ("E = delta(i,j,k)", r"expected '\)'; found ','", ",k)"),
        ("R[i,j] = F[i,j] / delta(i,j)", r"nothing is divided by delta\(i,j\)", "/ d"),
    ],
)
def test_errors_name_the_labels_and_point_at_them(text, message, pointed):
    with pytest.raises(ExpressionError, match=message) as caught:
        parse(HEAD + text)
    _, line, caret = str(caught.value).split("\n")
    assert line[caret.index("^") :].startswith(pointed) and str(caught.value).startswith("line 10: ")


def test_a_tensor_may_be_called_delta():
    assert parse(HEAD + "tensor delta[o,o]\nE = delta[i,i]").inputs == ("delta",)
    with pytest.raises(ExpressionError, match=r"indices of delta stand in brackets"):
        parse(HEAD + "tensor delta[o,o]\nE = delta(i,i)")
