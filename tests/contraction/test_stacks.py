"""Products of which one operand is a stack of matrices, because a summed label stands in the middle of its labels."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trnqc.contraction import Semiring, einsum, einsum_plan
from trnqc.contraction.lower import lowering
from trnqc.contraction.run.execute import run_steps


def by_loops(a_t, b):
    """A product of stacks of matrices as users hand it over."""
    return np.array([x.T @ y for x, y in zip(a_t, b)]).reshape(len(a_t), a_t.shape[2], b.shape[2])


@st.composite
def products(draw):
    """Two operands with labels of every group, in any order."""
    groups = {name: draw(st.integers(0, 2)) for name in ("batch", "rows", "columns", "inner")}
    names = iter("abcdefgh")
    of = {name: "".join(next(names) for _ in range(count)) for name, count in groups.items()}
    sides = [of["batch"] + of["rows"] + of["inner"], of["batch"] + of["columns"] + of["inner"]]
    left, right, out = ("".join(draw(st.permutations(x))) for x in (*sides, of["batch"] + of["rows"] + of["columns"]))
    return f"{left},{right}->{out}"


@pytest.mark.parametrize("gemm", [None, by_loops])
@given(subscripts=products(), data=st.data())
@settings(deadline=None, max_examples=120)
def test_stacks_change_nothing(gemm, subscripts, data):
    extents = {label: data.draw(st.integers(1, 4), label) for label in sorted(set(subscripts) - set(",->"))}
    rng = np.random.default_rng(0)
    arrays = [rng.standard_normal([extents[x] for x in one]) for one in subscripts.split("->")[0].split(",")]
    plan = einsum_plan(subscripts, *arrays)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(lowering, "START", 0)
        steps = lowering.lower(plan.parts[0].tree)
    result = run_steps(np, steps, dict(zip((name for name, _ in plan.inputs), arrays)), gemm)
    np.testing.assert_allclose(result, np.einsum(subscripts, *arrays), rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    ("subscripts", "shapes", "stack"),
    [
        ("ijk,jl->ilk", ((40, 50, 60), (50, 30)), ("i",)),
        ("jl,ijk->ilk", ((50, 30), (40, 50, 60)), ("i",)),
        ("abij,cb->acij", ((30, 40, 8, 9), (35, 40)), ("a",)),
        ("hijk,hjl->hilk", ((3, 40, 50, 60), (3, 50, 30)), ("h", "i")),
    ],
)
def test_a_summed_label_in_the_middle_is_not_moved(subscripts, shapes, stack):
    arrays = [np.random.default_rng(1).standard_normal(shape) for shape in shapes]
    (step,) = einsum_plan(subscripts, *arrays).parts[0].steps
    assert step.operation.batch == stack and not step.workspace
    expected = np.einsum(subscripts, *arrays, optimize=True)
    np.testing.assert_allclose(einsum(subscripts, *arrays), expected, rtol=1e-11, atol=1e-11)
    np.testing.assert_allclose(einsum(subscripts, *arrays, gemm=by_loops), expected, rtol=1e-11, atol=1e-11)
    torch = pytest.importorskip("torch")
    tensors = einsum(subscripts, *map(torch.from_numpy, arrays), gemm=lambda a_t, b: a_t.mT @ b)
    np.testing.assert_allclose(tensors.numpy(), expected, rtol=1e-11, atol=1e-11)
    paths = einsum(subscripts, *arrays, semiring="min-plus")
    assert paths.shape == expected.shape
    other = einsum(subscripts, *arrays, semiring=Semiring("min +", np.minimum, np.add, np.inf, 0.0))
    np.testing.assert_array_equal(paths, other)


def test_small_matrices_are_moved_together():
    arrays = [np.ones((400, 5, 6)), np.ones((5, 3))]
    (step,) = einsum_plan("ijk,jl->ilk", *arrays).parts[0].steps
    assert step.operation.batch == () and step.workspace
