import ml_dtypes
import numpy as np
import pytest

from tests.sim.tiles import normal, on_tiles
from trnqc.errors import SimulationError
from trnqc.sim import jit, simulate
from trnqc.sim.nki import isa as nisa
from trnqc.sim.nki import language as nl

BF16 = ml_dtypes.bfloat16
EMAX = {"float8_e4m3fn": 8, "float8_e5m2": 15}


def quantized(x, element):
    """(values as fp32 [P, 4 F], scale bytes [P / 8, F]) from the group's definition, one group at a time."""
    P, n = x.shape
    values, codes = np.empty((P, n), np.float32), np.zeros((P // 8, n // 4), np.uint8)
    for g in range(P // 8):
        for f in range(n // 4):
            block = x[8 * g : 8 * g + 8, 4 * f : 4 * f + 4].astype(np.float64)
            top = np.abs(block).max()
            exponent = -127 if top == 0 else int(np.floor(np.log2(top))) - (EMAX[element] - 1)
            codes[g, f] = exponent + 127
            cast = (block * 2.0**-exponent).astype(np.float32).astype(getattr(ml_dtypes, element))
            values[8 * g : 8 * g + 8, 4 * f : 4 * f + 4] = cast.astype(np.float32) * 2.0**exponent
    return values, codes


@jit
def quantize(x, dtype):
    P, n = x.shape
    tile = nl.load(x)
    data = nl.ndarray((P, n // 4), dtype=dtype, buffer=nl.sbuf)
    scale = nl.zeros((P, n // 4), dtype=nl.uint8)
    nisa.quantize_mx(dst=data, src=tile, dst_scale=scale)
    out = nl.ndarray((P, n // 4), dtype=dtype, buffer=nl.shared_hbm)
    codes = nl.ndarray((P, n // 4), dtype=nl.uint8, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=data)
    nisa.dma_copy(dst=codes, src=scale)
    return out, codes


@jit
def product(a, b, dtype):
    tiles = []
    for x in (a, b):
        P, n = x.shape
        data = nl.ndarray((P, n // 4), dtype=dtype, buffer=nl.sbuf)
        scale = nl.ndarray((P, n // 4), dtype=nl.uint8, buffer=nl.sbuf)
        nisa.quantize_mx(dst=data, src=nl.load(x), dst_scale=scale)
        tiles.append((data, scale))
    (left, left_scale), (right, right_scale) = tiles
    bank = nl.ndarray((left.shape[1], right.shape[1]), dtype=nl.float32, buffer=nl.psum)
    nisa.nc_matmul_mx(bank, left, right, left_scale, right_scale)
    out = nl.ndarray(bank.shape, dtype=nl.float32, buffer=nl.shared_hbm)
    nisa.dma_copy(dst=out, src=nl.copy(bank))
    return out


@pytest.fixture(autouse=True)
def trn3(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn3")


def sample(P, n, seed):
    x = normal(P, n, seed=seed) * 2.0 ** np.random.default_rng(seed).integers(-20, 20, (P, n))
    x[:8, :4] = 0
    return x.astype(BF16)


@pytest.mark.parametrize("element", list(EMAX))
@pytest.mark.parametrize("rows", [32, 96])
def test_quantize_mx_shares_a_power_of_two_in_each_group(element, rows):
    x = sample(rows, 20, 1)
    data, codes = simulate(quantize)(x, getattr(nl, f"{element}_x4"))
    values, want = quantized(x, element)
    kept = [32 * (g // 4) + g % 4 for g in range(rows // 8)]
    np.testing.assert_array_equal(codes[kept], want)
    assert not np.delete(codes, kept, axis=0).any()
    result = np.ascontiguousarray(data).view(getattr(ml_dtypes, element)).reshape(rows, 20).astype(np.float32)
    scale = np.repeat(np.repeat(2.0 ** (want.astype(float) - 127), 8, axis=0), 4, axis=1)
    np.testing.assert_array_equal(result * scale, values)


@pytest.mark.parametrize("element", list(EMAX))
def test_matmul_mx_multiplies_what_was_quantized(element):
    a, b = normal(64, 24, seed=2).astype(BF16), normal(64, 28, seed=3).astype(BF16)
    got = simulate(product)(a, b, getattr(nl, f"{element}_x4"))
    left, right = quantized(a, element)[0].reshape(64, 6, 4), quantized(b, element)[0].reshape(64, 7, 4)
    np.testing.assert_allclose(got, np.einsum("kmq,knq->mn", left, right), rtol=1e-5, atol=1e-5)


def test_poison_reaches_the_product():
    a, b = normal(32, 8).astype(BF16), normal(32, 8).astype(BF16)
    a[3, 2] = np.nan
    got = simulate(product)(a, b, nl.float8_e5m2_x4)
    np.testing.assert_array_equal(np.isnan(got), [[True, True], [False, False]])


@pytest.mark.parametrize(
    ("rows", "columns", "rule"),
    [(40, 8, "multiple of 32, got 40"), (32, 4, "stationary free size must be even and at most 128, got 1")],
)
def test_mx_shapes(rows, columns, rule):
    x = normal(rows, columns).astype(BF16)
    with pytest.raises(SimulationError, match=rule):
        simulate(product)(x, x, nl.float8_e5m2_x4)


def test_mx_is_for_trn3(monkeypatch):
    monkeypatch.setenv("NEURON_PLATFORM_TARGET_OVERRIDE", "trn2")
    with pytest.raises(SimulationError, match=r"quantize_mx needs trn3 \(gen4\) or later, got trn2"):
        simulate(quantize)(sample(32, 4, 1), nl.float8_e5m2_x4)


def test_quantize_mx_takes_16_bit_floats():
    with pytest.raises(SimulationError, match="src must be float16 or bfloat16, got float32"):
        on_tiles(
            lambda x, out, scale: nisa.quantize_mx(out, x, scale),
            {"x": normal(32, 8)},
            {"out": ((32, 2), nl.float8_e5m2_x4), "scale": ((4, 2), nl.uint8)},
            "trn3",
        )
