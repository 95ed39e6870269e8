"""Repeated indices, ellipses and axes of extent one, for operands of every kind, beside NumPy's einsum."""

from __future__ import annotations

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

from trnqc import sparse
from trnqc.errors import ExpressionError, OperandError
from trnqc.sparse.network.views import OperandView, views

# Subscripts, and the shape of each operand.
CASES = {
    "diagonal": ("ii->i", [(5, 5)]),
    "trace": ("ii->", [(5, 5)]),
    "trace, implicit": ("ii", [(5, 5)]),
    "diagonal of three modes": ("iij,jk->ik", [(5, 5, 3), (3, 4)]),
    "outer axes": ("iji,jk->ik", [(5, 3, 5), (3, 4)]),
    "all axes": ("iii,i->i", [(4, 4, 4), (4,)]),
    "two diagonals": ("ijij,jk->ik", [(3, 4, 3, 4), (4, 2)]),
    "two traces": ("iijj->", [(3, 3, 4, 4)]),
    "trace of a factor": ("ii,jk->jk", [(3, 3), (4, 2)]),
    "batch": ("...ij,...jk->...ik", [(2, 3, 4), (2, 4, 5)]),
    "batch of one operand": ("...ij,jk->...ik", [(2, 7, 3, 4), (4, 5)]),
    "batch in front of less": ("...ij,...jk", [(2, 7, 3, 4), (7, 4, 5)]),
    "batch last": ("ij...,jk->ik...", [(3, 4, 2), (4, 5)]),
    "empty batch": ("...ij,...jk->...ik", [(3, 4), (4, 5)]),
    "batch of one": ("...ij,...jk->...ik", [(1, 3, 4), (6, 4, 5)]),
    "axis of one": ("ij,jk->ik", [(3, 1), (4, 5)]),
    "axis of one, summed to a number": ("a,a->", [(1,), (5,)]),
    "batch of diagonals": ("...ii->...i", [(2, 3, 4, 4)]),
    "nothing": ("ii->i", [(0, 0)]),
    "one": ("ii,ij->j", [(1, 1), (1, 3)]),
}


def arrays(shapes, seed=3):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape) * (rng.random(shape) < 0.6) for shape in shapes]


def tensor_of(x):
    return sparse.from_dense(x, kinds=["compressed"] * x.ndim)


def torch_of(x):
    return pytest.importorskip("torch").from_numpy(x)


KINDS = {
    "array": lambda x: x,
    "tensor": tensor_of,
    "dense levels, columns first": lambda x: sparse.from_dense(x, tuple(reversed(range(x.ndim)))),
    "scipy": lambda x: scipy.sparse.coo_array(x),
    "torch": torch_of,
    "torch coo": lambda x: torch_of(x).to_sparse_coo(),
}


def dense(x):
    if isinstance(x, np.ndarray):
        return x
    if scipy.sparse.issparse(x):
        return x.toarray()
    made = x.to_dense()
    return made if isinstance(made, np.ndarray) else made.numpy()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("case", CASES)
def test_beside_numpy(case, kind):
    subscripts, shapes = CASES[case]
    first, second = arrays(shapes), arrays(shapes, seed=4)
    chosen = sparse.plan(subscripts, *map(KINDS[kind], first), out="dense")
    for operands, result in ((first, chosen.run()), (second, chosen.run(*map(KINDS[kind], second)))):
        expected = np.einsum(subscripts, *operands)
        assert tuple(result.shape) == np.shape(expected)
        np.testing.assert_allclose(dense(result), expected, rtol=1e-13, atol=1e-13)
    stored = sparse.contract(subscripts, *map(KINDS[kind], first), out="sparse")
    np.testing.assert_allclose(dense(stored), np.einsum(subscripts, *first), rtol=1e-13, atol=1e-13)


@pytest.mark.parametrize("form", ["fused", "dense", "nary", "unfused", "unfused-rows"])
def test_every_form_reads_diagonals(form):
    operands = arrays([(5, 5, 3), (3, 4)])
    result = sparse.contract("iij,jk->ik", tensor_of(operands[0]), operands[1], form=form, out="dense")
    np.testing.assert_allclose(result, np.einsum("iij,jk->ik", *operands), rtol=1e-13)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_any_repeated_indices(data):
    extents = data.draw(st.lists(st.integers(1, 4), min_size=3, max_size=3))
    inputs = [data.draw(st.lists(st.sampled_from("abc"), min_size=1, max_size=4)) for _ in range(2)]
    output = data.draw(st.permutations(sorted({*inputs[0], *inputs[1]})))
    kept = "".join(output[: data.draw(st.integers(0, len(output)))])
    text = ",".join(map("".join, inputs)) + f"->{kept}"
    operands = arrays([[extents["abc".index(x)] for x in labels] for labels in inputs])
    result = sparse.contract(text, tensor_of(operands[0]), operands[1], form="nary", out="dense")
    np.testing.assert_allclose(result, np.einsum(text, *operands), rtol=1e-12, atol=1e-12)


