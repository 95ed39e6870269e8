"""Tensors in half precision: results are those of float32 for the rounded operands, rounded once."""

from __future__ import annotations

import pytest

torch = pytest.importorskip("torch")

from scripts.workloads.tensor_products import awkward  # noqa: E402
from tests.cg.test_operators import COLS, KINDS, ROWS, family, operands, tail  # noqa: E402
from trnqc.cg import SymmetricContraction, TensorProduct, TensorProductConv  # noqa: E402
from trnqc.errors import OperandError, UnsupportedPrecision  # noqa: E402

HALVES = pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16], ids=["bfloat16", "float16"])
EDGES = torch.tensor(ROWS), torch.tensor(COLS)


@HALVES
@KINDS
@pytest.mark.parametrize("label", ["uvu-5", "mixed", "uvw-shared"])
def test_results_are_rounded_once(label, convolution, dtype):
    problem = awkward(label)
    inputs = [t.to(dtype) for t in operands(problem, convolution, dtype="float32")]
    for direction, count in (("forward", 3), ("backward", 4), ("double_backward", 7)):
        operator, rest = family(convolution)[direction], tail(problem, convolution)
        ours, exact = operator(*inputs[:count], *rest), operator(*(t.float() for t in inputs[:count]), *rest)
        for half, single in zip(*(r if isinstance(r, tuple) else (r,) for r in (ours, exact)), strict=True):
            assert half.dtype == dtype and torch.equal(half, single.to(dtype))


@pytest.mark.parametrize("label", ["uvu-1", "uvw-shared"])
def test_large_batches_are_computed_in_blocks(label, monkeypatch):
    """Blocks are full, partial and none; gradients of shared weights are sums over them."""
    monkeypatch.setattr("trnqc.cg.torch.storage.ROWS", 3)
    problem = awkward(label)
    for batch in (0, 3, 7):
        inputs = [t.bfloat16() for t in operands(problem, batch=batch, dtype="float32")[:4]]
        ours = family(False)["backward"](*inputs, *tail(problem, False))
        exact = family(False)["backward"](*(t.float() for t in inputs), *tail(problem, False))
        for half, single in zip(ours, exact, strict=True):
            torch.testing.assert_close(half, single.bfloat16(), rtol=2**-7, atol=1e-5)


@HALVES
@KINDS
def test_derivatives_of_both_orders(convolution, dtype):
    """Forces and their gradient: each is that of float32 but for the rounding of what is passed between operators."""
    problem = awkward("uvu-1")
    module = TensorProductConv(problem) if convolution else TensorProduct(problem)
    rounded = [t.to(dtype) for t in operands(problem, convolution, dtype="float32")[:3]]

    def derivatives(leaves):
        x, y, w = (t.clone().requires_grad_() for t in leaves)
        z = module(x, y, w, *(EDGES if convolution else ()))
        (slope,) = torch.autograd.grad(z.square().sum(), y, create_graph=True)
        return z, slope, *torch.autograd.grad(slope.square().sum(), (x, y, w))

    for half, single in zip(derivatives(rounded), derivatives([t.float() for t in rounded]), strict=True):
        assert half.dtype == dtype
        # Three roundings to 8 or 11 bits follow one another, the last of sums of some terms.
        assert (half - single).abs().max() < 8 * torch.finfo(dtype).eps * single.abs().max()


@HALVES
def test_autograd_keeps_tensors_in_half_precision(dtype):
    problem = awkward("uvu-1")
    x, y, w = (t.to(dtype).requires_grad_() for t in operands(problem, True, dtype="float32")[:3])
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        TensorProductConv(problem)(x, y, w, *EDGES)
    assert [t.dtype for t in kept if t.is_floating_point()] == [dtype] * 3


@HALVES
def test_modules_can_be_converted(dtype):
    """Internal weights are rounded, and one module computes in any type."""
    module = TensorProduct(awkward("uvw-shared", internal_weights=True))
    x, y = (t.to(dtype) for t in operands(module.problem, dtype="float32")[:2])
    z = module.to(dtype)(x, y)
    assert module.weight.dtype == dtype and torch.equal(z, module.float()(x.float(), y.float()).to(dtype))


@HALVES
@pytest.mark.parametrize("weights", ["half", "single"])
def test_contractions(weights, dtype):
    torch.manual_seed(5)
    module, elements = (
        SymmetricContraction("3x0e+3x1o+3x2e", "3x0e+3x1o", 3, num_elements=2),
        torch.tensor([0, 1, 1, 0]),
    )
    module = module.to(dtype if weights == "half" else torch.float32)
    x = torch.randn(4, 3, 9).to(dtype)

    def derivatives(module, x):
        x = x.clone().requires_grad_()
        b = module(x, elements)
        (slope,) = torch.autograd.grad(b.square().sum(), x, create_graph=True)
        (of_weight,) = torch.autograd.grad(slope.square().sum(), module.weight)
        return b, slope, of_weight

    ours = derivatives(module, x)
    assert ours[0].dtype == ours[1].dtype == dtype and ours[2].dtype == module.weight.dtype
    exact = derivatives(module.float(), x.float())
    assert torch.equal(ours[0], exact[0].to(dtype))
    for half, single in zip(ours[1:], exact[1:]):
        assert (half - single).abs().max() < 8 * torch.finfo(dtype).eps * single.abs().max()


def test_a_compiled_module_gives_the_same():
    module = TensorProductConv(awkward("uvu-1"))
    inputs = [t.bfloat16() for t in operands(module.problem, True, dtype="float32")[:3]]
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    assert torch.equal(compiled(*inputs, *EDGES), module(*inputs, *EDGES))


def test_large_numbers_overflow_as_in_pytorch():
    x, y, w = (t.half() for t in operands(awkward("uvu-1"), dtype="float32")[:3])
    z = TensorProduct(awkward("uvu-1"))(1000 * x, 1000 * y, w)
    assert torch.isinf(z).any() and not torch.isnan(z).any()


def test_types_are_not_mixed():
    x, y, w = (t.half() for t in operands(awkward("uvu-1"), dtype="float32")[:3])
    module = TensorProduct(awkward("uvu-1"))
    with pytest.raises(OperandError, match=r"w: expected torch\.float16, as x has, found torch\.bfloat16"):
        module(x, y, w.bfloat16())
    with pytest.raises(UnsupportedPrecision, match=r"torch\.float16 or torch\.bfloat16, found torch\.int64"):
        module(x.long(), y, w)
    with pytest.raises(OperandError, match=r"expected torch\.float64, which the problem was made for"):
        TensorProduct(awkward("uvu-1", dtype="float64"))(x, y, w)
