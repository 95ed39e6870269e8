"""The operators on tensors: values, gradients, fakes, vmap, compilation, and kernels on tensors of a device."""

from __future__ import annotations

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="the operators need torch (extra 'torch')")

from trnqc import blas, torch_ops  # noqa: E402
from trnqc.blas import tensors  # noqa: E402
from trnqc.blas.calls import BlasCall  # noqa: E402
from trnqc.errors import InputError, UnsupportedError  # noqa: E402


def random(*shape, grad=False):
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator, dtype=torch.float64).requires_grad_(grad)


# (operation of tensors, the same in plain PyTorch, shapes of the arguments)
CASES = {
    "gemm": (
        lambda a, b, c: blas.gemm(a, b, c=c, alpha=2.0, beta=-1.0),
        lambda a, b, c: 2 * a @ b - c,
        [(3, 4), (4, 5), (3, 5)],
    ),
    "gemm of transposes": (
        lambda a, b: blas.gemm(a, b, trans_a=True, trans_b=True),
        lambda a, b: a.mT @ b.mT,
        [(4, 3), (5, 4)],
    ),
    "batched_gemm": (
        lambda a, b, c: blas.batched_gemm(a, b, c=c, beta=0.5, trans_b=True),
        lambda a, b, c: a @ b.mT + 0.5 * c,
        [(2, 3, 4), (2, 5, 4), (2, 3, 5)],
    ),
    "symm": (
        lambda a, b: blas.symm(a, b, alpha=3.0),
        lambda a, b: 3 * (a.tril() + a.tril(-1).mT) @ b,
        [(4, 4), (4, 2)],
    ),
    "symm on the right": (
        lambda a, b, c: blas.symm(a, b, c=c, beta=1.0, side="right", lower=False),
        lambda a, b, c: b @ (a.triu() + a.triu(1).mT) + c,
        [(4, 4), (2, 4), (2, 4)],
    ),
    "syrk": (
        lambda a, c: blas.syrk(a, c=c, beta=2.0),
        lambda a, c: (a @ a.mT + 2 * c).tril(),
        [(4, 3), (4, 4)],
    ),
    "syrk of a transpose": (
        lambda a: blas.syrk(a, alpha=-1.0, trans=True, lower=False),
        lambda a: (-a.mT @ a).triu(),
        [(3, 4)],
    ),
    "trsm": (
        lambda a, b: blas.trsm(spread(a), b),
        lambda a, b: torch.linalg.solve(spread(a).tril(), b),
        [(4, 4), (4, 2)],
    ),
    "trsm of an upper triangle": (
        lambda a, b: blas.trsm(spread(a), b, lower=False, trans=True, side="right"),
        lambda a, b: torch.linalg.solve(spread(a).triu(), b.mT).mT,
        [(4, 4), (2, 4)],
    ),
    "trsm with a unit diagonal": (
        lambda a, b: blas.trsm(a, b, trans=True, unit_diagonal=True),
        lambda a, b: torch.linalg.solve(a.tril(-1).mT + torch.eye(4), b),
        [(4, 4), (4, 2)],
    ),
    "cholesky": (
        lambda a: blas.cholesky(spread(a)),
        lambda a: torch.linalg.cholesky(spread(a).tril() + spread(a).tril(-1).mT),
        [(4, 4)],
    ),
    "cholesky of an upper triangle": (
        lambda a: blas.cholesky(spread(a), lower=False),
        lambda a: torch.linalg.cholesky(spread(a).triu() + spread(a).triu(1).mT).mT,
        [(4, 4)],
    ),
}


def spread(a):
    """A matrix with a dominant diagonal."""
    return a + 4 * torch.eye(4, dtype=a.dtype)


@pytest.mark.parametrize("case", CASES)
def test_values_and_gradients(case):
    """Both derivatives against differences, and values against PyTorch."""
    mine, plain, shapes = CASES[case]
    args = [random(*shape, grad=True) for shape in shapes]
    torch.testing.assert_close(mine(*args), plain(*args))
    assert torch.autograd.gradcheck(mine, args)
    assert torch.autograd.gradgradcheck(mine, args)


