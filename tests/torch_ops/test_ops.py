"""The operators on CPU tensors with simulated kernels: registration, values, fakes, derivatives, compilation."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="torch_ops needs torch (extra 'torch')")

from nki_kernels import mp2_plan  # noqa: E402
from nki_kernels.descriptors import kernels  # noqa: E402
from nki_kernels.descriptors.descriptor import random_fill  # noqa: E402
from nki_kernels.precision.splits import split  # noqa: E402
from trnqc import torch_ops  # noqa: E402
from trnqc.errors import BackendUnavailable, InputError, UnsupportedPrecision  # noqa: E402

OPS = torch.ops.trnqc
# Relative to the norm, as for the kernels.
ERROR = {"fp32": 2e-6, "bf16x15": 2e-6, "bf16x6": 2e-6, "bf16x3": 5e-5, "bf16": 2e-2}


@pytest.fixture(autouse=True)
def simulated():
    with torch_ops.host_kernels("simulator"):
        yield


def operands(*shape, dtype=torch.float32, grad=False):
    *batch, K, M, N = shape
    generator = torch.Generator().manual_seed(1)
    return [torch.randn(*batch, K, n, generator=generator, dtype=dtype).requires_grad_(grad) for n in (M, N)]


CASES = [(OPS.gemm, (30, 7, 5)), (OPS.batched_contraction, (3, 30, 7, 5))]


@pytest.mark.parametrize("precision", ERROR)
@pytest.mark.parametrize("op, shape", CASES, ids=["gemm", "batched"])
def test_values(op, shape, precision):
    a_t, b = operands(*shape)
    exact = a_t.double().mT @ b.double()
    result = op(a_t, b, precision)
    assert result.dtype == torch.float32 and result.shape == exact.shape
    assert torch.linalg.norm(result - exact) <= ERROR[precision] * torch.linalg.norm(exact)


@pytest.mark.parametrize("precision", ["bf16x15", "bf16x6", "bf16x3", "bf16"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_tensors_are_split_like_arrays(precision, dtype):
    x = torch.randn(200, generator=torch.Generator().manual_seed(2), dtype=dtype) * 2.0 ** torch.arange(-100, 100)
    parts = torch_ops.ops.split(x, precision)
    expected = split(x.double().numpy(), precision).astype(np.float64)
    assert parts.dtype == torch.bfloat16
    # Numbers of 53 bits are rounded twice, to fp32 first.
    assert np.array_equal(parts.double().numpy(), expected) or dtype == torch.float64
    left, most = abs(parts.double().sum(0) - x).numpy(), abs(expected.sum(0) - x.double().numpy())
    assert np.all(left <= 1.01 * most + 1e-7 * abs(x.numpy()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16, torch.float64])
@pytest.mark.parametrize("op, shape", CASES, ids=["gemm", "batched"])
def test_registration_is_sound(op, shape, dtype):
    """PyTorch's own checks: schema, fakes that agree with results, derivatives, tracing with dynamic shapes."""
    torch.library.opcheck(op.default, (*operands(*shape, dtype=dtype, grad=True), "fp32"))


@pytest.mark.parametrize("op, shape", CASES, ids=["gemm", "batched"])
def test_derivatives_agree_with_matmul(op, shape):
    mine, plain = operands(*shape, grad=True), operands(*shape, grad=True)
    weight = torch.randn(*op(*mine).shape)
    (op(*mine) * weight).sum().backward()
    ((plain[0].mT @ plain[1]) * weight).sum().backward()
    for x, y in zip(mine, plain):
        torch.testing.assert_close(x.grad, y.grad, atol=1e-5, rtol=1e-5)


def test_derivatives_agree_with_differences():
    """Central differences of a bilinear form are exact but for rounding: here of fp32, over a step of one."""
    a_t, b = operands(9, 4, 3, grad=True)
    (d_a,) = torch.autograd.grad(OPS.gemm(a_t, b).sum(), a_t)
    step = torch.zeros_like(a_t)
    step[2, 1] = 1.0
    with torch.no_grad():
        difference = (OPS.gemm(a_t + step, b).sum() - OPS.gemm(a_t - step, b).sum()) / 2
    assert abs(difference - d_a[2, 1]) < 1e-5


def test_a_fixed_operand_gets_no_derivative():
    a_t, b = operands(9, 4, 3)
    b.requires_grad_()
    OPS.gemm(a_t, b).sum().backward()
    assert a_t.grad is None and b.grad is not None


def test_second_derivatives_exist():
    a_t, b = operands(9, 4, 3, grad=True)
    (d_a,) = torch.autograd.grad(OPS.gemm(a_t, b).square().sum(), a_t, create_graph=True)
    (d_b,) = torch.autograd.grad(d_a.sum(), b)
    plain = torch.func.grad(lambda x: torch.func.grad(lambda y: (y.mT @ x).square().sum())(a_t).sum())(b)
    torch.testing.assert_close(d_b, plain, atol=1e-4, rtol=1e-4)


def test_fakes_need_no_data():
    a_t, b = (torch.empty(30, n, device="meta") for n in (7, 5))
    assert OPS.gemm(a_t, b).shape == (7, 5)
    a_t, b = (torch.empty(3, 30, n, device="meta") for n in (7, 5))
    assert OPS.batched_contraction(a_t, b).shape == (3, 7, 5)


