"""Kernels of nests for GPUs, whose CUDA text runs thread by thread on the CPU, against dense sums."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as some

from tests.sparse.nests import arrays, nests, packed
from tests.sparse.oracle import reference
from trnqc import jit
from trnqc.errors import MemoryLimit, OperandError, ProgramError
from trnqc.gen import emit_cuda
from trnqc.jit.emulator import ORDERS
from trnqc.jit.simulated_device import SimulatedDevice
from trnqc.sparse import SparseTensor, from_coo, plan
from trnqc.sparse.lower.concurrent import concurrent_program
from trnqc.sparse.network.nest import Format, Workspace
from trnqc.sparse.network.network import network
from trnqc.sparse.run.device import LANES, DeviceNest, DevicePlan
from trnqc.sparse.search.named_nests import fused


def tensor(shape: tuple[int, ...], count: int, seed: int = 0) -> SparseTensor:
    draw = np.random.default_rng(seed)
    places = draw.permutation(int(np.prod(shape)))[:count]
    return from_coo(shape, np.array(np.unravel_index(places, shape)), draw.standard_normal(count))


def mttkrp(mode: int = 1, rank: int = 37):
    """The plan, its operands, and what they give; 37 is no multiple of the lanes."""
    x, draw = tensor((13, 11, 17), 300), np.random.default_rng(1)
    letters = "ijk"
    left, right = (n for n in range(3) if n != mode)
    factors = [draw.standard_normal((x.shape[n], rank)) for n in (left, right)]
    words = f"ijk,{letters[left]}r,{letters[right]}r->{letters[mode]}r"
    found = plan(words, x, *factors, form="fused", out="dense")
    return found, (x, *factors), np.einsum(words, x.to_dense(), *factors)


def cuda_text(mode: int) -> str:
    nest = mttkrp(mode)[0].steps[0].nest
    return emit_cuda(*(piece.kernel for piece in concurrent_program(nest, LANES).pieces), lanes=LANES)


@settings(deadline=None, max_examples=60)  # Each example is compiled.
@given(
    nest=nests(),
    seed=some.integers(0, 9),
    fill=some.sampled_from((0.0, 0.3, 1.0)),
    order=some.sampled_from(list(ORDERS)),
)
def test_any_nest(nest, seed, fill, order):
    """Every nest is computed without races, or refused for what kernels for GPUs lack."""
    device = SimulatedDevice(order=order)
    spaces = [w.space for w in nest.workspaces]
    try:
        kernels = DeviceNest(nest, device)
    except ProgramError as error:
        assert "kernels for GPUs have no workspace in a hash table" in str(error) and "hashed" in spaces
        return
    inputs = arrays(nest, seed, fill)
    result, expected = kernels(packed(nest, inputs)), reference(nest.network, inputs)
    result = result.to_dense() if isinstance(result, SparseTensor) else result
    assert result.shape == expected.shape and np.allclose(result, expected, rtol=1e-12, atol=1e-12)
    kernels.release()
    assert device.used == 0


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("mode", range(3))
def test_mttkrp(mode, order):
    found, operands, expected = mttkrp(mode)
    on = DevicePlan(found, SimulatedDevice(order=order))
    for _ in range(2):
        assert np.allclose(on.run(*operands), expected, rtol=1e-12, atol=1e-12)


def test_blocks_add_to_the_result_by_atomic_operations():
    """The emulator runs one block after the other, so that it could not see that one overwrites what another adds."""
    for mode in range(3):
        text = cuda_text(mode)
        assert re.search(r"atomicAdd\(&out\[", text) and not re.search(r"\bout\[[^;]*\] \+?= ", text)


@pytest.mark.skipif(not shutil.which("nvcc"), reason="needs the CUDA compiler")
@pytest.mark.parametrize("arch", ["sm_80", "sm_90"])
def test_the_cuda_compiler_accepts_the_text(arch):
    text = cuda_text(1)
    (report,) = jit.compile_cuda(text, name="sparse", arch=arch).kernels
    assert report.spill_stores == 0


def test_a_sparse_tensor_is_copied_once():
    found, (x, *factors), expected = mttkrp()
    device = SimulatedDevice()
    on = DevicePlan(found, device)
    on.run(x, *factors)
    held, before = device.used, device.staging.counts.uploaded_bytes
    assert np.allclose(on.run(x, 2 * factors[0], factors[1]), 2 * expected)
    assert device.used == held and device.staging.counts.uploaded_bytes - before == sum(f.nbytes for f in factors)
    on.release()
    assert device.used == 0


@pytest.mark.parametrize("space", ["dense", "listed"])
def test_a_workspace_serves_many_turns_of_a_block(space):
    net = network("Kmn,mi,nu->Kiu", [(40, 7, 70), (7, 6), (70, 33)])
    nest = fused(net, ((0, 1), 2), ["Kimn", "Kinu"])
    result = Format(nest.formats[-1].order, ("dense",) * 3)
    workspaces = tuple(Workspace(w.order, space) for w in nest.workspaces)
    nest = replace(nest, workspaces=workspaces, formats=(*nest.formats[:-1], result))
    inputs = arrays(nest, 3, 0.3)
    found = DeviceNest(nest, SimulatedDevice())(packed(nest, inputs))
    assert np.allclose(found, reference(net, inputs), rtol=1e-12, atol=1e-12)


def test_results_have_the_type_of_the_operands():
    a = scipy.sparse.random(20, 30, 0.2, random_state=1, dtype=np.float32).tocsr()
    b = np.ones((30, 5), np.float32)
    result = DevicePlan(plan("ij,jk->ik", a, b, form="fused", out="dense"), SimulatedDevice()).run()
    assert result.dtype == np.float32 and np.allclose(result, a @ b, rtol=1e-6)


def test_what_it_refuses():
    found, operands, _ = mttkrp()
    on = DevicePlan(found, SimulatedDevice())
    with pytest.raises(OperandError, match="takes 3 operands; found 1"):
        on.run(operands[0])
    with pytest.raises(OperandError, match="operand 1 is a complex operand"):
        on.run(operands[0], operands[1] + 1j, operands[2])
    with pytest.raises(OperandError, match="shape"):
        on.run(operands[0], operands[1][:5], operands[2])
    a, b = np.ones((9, 8)), np.ones((8, 7))
    with pytest.raises(ProgramError, match="form='fused'"):
        DevicePlan(plan("ij,jk->ik", a, b, form="dense"), SimulatedDevice())
    with pytest.raises(MemoryLimit):
        DevicePlan(found, SimulatedDevice(memory=1000)).run()


def test_after_an_error_nothing_is_held():
    found, operands, expected = mttkrp()
    device = SimulatedDevice(memory=40_000)
    on = DevicePlan(found, device)
    fits = np.allclose(on.run(*operands), expected)
    assert fits
    on.release()
    small = SimulatedDevice(memory=device.most_used - 1)
    again = DevicePlan(found, small)
    with pytest.raises(MemoryLimit):
        again.run(*operands)
    again.release()
    assert small.used == 0
