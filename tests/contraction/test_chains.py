"""Steps in turns: the same results as whole steps, no whole intermediate, and only where turns pay."""

from __future__ import annotations

import tracemalloc

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.contraction.workloads import four_index
from trnqc.contraction import einsum, einsum_plan
from trnqc.contraction.lower import chains as module
from trnqc.contraction.lower.chains import chains
from trnqc.contraction.lower.lowering import lower
from trnqc.contraction.products.slices import LEAST_SCRATCH
from trnqc.contraction.run import chain
from trnqc.contraction.run.execute import run_steps

TRANSFORMATION = "pqrs,pi,qa,rj,sb->iajb"
REAL = ["pqrs = qprs = pqsr", "pqrs = rspq"]


def let_everything_pay(patched):
    """Steps of any size run in turns."""
    for name, value in (("LARGE", 0), ("SMALL", 2**40), ("WORK", 0), ("SIDE_BY_SIDE", 0)):
        patched.setattr(module, name, value)


@pytest.fixture
def everything_pays(monkeypatch):
    let_everything_pay(monkeypatch)


@st.composite
def networks(draw):
    """A tensor times matrices or tensors on some of its axes, some of which share a further label that is kept."""
    rank = draw(st.integers(2, 4))
    labels, out, others = "pqrs"[:rank], "", []
    batch = draw(st.booleans())
    for label, new in zip(labels, "ijkl"):
        kind = draw(st.sampled_from(("matrix", "vector", "none")))
        if kind != "none":
            others.append(label + (new if kind == "matrix" else "") + ("x" if batch and draw(st.booleans()) else ""))
        out += {"matrix": new, "vector": "", "none": label}[kind]
    tensor = labels + ("x" if batch else "")
    out = "".join(draw(st.permutations(out + ("x" if batch else ""))))
    return ",".join((tensor, *others)) + "->" + out


@given(networks(), st.data())
@settings(deadline=None, max_examples=150)
def test_turns_change_nothing(subscripts, data):
    extents = {label: data.draw(st.integers(1, 4), label) for label in sorted(set(subscripts) - set(",->"))}
    rng = np.random.default_rng(0)
    labels = subscripts.split("->")[0].split(",")
    kind = data.draw(st.sampled_from((np.float64, np.complex128, np.float32, np.int64)))
    arrays = [(3 * rng.standard_normal([extents[x] for x in one])).astype(kind) for one in labels]
    arrays = [np.asfortranarray(x) if data.draw(st.booleans()) else x for x in arrays]
    plan = einsum_plan(subscripts, *arrays)
    (part,) = plan.parts
    values = dict(zip((name for name, _ in plan.inputs), arrays))
    with pytest.MonkeyPatch.context() as patched:
        let_everything_pay(patched)
        found = chains(part.tree, part.steps)
    whole = run_steps(np, part.steps, values)
    with pytest.MonkeyPatch.context() as patched:
        # Copies that do not fit divide products, down to single elements.
        patched.setattr(chain, "SCRATCH", data.draw(st.sampled_from((LEAST_SCRATCH, chain.SCRATCH)), "scratch"))
        result = run_steps(np, part.steps, values, chains=found)
    assert result.dtype == whole.dtype and result.shape == whole.shape
    eps = 1e-4 if kind == np.float32 else 1e-11
    np.testing.assert_allclose(result, whole, rtol=eps, atol=eps)
    assert not {each.names[0] for each in found} & {each.names[1] for each in found}


def test_a_transformation_has_two_chains(everything_pays):
    tree = four_index(7)
    steps = lower(tree)
    assert [each.names for each in chains(tree, steps)] == [("T1", "T2"), ("T3", "B")]
    rng = np.random.default_rng(1)
    values = {leaf.name: rng.standard_normal([tree.extent(x) for x in leaf.indices]) for leaf in tree.leaves}
    result = run_steps(np, steps, values, chains=chains(tree, steps))
    np.testing.assert_allclose(result, run_steps(np, steps, values), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("name", "value"), [("LARGE", 2**40), ("SMALL", 1), ("WORK", 2**40), ("SIDE_BY_SIDE", 2**40)])
