"""Plans with bound inputs: the numbers of the whole plan, what is computed once, and refused operands."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as some

from tests.contraction.numbers import antisymmetric, term_by_term
from trnqc.contraction import einsum_plan, parse, tangent
from trnqc.errors import InputError, MemoryLimit

HEAD = """
space o = 2 + 1
space v = 3 + 2
index i j k l : o
index a b c d : v
tensor t[v,v,o,o] antisymmetric(0,1) antisymmetric(2,3) BLOCKS
tensor g[o,o,v,v] antisymmetric(0,1) antisymmetric(2,3) BLOCKS
tensor f[v,v]
tensor x[v,v,o,o] BLOCKS
tensor z
"""
HEADS = [HEAD.replace("BLOCKS", ""), HEAD.replace("BLOCKS", "conserving(0,1|2,3)")]
PROGRAMS = {
    "steps": "R[a,b,i,j] = P(i,j) * P(a,b) * g[k,l,c,d] * t[a,c,i,k] * x[d,b,l,j]",
    "targets": "S[a,b] = f[a,c] * f[c,b]\nS[a,b] += z * f[a,b]\nR[a,b,i,j] = S[a,c] * x[c,b,i,j]",
    "terms": "R[a,b,i,j] = f[a,c] * t[c,b,i,j] + t[a,b,i,j] - 1/3 * x[b,a,i,j] + f[c,c] * x[a,b,i,j]",
    "outputs": "S[a,b] = f[a,c] * f[c,b]\nE = S[a,a]\nQ[a,b] = S[b,a]\nR[a,b,i,j] = S[a,c] * x[c,b,i,j]",
    "a target changes": "S[a,b] = f[a,c] * f[c,b]\nQ[a,b] = S[a,c] * f[c,b]\nS[a,b] = Q[b,a] + S[a,b]\n"
    "R[a,b,i,j] = S[a,c] * x[c,b,i,j]\nS[a,b] += z * f[b,a]",
    "an input changes": "R[a,b] = f[a,c] * f[c,b]\nf[a,b] += z * R[a,b]\nE = f[a,b] * R[b,a] + x[a,b,i,i] * f[a,b]",
    "divisors and deltas": "S[a,b] = delta(a,b) * z + f[a,c] * f[c,b]\nR[a,b,i,j] = S[a,c] * x[c,b,i,j] / z / z",
}


@pytest.fixture(scope="module")
def arrays():
    rng = np.random.default_rng(7)
    t, g = (antisymmetric(rng.standard_normal(shape)) for shape in ((5, 5, 3, 3), (3, 3, 5, 5)))
    x, f = rng.standard_normal((5, 5, 3, 3)), rng.standard_normal((5, 5))
    spins = {"o": np.array([0, 0, 1]), "v": np.array([0, 0, 0, 1, 1])}

    def conserving(array, spaces):
        p, q, r, s = np.ix_(*(spins[space] for space in spaces))
        return array * (p + q == r + s)

    t, g, x = conserving(t, "vvoo"), conserving(g, "oovv"), conserving(x, "vvoo")
    return {"t": t, "g": g, "x": x, "f": f, "z": np.array(1.7), "δ(v)": np.eye(5)}


@settings(max_examples=40, deadline=None)
@given(some.sampled_from(HEADS), some.sampled_from(sorted(PROGRAMS)), some.sets(some.sampled_from("tgfxz")))
def test_runs_of_bound_plans_have_the_numbers_of_the_program(arrays, head, name, chosen):
    program = parse(head + PROGRAMS[name])
    plan = einsum_plan(program, outputs=program.targets)
    operands = {name: arrays[name] for name in program.inputs}
    bound = plan.bind({name: value for name, value in operands.items() if name in chosen})
    expected = term_by_term(program, arrays)
    for _ in range(2):
        rest = {name: operands[name] for name in bound.rest}
        results = bound.run(*rest.values())
        results = {program.targets[0]: results} if len(program.targets) == 1 else results
        for target in program.targets:
            np.testing.assert_allclose(results[target], expected[target], rtol=1e-12, atol=1e-12)
            # The next run does not see what the caller writes.
            if target not in program.inputs and isinstance(results[target], np.ndarray):
                results[target][...] = np.nan
    assert bound.multiply_adds <= plan.multiply_adds + sum(x.size for x in operands.values()) * 10


@pytest.mark.parametrize("head", HEADS)
def test_steps_targets_and_terms_of_bound_operands_run_once(arrays, head):
    def counts(name, **operands):
        bound = einsum_plan(head + PROGRAMS[name]).bind(operands)
        return bound.multiply_adds_once, bound.multiply_adds

    whole = einsum_plan(head + PROGRAMS["steps"]).multiply_adds
    once, each = counts("steps", g=arrays["g"], t=arrays["t"])
    assert 0 < once < whole and each == whole - once
    once, each = counts("targets", f=arrays["f"], z=arrays["z"])
    assert once >= 125 and each == einsum_plan(head + PROGRAMS["targets"]).multiply_adds - once
    assert counts("steps", x=arrays["x"])[0] == 0


def test_the_text_says_what_runs_once_and_in_each_run(arrays):
    bound = einsum_plan(HEADS[0] + PROGRAMS["targets"]).bind(f=arrays["f"], z=arrays["z"])
    once, each = str(bound).split("in each run, from x")
    assert "once, from f, z" in once and "S[a,b] =" in once and "S[a,b] =" not in each.partition("multiply-adds  ")[0]
    assert f"{bound.multiply_adds_once:.4g} once, {bound.multiply_adds:.4g} in each run" in each
    assert bound.kept_elements == 25 and "1 intermediates, 25 elements, 200 B" in each


def test_symmetric_pairs_keep_their_loops():
    """A step that loops over a leading pair reads its operand, computed once, with this pair first."""
    n, o = 12, 3
    rng = np.random.default_rng(3)
    A = rng.standard_normal((n, n, n, n))
    for order in ((1, 0, 2, 3), (0, 1, 3, 2), (2, 3, 0, 1)):
        A = A + A.transpose(order)
    x = [rng.standard_normal((n, o)) for _ in range(4)]
    plan = einsum_plan(
        "pqrs,pi,qa,rj,sb->iajb", A, *x, symmetries={0: ["pqrs = qprs = pqsr", "pqrs = rspq"]}, memory_limit=None
    )
    names = [name for name, _ in plan.inputs]
    operands = dict(zip(names, (A, *x)))
    for number in range(1, 5):
        bound = plan.bind({name: operands[name] for name in names if name != names[number]})
        result = bound.run(operands[names[number]])
        np.testing.assert_allclose(result, plan.run(operands), rtol=1e-12, atol=1e-11)
    assert bound.multiply_adds_once > 0


def test_directions_of_a_derivative_run_with_bound_tensors(arrays):
    text = "R[a,b,i,j] = P(a,b) * f[a,c] * t[c,b,i,j] + 1/4 * g[k,l,c,d] * t[c,d,i,j] * t[a,b,k,l]"
    plan = einsum_plan(tangent(parse(HEADS[1] + text), "R", "t"))
    operands = {name: arrays[name] for name in "tgf"}
    change = antisymmetric(arrays["x"])
    bound = plan.bind(operands)
    assert bound.rest == ("dt",) and bound.multiply_adds_once > 0
    np.testing.assert_allclose(bound.run(dt=change), plan.run(operands, dt=change), rtol=0, atol=1e-13)


def test_gradients_pass_through_runs_of_a_bound_plan(arrays):
    torch = pytest.importorskip("torch")
    plan = einsum_plan(HEADS[0] + PROGRAMS["targets"])
    bound = plan.bind(f=torch.tensor(arrays["f"]), z=torch.tensor(arrays["z"]))
    x = torch.tensor(arrays["x"], requires_grad=True)
    for _ in range(2):
        x.grad = None
        bound.run(x=x).sum().backward()
        S = arrays["f"] @ arrays["f"] + 1.7 * arrays["f"]
        np.testing.assert_allclose(x.grad[:, 0, 0, 0], S.sum(0), atol=1e-12)


def test_operands_are_bound_once_by_known_names(arrays):
    plan = einsum_plan(HEADS[0] + PROGRAMS["targets"])
    f, z, x = (arrays[name] for name in "fzx")
    with pytest.raises(InputError, match="the plan takes f, x, z; found y, which cannot be bound"):
        plan.bind(f=f, y=f)
    with pytest.raises(InputError, match="f is bound twice, in the mapping and by name"):
        plan.bind({"f": f}, f=f)
    with pytest.raises(InputError, match=r"bound by name, bind\(f=...\), or as one mapping"):
        plan.bind(f)
    with pytest.raises(InputError, match=r"operand f has the shape \(5, 5\) in this plan; found \(4, 4\)"):
        plan.bind(f=f[:4, :4])
    with pytest.raises(InputError, match="operand f has 25 elements that are not finite"):
        plan.bind(f=np.full((5, 5), np.nan))
    bound = plan.bind(f=f, z=z)
    with pytest.raises(InputError, match="f is bound already; a run takes x"):
        bound.run(x=x, f=f)
    with pytest.raises(InputError, match="the plan takes 1 operands: x; x is missing"):
        bound.run()
    with pytest.raises(InputError, match=r"operand x has .* not finite"):
        bound.run(x=np.where(x, np.nan, np.nan))


@pytest.mark.filterwarnings("ignore::trnqc.errors.SlowPlanWarning")
def test_what_is_kept_counts_within_the_memory_limit():
    """Two products of 900 elements are temporaries one after the other, but kept together."""
    text = "space n = 30\nspace m = 40\nindex i j k : n\nindex p : m\n"
    text += "tensor A[n,n]\ntensor B[n,n]\ntensor C[n,m]\nR[i,p] = A[i,j] * B[j,k] * C[k,p]\n"
    text += "S[i,p] = B[i,j] * A[j,k] * C[k,p]"
    rng = np.random.default_rng(1)
    operands = {
        "A": rng.standard_normal((30, 30)),
        "B": rng.standard_normal((30, 30)),
        "C": rng.standard_normal((30, 40)),
    }
    plan = einsum_plan(text, memory_limit=900 * 8)
    assert plan.peak_bytes == 900 * 8 and not any(part.schedule for part in plan.parts)
    two = {"A": operands["A"], "B": operands["B"]}
    with pytest.raises(MemoryLimit, match=r"need 14400 bytes, and 14400 bytes together .* raise it to 14400"):
        plan.bind(two)
    bound = einsum_plan(text, memory_limit=14400).bind(two)
    assert bound.kept_elements == 1800
    for name in "RS":
        np.testing.assert_allclose(bound.run(C=operands["C"])[name], plan.run(operands)[name], rtol=0, atol=1e-13)
    # Fused loops stay as they are.
    tight = einsum_plan(text, memory_limit=2000, max_slowdown=None).bind(two)
    assert tight.kept_elements == 0
    np.testing.assert_allclose(tight.run(C=operands["C"])["R"], plan.run(operands)["R"], rtol=0, atol=1e-12)


def test_functions_of_bound_inputs_are_computed_once():
    plan = einsum_plan("""
space n = 5
index i j k : n
tensor A[n,n]
tensor B[n,n]
tensor x[n,n]
R[i,j] = exp(A[i,k] + B[i,k]) * A[k,j] + x[i,j] * delta(i,j) + tanh(A[i,j] + x[i,j])
""")
    A, B, x = np.random.default_rng(5).normal(size=(3, 5, 5))
    expected = np.exp(A + B) @ A + np.diag(np.diag(x)) + np.tanh(A + x)
    bound = plan.bind(A=A, B=B)
    np.testing.assert_allclose(bound.run(x=x), plan.run(A=A, B=B, x=x), rtol=1e-13, atol=1e-13)
    np.testing.assert_allclose(bound.run(x=x), expected, rtol=1e-13, atol=1e-13)
    assert (bound.multiply_adds_once, bound.multiply_adds) == (175, 125)
