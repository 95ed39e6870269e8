"""gemm and batched_contraction on the simulator: values against references, instruction counts against arithmetic."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nki_kernels import gemm_blocks
from nki_kernels.batched_contraction import batched_contraction, reference_batched_contraction
from nki_kernels.gemm import gemm, reference_gemm
from nki_kernels.precision.splits import split
from trnqc import sim

BF16 = ml_dtypes.bfloat16
# (M, N, K): one; primes; one over a tile, a run, a row block; several of each.
EDGES = [
    *[(1, 1, 1), (7, 13, 5), (127, 509, 131), (129, 513, 129)],
    *[(128, 512, 128), (257, 3, 300), (1025, 40, 20), (2, 2050, 3)],
]


def operand(seed: int, shape, precision: str):
    """Parts of a random operand of elements around one, and its unrounded value."""
    x = np.random.default_rng(seed).standard_normal(shape)
    return split(x, precision), x


def close(result, expected, K: int):
    """fp32 accumulation of K products of order one, in an order of the machine's choosing."""
    np.testing.assert_allclose(result, expected, rtol=0, atol=2e-6 * K**0.5 + 1e-6)


def ceil(a: int, b: int) -> int:
    return -(-a // b)


@pytest.fixture(params=["trn1", "trn2"])
def target(request, monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", request.param)
    return request.param


@pytest.mark.parametrize("precision", ["fp32", "bf16", "bf16x3", "bf16x6"])
@pytest.mark.parametrize("size", EDGES, ids=str)
def test_gemm_agrees_with_its_reference(size, precision, target):
    M, N, K = size
    a, _ = operand(1, (K, M), precision)
    b, _ = operand(2, (K, N), precision)
    result = sim.simulate(gemm)(a, b)
    assert result.shape == (M, N) and result.dtype == np.float32
    close(result, reference_gemm(a, b), K)


@pytest.mark.parametrize("precision", ["fp32", "bf16x3", "bf16x6"])
@pytest.mark.parametrize(
    "size", [(1, 1, 1, 1), (5, 7, 13, 3), (9, 130, 40, 129), (4, 128, 513, 17), (1031, 3, 2, 5)], ids=str
)
def test_batched_contraction_agrees_with_its_reference(size, precision, target):
    Z, M, N, K = size
    a, _ = operand(1, (Z, K, M), precision)
    b, _ = operand(2, (Z, K, N), precision)
    result = sim.simulate(batched_contraction)(a, b)
    assert result.shape == (Z, M, N) and result.dtype == np.float32
    close(result, reference_batched_contraction(a, b), K)


@pytest.mark.parametrize(
    "precision, error", [("fp32", 3e-7), ("bf16x15", 3e-7), ("bf16x6", 3e-7), ("bf16x3", 3e-5), ("bf16", 1e-2)]
)
def test_precisions_have_the_errors_they_promise(precision, error):
    """Against unrounded operands, relative to the norm: sums in fp32, 2^-16 of a two-way split, 2^-9 of bf16."""
    a, a64 = operand(3, (300, 65), precision)
    b, b64 = operand(4, (300, 70), precision)
    exact = a64.T @ b64
    actual = np.linalg.norm(sim.simulate(gemm)(a, b) - exact) / np.linalg.norm(exact)
    assert actual < error
    assert precision not in ("bf16x3", "bf16") or actual > error / 1000, (
        "a lower precision that loses nothing was not applied"
    )


# Each way of blocking, at sizes small enough to execute: b held; row blocks of a held; both streamed through PSUM.
BLOCKINGS = [
    {"rows": 256, "cols": 600, "kchunk": 3, "batch": 1, "hold": 1},
    {"rows": 128, "cols": 512, "kchunk": 3, "batch": 1, "hold": 0},
    {"rows": 256, "cols": 512, "kchunk": 2, "batch": 1, "hold": 0},
    {"rows": 512, "cols": 1024, "kchunk": 1, "batch": 1, "hold": 0},
]


@pytest.mark.parametrize("blocks", BLOCKINGS, ids=str)
def test_every_blocking_gives_the_same_product(blocks, target):
    a, _ = operand(5, (300, 389), "fp32")
    b, _ = operand(6, (300, 600), "fp32")
    close(sim.simulate(gemm)(a, b, **blocks), reference_gemm(a, b), 300)


@pytest.mark.parametrize("batch", [1, 2, 3, 7])
def test_batches_of_any_size_give_the_same_product(batch):
    a, _ = operand(5, (7, 20, 30), "fp32")
    b, _ = operand(6, (7, 20, 10), "fp32")
    result = sim.simulate(batched_contraction)(a, b, rows=128, cols=10, kchunk=1, batch=batch, hold=0)
    close(result, reference_batched_contraction(a, b), 20)


def trace_gemm(M, N, K, parts=1, dtype="float32", **blocks):
    return sim.trace(gemm)(sim.Spec((parts, K, M), dtype), sim.Spec((parts, K, N), dtype), **blocks)


@pytest.mark.parametrize("blocks", BLOCKINGS[1:], ids=str)
def test_program_size_does_not_grow_with_the_number_of_blocks(blocks):
    """The same remainders along M and N, one full block each against many."""
    small = trace_gemm(blocks["rows"] + 5, blocks["cols"] + 9, 300, **blocks)
    large = trace_gemm(20 * blocks["rows"] + 5, 30 * blocks["cols"] + 9, 300, **blocks)
    assert small.static == large.static
    assert large.executed["nc_matmul"] > 100 * small.executed["nc_matmul"]


def test_program_size_does_not_grow_with_the_batch():
    traces = [
        sim.trace(batched_contraction)(sim.Spec((1, Z, 100, 60), "float32"), sim.Spec((1, Z, 100, 70), "float32"))
        for Z in (8, 80_000)
    ]
    assert traces[0].static == traces[1].static
    assert traces[1].executed["nc_matmul"] == 80_000 and traces[0].executed["nc_matmul"] == 8


@pytest.mark.parametrize("parts, products", [(1, 1), (2, 3)])
@pytest.mark.parametrize("size", [*EDGES, (5000, 3001, 1434), (448, 448 * 8, 1536), (1000, 2000, 8191)], ids=str)
def test_no_matmul_is_wasted_and_memory_suffices(size, parts, products, target):
    """Executed matmuls are exactly the tiles of the product; capacity is checked by the trace itself."""
    M, N, K = size
    trace = trace_gemm(M, N, K, parts, "bfloat16" if parts == 2 else "float32")
    assert trace.executed["nc_matmul"] == products * ceil(M, 128) * ceil(N, 512) * ceil(K, 128)


@settings(max_examples=60, deadline=None)
@given(*[st.integers(1, 20_000)] * 3, st.integers(1, 1000), st.sampled_from([2, 4]))
def test_plans_fit_on_chip(M, N, K, Z, itemsize):
    """Every plan is one that the kernels accept, and its operands fit beside what else lies in SBUF."""
    plan = gemm_blocks.plan(Z, M, N, K, itemsize)
    nk = ceil(K, 128)
    rows, cols = min(plan["rows"], M), min(plan["cols"], N)
    resident = plan["kchunk"] == nk
    left = rows * (1 if resident and plan["batch"] == 1 else 2)
    right = cols if plan["hold"] else 2 * (min(cols, 512) if resident else cols)
    assert (left + right) * plan["kchunk"] * itemsize + 4 * 2048 <= gemm_blocks.SBUF_BYTES
    assert resident or ceil(rows, 128) * ceil(cols, 512) <= 8
    assert plan["batch"] <= Z and (not plan["hold"] or plan["cols"] >= N)


def test_contraction_lengths_must_agree():
    with pytest.raises(AssertionError, match=r"operands differ.*\(1, 1, 4, 3\).*\(1, 1, 5, 3\)"):
        sim.simulate(gemm)(np.ones((1, 4, 3), np.float32), np.ones((1, 5, 3), np.float32))


def test_both_cores_share_the_work():
    """Two programs, each its own items: the halves together are the product."""
    a, _ = operand(7, (40, 300), "fp32")
    b, _ = operand(8, (40, 30), "fp32")
    blocks = {"rows": 128, "cols": 512, "kchunk": 1, "batch": 1, "hold": 0}
    close(sim.simulate(gemm[2])(a, b, **blocks), reference_gemm(a, b), 40)