def test_turns_have_to_pay(everything_pays, monkeypatch, name, value):
    tree = four_index(7)
    assert chains(tree, lower(tree))
    monkeypatch.setattr(module, name, value)
    assert not chains(tree, lower(tree))


@pytest.mark.parametrize("symmetries", [None, {0: REAL}])
def test_large_transformations_run_in_turns(symmetries):
    rng, n, o = np.random.default_rng(3), 46, 46
    integrals = rng.standard_normal((n,) * 4)
    for exchanged in ("qprs", "pqsr", "rspq"):
        integrals = integrals + np.einsum(f"pqrs->{exchanged}", integrals)
    operands = np.ascontiguousarray(integrals), *(rng.standard_normal((n, o)) for _ in range(4))
    plan = einsum_plan(TRANSFORMATION, *operands, symmetries=symmetries)
    (part,) = plan.parts
    assert len(part.chains) == 2
    assert all(str(each) in str(plan) for each in part.chains)
    expected = einsum(TRANSFORMATION, *operands, memory_limit=4 * 8 * n**4)
    np.testing.assert_allclose(plan.run(*operands), expected, rtol=1e-9, atol=1e-9 * abs(expected).max())
    tracemalloc.start()
    plan.run(*operands)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    # The second intermediate and the result are there as a whole, and no other one.
    assert peak < 2.5 * 8 * n**4


@pytest.mark.parametrize("sign", [1, -1])
def test_pairs_of_both_signs(sign):
    rng, n, o = np.random.default_rng(6), 46, 46
    A = rng.standard_normal((n,) * 4)
    A += sign * A.transpose(1, 0, 2, 3)
    operands = A, *(rng.standard_normal((n, o)) for _ in range(2))
    symmetry = "rsqp = srqp" if sign > 0 else "rsqp = -srqp"
    plan = einsum_plan("rsqp,pi,qa->rsia", *operands, symmetries={0: [symmetry]})
    (found,) = plan.parts[0].chains
    assert found.pair is not None and found.pair.sign == sign
    expected = np.einsum("rsqp,pi,qa->rsia", *operands, optimize=True)
    np.testing.assert_allclose(plan.run(*operands), expected, rtol=1e-10, atol=1e-10 * abs(expected).max())


def test_elements_that_are_not_finite_pass_through_turns():
    rng, n = np.random.default_rng(4), 34
    operands = [rng.standard_normal((n,) * 4), *(rng.standard_normal((n, n)) for _ in range(4))]
    assert einsum_plan(TRANSFORMATION, *operands).parts[0].chains
    operands[0][3, 4, 5, 6] = np.nan
    assert np.isnan(einsum(TRANSFORMATION, *operands, check_finite=False)).all()


def test_tensors_with_gradients_take_whole_steps():
    torch = pytest.importorskip("torch")
    rng, n = np.random.default_rng(5), 34
    arrays = [rng.standard_normal((n,) * 4), *(rng.standard_normal((n, n)) for _ in range(4))]
    tensors = [torch.tensor(x, requires_grad=k == 1) for k, x in enumerate(arrays)]
    result = einsum(TRANSFORMATION, *tensors)
    np.testing.assert_allclose(result.detach().numpy(), einsum(TRANSFORMATION, *arrays), rtol=1e-9, atol=1e-7)
    result.sum().backward()
    plain = [torch.tensor(x, requires_grad=k == 1) for k, x in enumerate(arrays)]
    torch.einsum(TRANSFORMATION, *plain).sum().backward()
    torch.testing.assert_close(tensors[1].grad, plain[1].grad, rtol=1e-9, atol=1e-6)
