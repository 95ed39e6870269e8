"""The products under torch.func and forward-mode derivatives against matmul, and what the operators refuse."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch_ops needs torch (extra 'torch')")

from torch.autograd import forward_ad  # noqa: E402

from tests.torch_ops.test_ops import pair_arguments  # noqa: E402
from trnqc import torch_ops  # noqa: E402
from trnqc.errors import InputError, UnsupportedError  # noqa: E402

OPS = torch.ops.trnqc
CLOSE = {"rtol": 1e-5, "atol": 1e-5}  # fp32 products of a few terms of order one


@pytest.fixture(autouse=True)
def references():
    with torch_ops.host_kernels("reference"):
        yield


PRODUCTS = {"gemm": (torch_ops.gemm, (6, 3, 4)), "batched": (torch_ops.batched_contraction, (2, 6, 3, 4))}


def operands(*shape):
    *batch, K, M, N = shape
    generator = torch.Generator().manual_seed(2)
    return [torch.randn(*batch, K, n, generator=generator) for n in (M, N)]


def plain(a_t, b):
    return a_t.mT @ b


def stack(x):
    return torch.stack([x, -x, x.sin()])


def along(f, v):
    return lambda *x: torch.func.jvp(f, x, v)[1]


TRANSFORMS = {
    "jvp": lambda f, a, b: along(f, (a.sin(), b.cos()))(a, b),
    "jvp of one": lambda f, a, b: along(lambda a: f(a, b), (a.sin(),))(a),
    "jvp twice": lambda f, a, b: along(along(f, (a.cos(), b.sin())), (a.sin(), b.cos()))(a, b),
    "jacfwd": lambda f, a, b: torch.func.jacfwd(f)(a, b),
    "jacrev": lambda f, a, b: torch.func.jacrev(f)(a, b),
    "grad": lambda f, a, b: torch.func.grad(lambda a: f(a, b).sin().sum())(a),
    "hessian": lambda f, a, b: torch.func.hessian(lambda a: f(a, b).sin().sum())(a),
    "vmap": lambda f, a, b: torch.func.vmap(f, (0, 1))(stack(a), stack(b).movedim(0, 1)),
    "vmap of one": lambda f, a, b: torch.func.vmap(f, (None, 0))(a, stack(b)),
    "vmap of grad": lambda f, a, b: torch.func.vmap(torch.func.grad(lambda a: f(a, b).sin().sum()))(stack(a)),
}


@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("name", PRODUCTS)
def test_transforms(name, transform):
    product, shape = PRODUCTS[name]
    a, b = operands(*shape)
    result = TRANSFORMS[transform](product, a, b)
    torch.testing.assert_close(result, TRANSFORMS[transform](plain, a, b), **CLOSE)
    assert result.any()


@pytest.mark.parametrize("name", PRODUCTS)
def test_dual_numbers(name):
    product, shape = PRODUCTS[name]
    a, b = operands(*shape)
    with forward_ad.dual_level():
        result = forward_ad.unpack_dual(product(forward_ad.make_dual(a, a.sin()), b))
    torch.testing.assert_close(result.tangent, plain(a.sin(), b), **CLOSE)


def test_operators_never_drop_a_tangent():
    a, b = operands(6, 3, 4)
    with pytest.raises(UnsupportedError, match=r"trnqc::gemm has no forward-mode .* call trnqc\.torch_ops\.gemm"):
        torch.func.jvp(OPS.gemm, (a, b), (a, b))
    compiled = torch.compile(torch_ops.gemm, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(a, b), plain(a, b), **CLOSE)
    with forward_ad.dual_level():
        with pytest.raises(UnsupportedError, match="would drop tangents"):
            OPS.batched_contraction(forward_ad.make_dual(a, a)[None], b[None])
        with pytest.raises(UnsupportedError, match="outside of forward-mode differentiation"):
            OPS.mp2_pair_energy(*pair_arguments()[0])


def test_pair_energies_have_no_gradient():
    bt, *rest = pair_arguments()[0]
    result = OPS.mp2_pair_energy(bt.requires_grad_(), *rest)
    with pytest.raises(RuntimeError, match="no autograd formula was registered"):
        result.nansum().backward()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda x: x + 1j, "real, strided tensors; found torch.complex64"),
        (lambda x: x.to_sparse(), "found torch.float32 of layout torch.sparse_coo"),
    ],
)
@pytest.mark.parametrize("call", [torch_ops.gemm, OPS.gemm])
def test_what_the_kernels_would_drop(call, make, message):
    with pytest.raises(InputError, match=message):
        call(*map(make, operands(6, 3, 4)))


def test_arrays_are_no_tensors():
    with pytest.raises(InputError, match=r"take tensors of PyTorch; found ndarray: torch\.as_tensor makes one"):
        torch_ops.gemm(np.ones((3, 2)), np.ones((3, 2)))


def test_meta_tensors_have_shapes():
    a_t, b = (torch.empty(30, n, device="meta") for n in (7, 5))
    assert torch_ops.gemm(a_t, b).shape == (7, 5)
