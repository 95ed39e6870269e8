"""blas_gemm and blas_syrk on the simulator: values against references, blocks and instructions against arithmetic."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nki_kernels.blas import plan
from nki_kernels.blas.blas_gemm import blas_gemm, reference_blas_gemm
from nki_kernels.blas.blas_syrk import blas_syrk, reference_blas_syrk
from nki_kernels.blas.blocks import BANKS, Kind, tile_list
from nki_kernels.descriptors import kernels
from nki_kernels.precision.splits import PRECISIONS, split
from trnqc import sim
from trnqc.sim.machine.version import VERSIONS

SCALE = (1.5, -0.5)
# (Z, M, N, K): one; primes; one over a tile, a run, a block; several items of K; a group of products and a remainder;
# stacks of products of one tile, with remainders.
PRODUCTS = [
    *[(1, 1, 1, 1), (1, 7, 13, 5), (1, 129, 513, 129), (1, 513, 1025, 20)],
    *[(1, 20, 30, 128 * 33), (3, 20, 30, 40), (6, 130, 40, 600), (6, 130, 40, 60), (9, 5, 7, 3)],
    *[(70, 20, 130, 40), (33, 128, 128, 128), (10, 128, 512, 1), (65, 1, 1, 1)],
]
TRIANGLES = [(1, 1), (7, 5), (129, 130), (513, 20), (1100, 10), (2200, 3), (200, 128 * 33)]


def ceil(a: int, b: int) -> int:
    return -(-a // b)


@pytest.fixture(params=["trn1", "trn2"])
def target(request, monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", request.param)
    return request.param


def product_launch(size, precision, update, sizes=None):
    Z, M, N, K = size
    rng = np.random.default_rng(1)
    sizes = sizes or plan.block_sizes(M, N, K, Z)
    c = rng.standard_normal((Z, M, N) if update else (1, 1, 1)).astype(np.float32)
    operands = (split(rng.standard_normal((Z, K, n)), precision) for n in (M, N))
    return (*operands, c, *plan.product_list(size, sizes, SCALE)), (*sizes, update)


def triangle_launch(size, precision, update, sizes=None):
    n, K = size
    rng = np.random.default_rng(2)
    sizes = sizes or plan.triangle_sizes(n, K)
    c = rng.standard_normal((n, n) if update else (1, 1)).astype(np.float32)
    a_t = split(rng.standard_normal((K, n)), precision)
    return (a_t, c, *plan.triangle_list(n, K, sizes, SCALE)), (*sizes[:3], update)


def close(actual, expected, K):
    """fp32 accumulation of K products of order one, times alpha; sums of squares are larger, with larger roundings."""
    largest = float(abs(expected).max())
    np.testing.assert_allclose(actual, expected, rtol=0, atol=4e-6 * K**0.5 + 1e-6 * largest)


@pytest.mark.parametrize("precision, update", [("fp32", 1), ("fp32", 0), ("bf16x3", 1)])
@pytest.mark.parametrize("size", PRODUCTS, ids=str)
def test_products_agree_with_the_reference(size, precision, update, target):
    args, constants = product_launch(size, precision, update)
    close(sim.simulate(blas_gemm)(*args, *constants), reference_blas_gemm(*args, *constants), size[3])


@pytest.mark.parametrize("precision, update", [("fp32", 1), ("fp32", 0), ("bf16x3", 1)])
@pytest.mark.parametrize("size", TRIANGLES, ids=str)
def test_triangles_agree_with_the_reference(size, precision, update, target):
    args, constants = triangle_launch(size, precision, update)
    lower = np.tri(size[0], dtype=bool)
    result, expected = (f(*args, *constants) for f in (sim.simulate(blas_syrk), reference_blas_syrk))
    close(result[lower], expected[lower], size[1])


def test_two_cores_share_the_blocks():
    """Blocks of several items, whose partial sums each core keeps for itself, and stacks."""
    args, constants = product_launch((100, 40, 130, 20), "fp32", 1)
    close(sim.simulate(blas_gemm[2])(*args, *constants), reference_blas_gemm(*args, *constants), 20)
    args, constants = product_launch((1, 300, 700, 900), "fp32", 1, (128, 512, 2, 1))
    close(sim.simulate(blas_gemm[2])(*args, *constants), reference_blas_gemm(*args, *constants), 900)
    args, constants = triangle_launch((700, 500), "fp32", 1, (128, 256, 2, 1))
    lower = np.tri(700, dtype=bool)
    close(sim.simulate(blas_syrk[2])(*args, *constants)[lower], reference_blas_syrk(*args, *constants)[lower], 500)


@settings(max_examples=100, deadline=None)
@given(st.integers(1, 3000), st.sampled_from([(128, 128), (128, 512), (384, 768), (512, 1024), (256, 256)]))
def test_blocks_of_a_triangle_cover_it_once(n, block):
    """The tiles of all blocks cover every element on and below the diagonal, and no tile begins above it."""
    rows, cols = block
    covered = np.zeros((ceil(n, 64), n), int)  # one line for 64 rows, which no tile divides
    places = plan._triangle_places(n, rows, cols)
    kinds = plan.triangle_kinds(n, rows, cols)
    assert [len(of_kind) for of_kind in places] == [count for *_, count in kinds]
    for (m, width, diagonal, _), of_kind in zip(kinds, places):
        tiles = tile_list(Kind(m=m, n=width, k=1, diagonal=diagonal, summed=False, update=False))
        assert len(tiles) <= BANKS
        for row, column in of_kind:
            for a0, height, b0, run in tiles:
                assert column + b0 <= row + a0 + height - 1
                covered[(row + a0) // 64 : ceil(row + a0 + height, 64), column + b0 : column + b0 + run] += 1
    needed = np.arange(n) <= np.minimum(n, 64 * np.arange(1, len(covered) + 1))[:, None] - 1
    assert covered.max() <= 1 and (covered[needed] == 1).all()


def static(kernel, args, constants):
    shapes = [x if x.dtype == np.int32 else sim.Spec(x.shape, x.dtype.name) for x in args]
    return sim.trace(kernel)(*shapes, *constants)


def empty(shape, dtype=np.float32):
    return np.broadcast_to(np.zeros((), dtype), shape)


def product_trace(Z, M, N, K):
    sizes = plan.block_sizes(M, N, K, Z)
    work = plan.product_list((Z, M, N, K), sizes, SCALE)
    args = (empty((1, Z, K, M)), empty((1, Z, K, N)), empty((Z, M, N)), *work)
    return static(blas_gemm, args, (*sizes, 1))


def triangle_trace(n, K):
    sizes = plan.triangle_sizes(n, K)
    args = (empty((1, K, n)), empty((n, n)), *plan.triangle_list(n, K, sizes, SCALE))
    return static(blas_syrk, args, (*sizes[:3], 1))


def test_program_size_depends_on_no_extent():
    """More blocks, more products, more items of K: the same instructions, executed more often."""
    small, large = product_trace(1, 1024, 2048, 8192), product_trace(1, 8192, 16384, 32768)
    assert small.static == large.static
    assert large.executed["nc_matmul"] == 256 * small.executed["nc_matmul"]
    assert product_trace(8, 100, 100, 300).static == product_trace(4000, 100, 100, 300).static
    stacked = product_trace(64, 100, 128, 128), product_trace(4096, 100, 128, 128)
    assert stacked[0].static == stacked[1].static
    # Three loads and a store for each half of an item of 32 products, the row of the item, and one row of factors.
    assert stacked[1].executed["dma_copy"] == 128 * (2 * 4 + 1) + 1
    assert triangle_trace(2048, 8192).static == triangle_trace(8192, 32768).static


@pytest.mark.parametrize("n", [512, 4096, 5000])
def test_a_triangle_multiplies_its_tiles_only(n):
    """As many multiply-adds as tiles of 128 rows that end at the diagonal need."""
    sizes = plan.triangle_sizes(n, 256)
    multiplied = 0
    for m, width, diagonal, count in plan.triangle_kinds(n, *sizes[:2]):
        kind = Kind(m=m, n=width, k=1, diagonal=diagonal, summed=False, update=False)
        multiplied += count * sum(rows * run for _, rows, _, run in tile_list(kind))
    assert multiplied == sum(min(128, n - a) * min(n, a + 128) for a in range(0, n, 128))
    assert multiplied < n * (n + 128) / 2 + 1


@pytest.mark.parametrize("version", VERSIONS)
def test_stacks_run_in_both_versions_of_the_language(version, monkeypatch):
    monkeypatch.setenv("TRNQC_NKI", version)
    args, constants = product_launch((35, 30, 200, 20), "bf16x3", 1)
    close(sim.simulate(blas_gemm)(*args, *constants), reference_blas_gemm(*args, *constants), 20)


@settings(max_examples=50, deadline=None)
@given(*[st.integers(1, 20_000)] * 3, st.integers(1, 1000), st.sampled_from(sorted(PRECISIONS)))
def test_defaults_keep_the_rules_of_the_smallest_chip(M, N, K, Z, precision):
    for name, shape in [("blas_gemm", {"Z": Z, "M": M, "N": N, "K": K}), ("blas_syrk", {"n": M, "K": K})]:
        kernel = kernels()[name]
        point = kernel.default_point(shape, precision)
        assert kernel.realise(point, shape, precision, "trn1") == kernel.default(shape, precision)
