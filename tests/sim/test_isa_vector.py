"""Element-wise instructions against NumPy in fp32."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sim.tiles import normal, on_tiles
from trnqc.errors import SimulationError
from trnqc.sim.nki import isa as nisa
from trnqc.sim.nki import language as nl

SHAPES = [(1, 1), (128, 33), (7, 2, 5)]


def truth(fn):
    return lambda a, b: fn(a, b).astype(np.float32)


BINARY = {
    nl.add: np.add,
    nl.subtract: np.subtract,
    nl.multiply: np.multiply,
    nl.maximum: np.maximum,
    nl.minimum: np.minimum,
    nl.equal: truth(np.equal),
    nl.not_equal: truth(np.not_equal),
    nl.less: truth(np.less),
    nl.less_equal: truth(np.less_equal),
    nl.greater: truth(np.greater),
    nl.greater_equal: truth(np.greater_equal),
    nl.logical_and: truth(np.logical_and),
    nl.logical_or: truth(np.logical_or),
    nl.logical_xor: truth(np.logical_xor),
}
BITWISE = {
    nl.bitwise_and: np.bitwise_and,
    nl.bitwise_or: np.bitwise_or,
    nl.bitwise_xor: np.bitwise_xor,
    nl.left_shift: lambda a, b: (a.astype(np.uint32) << b.astype(np.uint32)).view(np.int32),
    nl.right_shift: lambda a, b: (a.view(np.uint32) >> b.astype(np.uint32)).view(np.int32),
}


def with_ties(*shape, seed):
    """Small whole numbers, so that comparisons meet equal values and zeros."""
    return np.random.default_rng(seed).integers(-2, 3, shape).astype(np.float32)


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("op", BINARY, ids=str)
def test_tensor_tensor(op, shape):
    a, b = with_ties(*shape, seed=0), with_ties(*shape, seed=1)
    got = on_tiles(lambda a, b, out: nisa.tensor_tensor(out, a, b, op), {"a": a, "b": b}, {"out": (shape, nl.float32)})
    np.testing.assert_array_equal(got, BINARY[op](a, b))


def test_tensor_tensor_in_place_and_through_psum():
    a, b = normal(8, 9), normal(8, 9, seed=1)
    got = on_tiles(lambda a, b: nisa.tensor_tensor(a, a, b, nl.add), {"a": a, "psum:b": b}, {"a": ((8, 9), nl.float32)})
    np.testing.assert_array_equal(got, a + b)


def test_tiles_of_equal_count_and_other_shape():
    a, b = normal(8, 2, 6), normal(8, 12, seed=1)
    got = on_tiles(
        lambda a, b, out: nisa.tensor_tensor(out, a, b, nl.subtract), {"a": a, "b": b}, {"out": ((8, 4, 3), nl.float32)}
    )
    np.testing.assert_array_equal(got.reshape(8, 12), a.reshape(8, 12) - b)


@pytest.mark.parametrize("op", BITWISE, ids=str)
@settings(max_examples=20, deadline=None)
@given(a=st.integers(-(2**31), 2**31 - 1), b=st.integers(0, 31))
def test_bits(op, a, b):
    x, y = np.array([[a]], np.int32), np.array([[b]], np.int32)
    got = on_tiles(lambda x, y, out: nisa.tensor_tensor(out, x, y, op), {"x": x, "y": y}, {"out": ((1, 1), nl.int32)})
    np.testing.assert_array_equal(got, BITWISE[op](x, y))
    constant = on_tiles(lambda x, out: nisa.tensor_scalar(out, x, op, b), {"x": x}, {"out": ((1, 1), nl.int32)})
    np.testing.assert_array_equal(constant, got)


def test_shift_by_the_whole_width_leaves_nothing():
    x = np.array([[-1]], np.int32)
    got = on_tiles(lambda x, out: nisa.tensor_scalar(out, x, nl.left_shift, 32), {"x": x}, {"out": ((1, 1), nl.int32)})
    assert got[0, 0] == 0


def test_invert():
    x = np.array([[0, -1, 5]], np.int16)
    got = on_tiles(lambda x, out: nisa.tensor_scalar(out, x, nl.invert, None), {"x": x}, {"out": ((1, 3), nl.int16)})
    np.testing.assert_array_equal(got, ~x)


BIG = np.array([[2**24 + 1, 2**31 - 1]], np.int32)
ONE = np.array([[1, 1]], np.int32)


def test_int32_sums_wrap_on_gpsimd_and_go_through_fp32_on_the_vector_engine():
    native = on_tiles(
        lambda a, b, out: nisa.tensor_tensor(out, a, b, nl.add), {"a": BIG, "b": ONE}, {"out": ((1, 2), nl.int32)}
    )
    np.testing.assert_array_equal(native, [[2**24 + 2, -(2**31)]])
    vector = on_tiles(
        lambda a, b, out: nisa.tensor_tensor(out, a, b, nl.add, engine=nisa.engine.vector),
        {"a": BIG, "b": ONE},
        {"out": ((1, 2), nl.int32)},
    )
    np.testing.assert_array_equal(vector, [[2**24, 2**31 - 1]])


def scalar_case(x, op0, a, op1=None, b=None, dtype=nl.float32, **options):
    inputs = {"x": x}
    for name, value in (("a", a), ("b", b)):
        if isinstance(value, np.ndarray):
            inputs[name] = value

    def body(x, out, **tiles):
        nisa.tensor_scalar(out, x, op0, tiles.get("a", a), op1=op1, operand1=tiles.get("b", b), **options)

    return on_tiles(body, inputs, {"out": (x.shape, dtype)})


@pytest.mark.parametrize("shape", SHAPES)
def test_tensor_scalar_steps(shape):
    x, column = normal(*shape), normal(shape[0], 1, seed=2)
    wide = column.reshape([shape[0]] + [1] * (len(shape) - 1))
    half = np.float32(0.5)
    np.testing.assert_array_equal(scalar_case(x, nl.subtract, 0.5), x - half)
    np.testing.assert_array_equal(scalar_case(x, nl.subtract, 0.5, reverse0=True), half - x)
    np.testing.assert_array_equal(scalar_case(x, nl.multiply, column, nl.subtract, 0.5), x * wide - half)
    np.testing.assert_array_equal(scalar_case(x, nl.multiply, 0.5, nl.subtract, column, reverse1=True), wide - x * half)
    np.testing.assert_array_equal(
        scalar_case(x, nl.subtract, column, nl.multiply, column, reverse0=True), (wide - x) * wide
    )


UNARY = {nl.abs: np.abs, nl.square: np.square, nl.relu: lambda x: np.maximum(x, 0), nl.reciprocal: np.reciprocal}


@pytest.mark.parametrize("op", UNARY, ids=str)
def test_unary_operators_take_no_operand(op):
    x = normal(5, 7)
    np.testing.assert_array_equal(scalar_case(x, op, None, nl.add, 1.0), UNARY[op](x) + np.float32(1))


def test_power_and_rsqrt():
    x = np.abs(normal(5, 7)) + 0.1
    np.testing.assert_allclose(scalar_case(x, nl.power, -0.5), x**-0.5, rtol=1e-6)
    np.testing.assert_allclose(scalar_case(x, nl.rsqrt, 0.0, engine=nisa.engine.gpsimd), x**-0.5, rtol=1e-6)


def test_results_round_once_into_the_dtype_of_dst():
    x = normal(5, 7)
    got = scalar_case(x, nl.multiply, 1.1, nl.add, 0.3, dtype=nl.bfloat16)
    np.testing.assert_array_equal(got, (x * np.float32(1.1) + np.float32(0.3)).astype(ml_dtypes.bfloat16))


@pytest.mark.parametrize(
    ("options", "want"),
    [
        ({}, lambda x, c, t: (x - c) * t),
        ({"reverse0": True}, lambda x, c, t: (c - x) * t),
        ({"reverse1": True, "op1": nl.subtract}, lambda x, c, t: t - (x - c)),
        ({"op1": nl.subtract}, lambda x, c, t: (x - c) - t),
    ],
)
@pytest.mark.parametrize("constant", [True, False])
def test_scalar_tensor_tensor(options, want, constant):
    x, t, c = normal(9, 11), normal(9, 11, seed=1), normal(9, 1, seed=2)
    inputs = {"x": x, "t": t} if constant else {"x": x, "t": t, "c": c}
    keywords = {"op1": nl.multiply, **options}

    def body(x, t, out, c=0.75):
        nisa.scalar_tensor_tensor(out, x, nl.subtract, c, operand1=t, **keywords)

    got = on_tiles(body, inputs, {"out": ((9, 11), nl.float32)})
    np.testing.assert_array_equal(got, want(x, np.float32(0.75) if constant else c, t))


def test_reciprocal():
    x = normal(128, 3)
    got = on_tiles(lambda x, out: nisa.reciprocal(out, x), {"x": x}, {"out": ((128, 3), nl.float32)})
    np.testing.assert_array_equal(got, 1 / x)


def test_memset_of_views_and_packed_tiles():
    def body(out):
        nisa.memset(out, 1)
        nisa.memset(out[:, 1:3], -2.5)
        nisa.memset(nl.ndarray((4, 4), nl.float8_e4m3fn_x4), 0)

    got = on_tiles(body, {}, {"out": ((4, 5), nl.float16)})
    np.testing.assert_array_equal(got, np.tile([1, -2.5, -2.5, 1, 1], (4, 1)))
    with pytest.raises(SimulationError, match="of a float8_e4m3fn_x4 tile must be 0"):
        on_tiles(lambda out: nisa.memset(nl.ndarray((4, 4), nl.float8_e4m3fn_x4), 1), {}, {"out": ((4, 5), nl.float16)})


@settings(max_examples=30, deadline=None)
@given(st.sampled_from([0, 32, 64, 96]), st.sampled_from([0, 32, 64, 96]), st.integers(1, 32))
def test_operands_may_start_on_different_quarters(a, b, rows):
    x = normal(128, 3)

    def body(x, out):
        nisa.memset(out, 0)
        nisa.tensor_copy(out[nl.ds(b, rows)], x[nl.ds(a, rows)])

    got = on_tiles(body, {"x": x}, {"out": ((128, 3), nl.float32)})
    np.testing.assert_array_equal(got[b : b + rows], x[a : a + rows])


def test_scalar_tensor_tensor_takes_vectors_of_any_dtype():
    x, t = normal(5, 7), normal(5, 7, seed=1)
    c = normal(5, 1, seed=2).astype(ml_dtypes.bfloat16)
    got = on_tiles(
        lambda x, c, t, out: nisa.scalar_tensor_tensor(out, x, nl.multiply, c, nl.add, t),
        {"x": x, "c": c, "t": t},
        {"out": (x.shape, nl.float32)},
    )
    np.testing.assert_allclose(got, x * c.astype(np.float32) + t, rtol=1e-6, atol=1e-6)
