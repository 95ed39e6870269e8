"""ScalarE functions against double precision, their input ranges, and the lane registers."""

import math
import warnings

import numpy as np
import pytest

from tests.sim.tiles import normal, on_tiles
from trnqc.sim import RangeWarning
from trnqc.sim.nki import isa as nisa
from trnqc.sim.nki import language as nl

X = np.linspace(-3, 3, 77, dtype=np.float32).reshape(7, 11)
POSITIVE = np.abs(X) + np.float32(0.01)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def erf(x):
    return np.vectorize(math.erf)(x)


def gelu(x):
    return x * 0.5 * (1 + erf(x / math.sqrt(2)))


def slope(fn):
    """Derivative by central differences, good to about 1e-9."""
    return lambda x: (fn(x + 1e-5) - fn(x - 1e-5)) / 2e-5


FUNCTIONS = {
    nl.copy: lambda x: x,
    nl.square: np.square,
    nl.abs: np.abs,
    nl.sign: np.sign,
    nl.relu: lambda x: np.maximum(x, 0),
    nl.exp: np.exp,
    nl.tanh: np.tanh,
    nl.sigmoid: sigmoid,
    nl.silu: lambda x: x * sigmoid(x),
    nl.silu_dx: slope(lambda x: x * sigmoid(x)),
    nl.softplus: lambda x: np.log1p(np.exp(x)),
    nl.mish: lambda x: x * np.tanh(np.log1p(np.exp(x))),
    nl.erf: erf,
    nl.erf_dx: slope(erf),
    nl.gelu: gelu,
    nl.gelu_dx: slope(gelu),
    nl.gelu_apprx_tanh: lambda x: 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3))),
    nl.gelu_apprx_sigmoid: lambda x: x * sigmoid(1.702 * x),
    nl.gelu_apprx_sigmoid_dx: slope(lambda x: x * sigmoid(1.702 * x)),
    nl.sin: np.sin,
    nl.log: np.log,
    nl.sqrt: np.sqrt,
    nl.rsqrt: lambda x: x**-0.5,
    nl.reciprocal: np.reciprocal,
    nl.arctan: np.arctan,
}


@pytest.mark.parametrize("op", FUNCTIONS, ids=str)
def test_functions(op):
    x = POSITIVE if op in (nl.log, nl.sqrt, nl.rsqrt, nl.reciprocal) else X / 2 if op is nl.arctan else X
    got = on_tiles(lambda x, out: nisa.activation(out, op, x), {"x": x}, {"out": (x.shape, nl.float32)})
    np.testing.assert_allclose(got, FUNCTIONS[op](x.astype(np.float64)), rtol=3e-6, atol=2e-7)


RANGES = [
    (nl.sin, 3.2),
    (nl.arctan, 1.6),
    (nl.log, 2.0**-65),
    (nl.sqrt, -1.0),
    (nl.rsqrt, 0.0),
    (nl.reciprocal, 2.0**43),
]


@pytest.mark.parametrize(("op", "outside"), RANGES, ids=str)
def test_arguments_out_of_range_give_nan_and_a_warning(op, outside):
    x = np.array([[1.0, outside]], np.float32)
    with pytest.warns(RangeWarning, match=f"ScalarE {op.name} is valid within"):
        got = on_tiles(lambda x, out: nisa.activation(out, op, x), {"x": x}, {"out": ((1, 2), nl.float32)})
    assert np.isfinite(got[0, 0])
    assert np.isnan(got[0, 1])


def test_poison_is_not_out_of_range():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        got = on_tiles(
            lambda out: nisa.activation(out, nl.log, nl.ndarray((2, 2), nl.float32)), {}, {"out": ((2, 2), nl.float32)}
        )
    assert np.isnan(got).all()


def test_scale_and_bias_columns():
    x, scale, bias = normal(9, 2, 5), normal(9, 1, seed=1), normal(9, 1, seed=2)
    got = on_tiles(
        lambda x, scale, bias, out: nisa.activation(out, nl.square, x, bias=bias, scale=scale),
        {"x": x, "scale": scale, "bias": bias},
        {"out": ((9, 2, 5), nl.float32)},
    )
    np.testing.assert_allclose(got, np.square(x * scale[..., None] + bias[..., None]), rtol=1e-6)


def test_constant_scale_and_bias():
    x = normal(9, 5)
    got = on_tiles(
        lambda x, out: nisa.activation(out, nl.copy, x, bias=-0.5, scale=2.0), {"x": x}, {"out": ((9, 5), nl.float32)}
    )
    np.testing.assert_allclose(got, 2 * x - 0.5, rtol=1e-6, atol=1e-7)


def test_activation_reduce_sums_what_the_function_gave():
    """The sum is taken in fp32 before dst rounds."""
    x = normal(9, 2, 5)
    wide, total = on_tiles(
        lambda x, out, total: nisa.activation_reduce(out, nl.exp, x, nl.add, total, scale=0.5),
        {"x": x},
        {"out": ((9, 2, 5), nl.bfloat16), "total": ((9, 1), nl.float32)},
    )
    want = np.exp(x * 0.5)
    np.testing.assert_allclose(wide.astype(np.float32), want, rtol=2**-8)
    np.testing.assert_allclose(total[:, 0], want.sum((1, 2)), rtol=1e-6)


def test_an_unwanted_result_may_go_to_a_broadcast_column():
    """Kernels that want the sum only let all results fall on one element; the last stays."""
    x = normal(9, 5)

    def body(x, dump, total):
        nisa.activation_reduce(dump.broadcast(1, 5), nl.square, x, nl.add, total)

    dump, total = on_tiles(body, {"x": x}, {"dump": ((9, 1), nl.float32), "total": ((9, 1), nl.float32)})
    np.testing.assert_allclose(total, (x**2).sum(1, keepdims=True), rtol=1e-6)
    np.testing.assert_array_equal(dump, x[:, 4:] ** 2)


def test_lane_registers_carry_a_sum_over_instructions():
    x = normal(9, 5)
    commands = [nisa.reduce_cmd.reset_reduce, nisa.reduce_cmd.reduce, nisa.reduce_cmd.idle, nisa.reduce_cmd.reduce]

    def body(x, total, again):
        scratch = nl.ndarray((9, 5), nl.float32)
        for command in commands:
            nisa.activation(scratch, nl.copy, x, reduce_op=nl.add, reduce_cmd=command)
        nisa.activation(scratch, nl.copy, x, reduce_op=nl.add, reduce_cmd=nisa.reduce_cmd.idle, reduce_res=total)
        nisa.activation(scratch, nl.copy, x, reduce_op=nl.add, reduce_cmd=nisa.reduce_cmd.reset, reduce_res=again)

    total, again = on_tiles(body, {"x": x}, {"total": ((9, 1), nl.float32), "again": ((9, 1), nl.float32)})
    np.testing.assert_allclose(total, 3 * x.sum(1, keepdims=True), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(again, np.zeros((9, 1)))


def test_lane_registers_never_set_read_as_nan():
    got = on_tiles(
        lambda x, total: nisa.activation(
            nl.ndarray((9, 5), nl.float32), nl.copy, x, reduce_op=nl.add, reduce_res=total
        ),
        {"x": normal(9, 5)},
        {"total": ((9, 1), nl.float32)},
    )
    assert np.isnan(got).all()