def test_it_compiles_into_a_graph():
    a_t, b = operands(30, 7, 5)
    compiled = torch.compile(lambda x, y: OPS.gemm(x * 2, y) + 1, backend="aot_eager", fullgraph=True)
    torch.testing.assert_close(compiled(a_t, b), 2 * a_t.T @ b + 1, atol=1e-5, rtol=1e-5)


@pytest.mark.parametrize("shapes", [((3, 4), (2, 4)), ((0, 4), (0, 4)), ((4,), (4,)), ((2, 3, 4), (2, 3, 4))], ids=str)
def test_wrong_shapes_are_refused(shapes):
    with pytest.raises(InputError, match=r"a_t\[K, M\], b\[K, N\]"):
        OPS.gemm(*(torch.ones(shape) for shape in shapes))


def test_an_unknown_precision_is_refused():
    with pytest.raises(UnsupportedPrecision, match="'fp64'"):
        OPS.gemm(*operands(3, 2, 2), "fp64")


def test_nothing_stands_in_silently():
    with torch_ops.host_kernels("reference"):
        OPS.gemm(*operands(3, 2, 2))
    # A new thread has no decision of its own.
    import threading

    errors = []

    def bare():
        try:
            OPS.gemm(*operands(3, 2, 2))
        except BackendUnavailable as error:
            errors.append(error)

    thread = threading.Thread(target=bare)
    thread.start()
    thread.join()
    assert len(errors) == 1


def pair_arguments(nocc=3, nvir=20, naux=31):
    rng = np.random.default_rng(5)
    B = 0.1 * rng.standard_normal((nocc, nvir, naux))
    eps_occ, eps_vir = -1 - rng.random(nocc), rng.random(nvir)
    tiles = mp2_plan.choose_tiles(nvir, naux, 4)
    pairs = np.stack(np.tril_indices(nocc), axis=1)
    work = mp2_plan.work_list(pairs, eps_occ, tiles)
    arrays = (
        mp2_plan.pack_factors(B, tiles, "fp32"),
        *mp2_plan.pack_virtuals(eps_vir, tiles),
        work.e_pair,
        work.rows,
        work.bounds,
    )
    T = np.einsum("iap,jbp->ijab", B, B)
    D = eps_occ[:, None, None, None] + eps_occ[:, None, None] - eps_vir[:, None] - eps_vir
    e_os = np.einsum("ijab,ijab->", T, T / D)
    e_ss = e_os - np.einsum("ijab,ijba->", T, T / D)
    return (*(torch.from_numpy(x) for x in arrays), nvir, naux, tiles.kchunk), work, len(pairs), e_os, e_ss


@pytest.mark.parametrize("how", ["simulator", "reference"])
def test_pair_energies(how):
    args, work, npair, e_os, e_ss = pair_arguments()
    with torch_ops.host_kernels(how):
        out = OPS.mp2_pair_energy(*args)
    os, ss = mp2_plan.sum_lanes(out.numpy(), work, npair)
    assert os.sum() == pytest.approx(e_os, rel=1e-5) and ss.sum() == pytest.approx(e_ss, rel=1e-4)


def test_pair_energy_registration_is_sound():
    args = pair_arguments()[0]
    # Slots that no item owns hold anything, NaN in the simulator: only shapes are compared.
    torch.library.opcheck(OPS.mp2_pair_energy.default, args, test_utils=("test_schema", "test_faketensor"))


def gamma_launch():
    """A launch of all pairs of three orbitals."""
    fill = random_fill(7)
    known, shape = kernels()["mp2_gamma"], {"nocc": 3, "nvir": 20, "naux": 30}
    return known.gate(shape, "fp32", known.default(shape, "fp32") | {"group": 1}, 1, fill)


@pytest.mark.parametrize("how", ["simulator", "reference"])
def test_gamma(how):
    launch = gamma_launch()
    args = (*(torch.from_numpy(x) for x in launch.args), *launch.constants.values())
    with torch_ops.host_kernels(how):
        gamma = OPS.mp2_gamma(*args)
    assert gamma.dtype == torch.float32
    assert kernels()["mp2_gamma"].error(launch, gamma.numpy()) < 1e-6
    torch.library.opcheck(OPS.mp2_gamma.default, args, test_utils=("test_schema", "test_faketensor"))


NATIVE = """
import torch
seen = []
def wrap_nki(kernel):
    raise AssertionError("CPU tensors do not reach the device call")
def nki_op(name, mutates_args):
    seen.append(name)
    return lambda function: torch.library.custom_op(name, function, mutates_args=mutates_args)
"""
USE = """
import torch, torch_neuronx
from trnqc import torch_ops
kernels = ["trnqc::gemm", "trnqc::batched_contraction", "trnqc::mp2_pair_energy", "trnqc::mp2_gamma"]
assert torch_neuronx.seen == kernels, torch_neuronx.seen
a_t = torch.randn(9, 4, requires_grad=True)
with torch_ops.host_kernels("reference"):
    torch.ops.trnqc.gemm(a_t, torch.ones(9, 3)).sum().backward()
assert torch.allclose(a_t.grad, torch.full((9, 4), 3.0))
"""


def test_the_native_package_registers_where_it_is(tmp_path):
    """A stand-in for torch-neuronx with the registration that the native one has; a process of its own."""
    (tmp_path / "torch_neuronx.py").write_text(NATIVE)
    root = Path(__file__).resolve().parents[2]
    environment = {**os.environ, "PYTHONPATH": f"{tmp_path}{os.pathsep}{root}"}
    done = subprocess.run([sys.executable, "-c", USE], env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