def test_one_tensor_in_several_views():
    (x,) = arrays([(5, 5)])
    tensor = tensor_of(x)
    for text in ("ii,ij->j", "ii,jj->ij", "ij,ij,jj->i"):
        count = text.count(",") + 1
        result = sparse.plan(text, *[tensor] * count, out="dense").run()
        np.testing.assert_allclose(result, np.einsum(text, *[x] * count), rtol=1e-13)


def test_maps_and_element_types_stay():
    x = np.arange(25).reshape(5, 5) % 3 == 0
    assert sparse.plan("ii->i", x).operands.tensors[0].ones
    np.testing.assert_array_equal(dense(sparse.contract("ii->i", x)), np.diagonal(x))
    single = tensor_of(np.eye(3, dtype=np.float32))
    assert sparse.contract("ii->", single).dtype == np.float32


@pytest.mark.filterwarnings("ignore:Sparse CS. tensor support is in beta")
@pytest.mark.parametrize("layout", ["to_dense", "to_sparse_coo", "to_sparse_csr", "to_sparse_csc"])
def test_derivatives_of_diagonals(layout):
    torch = pytest.importorskip("torch")
    x, y = (torch.from_numpy(a) for a in arrays([(5, 5), (5, 4)]))
    held = getattr(x, layout)() if layout != "to_dense" else x.clone()
    held.requires_grad_()
    factor = y.clone().requires_grad_()
    chosen = sparse.plan("ii,ij->j", held, factor, out="dense")
    full, other = x.clone().requires_grad_(), y.clone().requires_grad_()
    expected = torch.autograd.grad(torch.einsum("ii,ij->j", full, other).square().sum(), (full, other))
    for _ in range(2):
        by_held, by_factor = torch.autograd.grad(chosen.run().square().sum(), (held, factor))
        torch.testing.assert_close(by_held.to_dense(), expected[0] * ((x != 0) | (layout == "to_dense")))
        torch.testing.assert_close(by_factor, expected[1])
        assert by_held.layout is held.layout


def test_transforms_of_torch_pass_through_diagonals():
    torch = pytest.importorskip("torch")
    x = torch.from_numpy(arrays([(3, 4, 4)])[0])
    traces = torch.func.vmap(lambda one: sparse.contract("ii->", one, out="dense"))(x)
    torch.testing.assert_close(traces, torch.einsum("bii->b", x))
    gradient = torch.func.grad(lambda one: sparse.contract("ii,jj->", one, one, out="dense"))(x[0])
    torch.testing.assert_close(gradient, 2 * torch.trace(x[0]) * torch.eye(4, dtype=x.dtype))
    _, tangent = torch.func.jvp(lambda one: sparse.contract("ii->i", one, out="dense"), (x[0],), (x[1],))
    torch.testing.assert_close(tangent, torch.diagonal(x[1]))


def test_views_name_every_axis():
    assert views("i...,j", ((3, 2, 4), (5,)))[0] == "iab,j->abij"
    assert views("iij,j->ij", ((3, 3, 2), (1,))) == (
        "ij,->ij",
        (OperandView((3, 3, 2), (0, 0, 1)), OperandView((1,), (None,))),
    )
    assert OperandView((2, 2), (0, 1)).is_plain and not OperandView((2, 2), (0, 0)).is_plain


@pytest.mark.parametrize(
    ("subscripts", "shapes", "message"),
    [
        ("ii->i", [(3, 4)], "index i has extent 3 in operand 0, and 4 on another axis"),
        ("...ij,jk->ik", [(2, 3, 4), (4, 5)], "the operands have an ellipsis; the result needs one too"),
        ("...i,...i->...", [(2, 3), (4, 3)], "extent 4 in operand 1, and 2 in operand 0"),
        ("...i...->i", [(2, 3)], "an operand has one ellipsis"),
        ("iij->ij", [(3, 3)], "the subscripts name 3 axes; operand 0 has 2"),
    ],
)
def test_refused(subscripts, shapes, message):
    with pytest.raises(ExpressionError, match=message):
        sparse.contract(subscripts, *map(np.ones, shapes))


def test_other_shapes_are_refused_by_number():
    chosen = sparse.plan("ij,jjk->ik", np.ones((2, 3)), np.ones((3, 3, 4)))
    with pytest.raises(OperandError, match=r"operand 1 must have the shape \(3, 3, 4\); found \(3, 4, 4\)"):
        chosen.run(np.ones((2, 3)), np.ones((3, 4, 4)))
    with pytest.raises(OperandError, match="takes 2 operands; found 1"):
        chosen.run(np.ones((2, 3)))
