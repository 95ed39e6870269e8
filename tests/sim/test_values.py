"""Casts and stores against ml_dtypes, NumPy and the definitions."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from tests.sim.running import run
from tests.sim.tiles import on_tiles
from trnqc.errors import SimulationError
from trnqc.sim.memory import dtypes, values
from trnqc.sim.nki import isa as nisa
from trnqc.sim.nki import language as nl

FLOATS = st.floats(width=32)


def cast(x, dtype):
    out = np.zeros(x.shape, dtype.numpy)
    values.store(out, x, dtype)
    return out


@pytest.mark.parametrize("dtype", [nl.bfloat16, nl.float16, nl.float8_e4m3, nl.float8_e5m2, nl.float8_e4m3fn])
@settings(max_examples=50, deadline=None)
@given(x=FLOATS)
def test_floats_round_once_to_nearest(dtype, x):
    array = np.array([x], np.float32)
    with np.errstate(all="ignore"):
        want = array.astype(dtype.numpy)
    np.testing.assert_array_equal(cast(array, dtype).astype(np.float32), want.astype(np.float32))


@pytest.mark.parametrize("dtype", [nl.int8, nl.uint8, nl.int16, nl.uint16, nl.int32, nl.uint32])
@settings(max_examples=50, deadline=None)
@given(x=FLOATS)
@example(x=0.5)
@example(x=1.5)
@example(x=-2.5)
@example(x=4e9)
@example(x=-1e30)
@example(x=float("inf"))
def test_float_to_integer_rounds_half_to_even_and_saturates(dtype, x):
    info = np.iinfo(dtype.numpy)
    got = int(cast(np.array([x], np.float32), dtype)[0])
    if np.isnan(x):
        assert got == 0
    else:
        bounded = min(max(x, float(info.min)), float(info.max))
        assert got == min(max(round(bounded), info.min), info.max)


@settings(max_examples=100, deadline=None)
@given(FLOATS)
def test_tfloat32_keeps_ten_bits(x):
    array = np.array([x], np.float32)
    got = float(cast(array, nl.tfloat32)[0])
    if not np.isfinite(x):
        np.testing.assert_equal(got, x)
        return
    if got == got and abs(got) != np.inf:
        mantissa, exponent = np.frexp(np.float64(x))
        nearest = np.ldexp(round(float(np.ldexp(mantissa, 11))), int(exponent) - 11)
        if abs(x) >= 2.0**-126:
            assert got == nearest
        assert not np.array([got], np.float32).view(np.uint32)[0] & 0x1FFF


@settings(max_examples=50, deadline=None)
@given(st.integers(-(2**31), 2**31 - 1))
def test_integers_saturate_into_narrower_ones(n):
    got = cast(np.array([n], np.int32), nl.int8)[0]
    assert got == min(max(n, -128), 127)


def test_booleans_are_zero_or_one():
    np.testing.assert_array_equal(cast(np.array([0.0, -3.0, 0.25], np.float32), nl.bool_), [0, 1, 1])


@pytest.mark.parametrize(
    ("copy", "buffer"), [(nisa.dma_copy, nl.shared_hbm), (nisa.tensor_copy, nl.sbuf)], ids=["dma", "vector"]
)
def test_copies_cast_alike(copy, buffer):
    x = np.array([[0.5, 1.5, -2.5, 3e9, -3e9, 7.49]], np.float32)

    def body(x):
        tile, whole = nl.load(x), nl.ndarray(x.shape, nl.int32, buffer)
        copy(whole, tile)
        out = nl.ndarray(x.shape, nl.int32, nl.shared_hbm)
        nisa.dma_copy(out, whole)
        return out

    np.testing.assert_array_equal(run(body, x), [[0, 2, -2, 2**31 - 1, -(2**31), 7]])


def test_copies_of_one_dtype_keep_every_bit():
    """NaN payloads and integers beyond 2^24 survive where nothing is cast."""
    bits = np.array([[0x7FC12345, 0xFF800001, 2**24 + 1, 0xFFFFFFFF]], np.uint32)
    for array in (bits.view(np.float32), bits, bits.view(np.int32)):
        got = on_tiles(
            lambda x, out: nisa.tensor_copy(out, x), {"x": array}, {"out": (array.shape, dtypes.as_dtype(array.dtype))}
        )
        np.testing.assert_array_equal(got.view(np.uint32), bits)


def test_int32_passes_through_fp32_where_it_is_cast():
    got = on_tiles(
        lambda x, out: nisa.tensor_copy(out, x), {"x": np.array([[2**24 + 1]], np.int32)}, {"out": ((1, 1), nl.uint32)}
    )
    assert got[0, 0] == 2**24


def test_storage_rounds_and_arithmetic_does_not():
    """(x + y) - x in one instruction keeps y; through a bf16 tile it is lost."""
    x = np.full((4, 8), 256.0, ml_dtypes.bfloat16)

    def fused(x, out):
        nisa.tensor_scalar(out, x, nl.add, 0.5, op1=nl.subtract, operand1=256.0)

    def split(x, out):
        middle = nl.ndarray(x.shape, nl.bfloat16)
        nisa.tensor_scalar(middle, x, nl.add, 0.5)
        nisa.tensor_scalar(out, middle, nl.subtract, 256.0)

    assert np.all(on_tiles(fused, {"x": x}, {"out": ((4, 8), nl.float32)}) == 0.5)
    assert np.all(on_tiles(split, {"x": x}, {"out": ((4, 8), nl.float32)}) == 0.0)


def test_dtypes_are_keys_and_equal_their_names():
    table = {nl.float8_e4m3: 1, nl.bfloat16: 2}
    assert table[nl.bfloat16] == 2
    assert nl.float32 == "float32"
    assert nl.float32 != nl.tfloat32
    assert dtypes.as_dtype(np.float32) is nl.float32
    assert dtypes.as_dtype(ml_dtypes.bfloat16) is nl.bfloat16


@pytest.mark.parametrize("dtype", [np.float64, np.int64, np.complex64])
def test_formats_that_the_machine_lacks_are_refused(dtype):
    with pytest.raises(SimulationError, match=r"argument x has dtype .* which the machine does not have"):
        run(lambda x: None, np.zeros((2, 2), dtype))