@pytest.mark.parametrize("case", ["gemm", "symm", "syrk"])
def test_registration_is_sound(case):
    """PyTorch's own checks: schema, fakes that agree with results, derivatives, tracing with dynamic shapes."""
    a, c = random(4, 4, grad=True), random(4, 4, grad=True)
    matrices = (a,) if case == "syrk" else (a, random(4, 4, grad=True))
    torch.library.opcheck(tensors.OPERATORS[case], (*matrices, c, 2.0, 0.5, True, False, "cpu", "fp64"))


@pytest.mark.parametrize("case", CASES)
def test_vmap_agrees_with_single_calls(case):
    mine, _, shapes = CASES[case]
    args = [random(*shape[:-2], *shape[-2:], 3) for shape in shapes]
    stacked = torch.func.vmap(mine, in_dims=-1)(*args)
    for i in range(3):
        torch.testing.assert_close(stacked[i], mine(*(x[..., i] for x in args)))


def test_vmap_over_one_operand():
    a, b = random(3, 2, 4), random(4, 5)
    torch.testing.assert_close(torch.func.vmap(lambda x: blas.gemm(x, b))(a), a @ b)


def test_fakes_need_no_data():
    a = torch.empty(3, 4, device="meta")
    assert blas.gemm(a, a, trans_a=True).shape == (4, 4)
    assert blas.syrk(a, precision="fp32").dtype == torch.float32


def test_it_compiles_into_a_graph():
    a, b = random(3, 4), random(4, 5)
    compiled = torch.compile(lambda x, y: blas.gemm(2 * x, y) + 1, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(a, b), 2 * a @ b + 1)


@pytest.mark.parametrize("precision", ["fp32", "bf16x3"])
@pytest.mark.parametrize("name", ["gemm", "symm", "syrk"])
def test_kernels_on_tensors(name, precision):
    """What runs on a device, with the simulator in its place."""
    a, b, c = (random(20, 20) for _ in range(3))
    call = BlasCall(name, (a,) if name == "syrk" else (a, b), (c, 2.0, 0.5), (False, True))
    with torch_ops.host_kernels("simulator"):
        result = tensors.on_device(call, precision)
    options = {"alpha": 2.0, "beta": 0.5, "c": c}
    expected = {
        "gemm": lambda: blas.gemm(a, b, trans_b=True, **options),
        "symm": lambda: blas.symm(a, b, side="right", **options),
        "syrk": lambda: blas.syrk(a, **options),
    }[name]()
    assert result.dtype == torch.float32
    torch.testing.assert_close(result.double(), expected, rtol=0, atol=1e-3 if precision == "bf16x3" else 1e-4)


def test_the_kernel_of_triangular_systems_on_tensors():
    a, b = random(20, 20) + 20 * torch.eye(20), random(20, 3)
    with torch_ops.host_kernels("simulator"):
        result = tensors.on_device(BlasCall("trsm", (a, b), (), (False, False, False, True)), "fp32")
    torch.testing.assert_close(result.double(), torch.linalg.solve(a.triu(), b), rtol=1e-5, atol=1e-6)


def test_the_kernel_of_factorisations_on_tensors():
    x = random(20, 40)
    a = x @ x.mT
    with torch_ops.host_kernels("simulator"):
        result = tensors.on_device(BlasCall("cholesky", (a,), (), (True,)), "fp32")
    torch.testing.assert_close(result.double(), torch.linalg.cholesky(a), rtol=1e-5, atol=1e-5)


def test_the_simulator_computes_tensors():
    a = random(5, 6).float().requires_grad_()
    result = blas.gemm(a, a, trans_b=True, backend="simulator")
    torch.testing.assert_close(result, a @ a.T)
    result.sum().backward()
    assert a.grad.shape == a.shape


def test_arrays_and_tensors_mix():
    a = random(3, 3)
    torch.testing.assert_close(blas.gemm(a, np.eye(3)), a)


def test_lost_derivatives_are_refused():
    with pytest.raises(UnsupportedError, match="no forward-mode derivatives"):
        torch.func.jvp(lambda x: blas.gemm(x, x), (random(2, 2),), (random(2, 2),))
    with pytest.raises(InputError, match="real, strided tensors"):
        blas.gemm(random(2, 2).to_sparse(), random(2, 2))
