"""Kernels of the usual kinds, with awkward sizes, against NumPy."""

import ml_dtypes
import numpy as np
import pytest

from tests.sim.kernels import attention, conv, cross_entropy, matmul, norms, pooling, scan, search, transpose
from tests.sim.tiles import normal
from trnqc.sim import simulate

# fp32 sums of n terms, relative to the largest expected value
TOLERANCE = 2e-6


@pytest.fixture(autouse=True, params=["trn1", "trn2", "trn3"])
def target(request, monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", request.param)


def assert_close(got, want, tolerance=TOLERANCE):
    np.testing.assert_allclose(np.asarray(got, np.float64), want, rtol=0, atol=tolerance * np.abs(want).max())


@pytest.mark.parametrize(("M", "N", "K"), [(1, 1, 1), (129, 513, 131), (128, 512, 128), (3, 700, 257)])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16])
def test_matmul(M, N, K, dtype):
    a_t, b = normal(K, M, dtype=dtype), normal(K, N, seed=1, dtype=dtype)
    assert_close(simulate(matmul.matmul)(a_t, b), matmul.reference(a_t, b))


@pytest.mark.parametrize("shape", [(1, 1), (131, 257)])
@pytest.mark.parametrize("kernel", [transpose.transpose, transpose.transpose_by_dma])
def test_transpose(kernel, shape):
    x = normal(*shape)
    np.testing.assert_array_equal(simulate(kernel)(x), transpose.reference(x))


@pytest.mark.parametrize("op", ["mean", "max"])
@pytest.mark.parametrize(("shape", "window"), [((1, 1, 1), 1), ((7, 9, 13), 3), ((128, 5, 4), 2)])
def test_pooling(shape, window, op):
    x = normal(*shape)
    assert_close(simulate(pooling.pool)(x, window, op), pooling.reference(x, window, op))


@pytest.mark.parametrize(("channels", "steps", "states"), [(1, 1, 1), (129, 67, 3)])
def test_selective_scan(channels, steps, states):
    delta, u = np.abs(normal(channels, steps)), normal(channels, steps, seed=1)
    a = -np.abs(normal(channels, states, seed=2))
    b, c = normal(states, steps, seed=3), normal(states, steps, seed=4)
    got = simulate(scan.selective_scan)(delta, u, a, b, c)
    assert_close(got, scan.selective_scan_reference(delta, u, a, b, c))


@pytest.mark.parametrize(("shape", "chunk"), [((1, 1), 1), ((131, 50), 16), ((2, 7), 100)])
def test_cumulative_sum(shape, chunk):
    x = normal(*shape)
    assert_close(simulate(scan.cumulative_sum)(x, chunk), np.cumsum(x, axis=1, dtype=np.float64))


@pytest.mark.parametrize("shape", [(1, 2), (131, 519), (5, 1031)])
def test_norms(shape):
    x, weight = normal(*shape), normal(shape[1], seed=1)
    assert_close(simulate(norms.rms_norm)(x, weight, 1e-5), norms.rms_norm_reference(x, weight, 1e-5))
    assert_close(simulate(norms.layer_norm)(x, 1e-5), norms.layer_norm_reference(x, 1e-5), 1e-5)


@pytest.mark.parametrize(("D", "T"), [(1, 1), (32, 127), (128, 128)])
def test_causal_attention(D, T):
    q_t, k_t, v = normal(D, T), normal(D, T, seed=1), normal(T, D, seed=2)
    got = simulate(attention.causal_attention)(q_t, k_t, v)
    assert_close(got, attention.causal_attention_reference(q_t, k_t, v), 1e-5)


def test_rotation():
    x, angle = normal(64, 77), normal(32, 77, seed=1)
    cos, sin = np.cos(angle), np.sin(angle)
    assert_close(simulate(attention.rotate)(x, cos, sin), attention.rotate_reference(x, cos, sin))


@pytest.mark.parametrize(("T", "V", "chunk"), [(1, 1, 1), (100, 1001, 300), (128, 64, 64)])
def test_cross_entropy(T, V, chunk):
    logits = 5 * normal(T, V)
    classes = np.random.default_rng(1).integers(0, V, T).astype(np.int32)
    got = simulate(cross_entropy.cross_entropy)(logits, classes, chunk)
    assert np.abs(got - cross_entropy.reference(logits, classes)).max() < 2e-5


@pytest.mark.parametrize(("stride", "padding", "dilation"), [(1, 0, 1), (2, 1, 3), (3, 2, 2)])
@pytest.mark.parametrize(("C", "F", "N", "taps"), [(5, 7, 101, 3), (128, 128, 40, 2), (1, 1, 9, 4), (3, 2, 1100, 5)])
def test_conv(C, F, N, taps, stride, padding, dilation):
    x, w = normal(C, N), normal(taps, C, F, seed=1)
    got = simulate(conv.conv)(x, w, stride, padding, dilation)
    want = conv.reference(x, w, stride, padding, dilation)
    np.testing.assert_allclose(got, want, rtol=0, atol=TOLERANCE * max(1.0, np.abs(want).max()))


@pytest.mark.parametrize(("rows", "columns", "k"), [(1, 8, 8), (128, 101, 24)])
def test_largest(rows, columns, k):
    x = np.random.default_rng(0).permutation(rows * columns).reshape(rows, columns).astype(np.float32)
    values, places = simulate(search.largest)(x, k)
    want_values, want_places = search.reference(x, k)
    np.testing.assert_array_equal(values, want_values)
    np.testing.assert_array_equal(places, want_places)
