"""Reductions over free axes and over partitions, against NumPy."""

import numpy as np
import pytest

from tests.sim.tiles import normal, on_tiles
from trnqc.errors import SimulationError
from trnqc.sim.nki import isa as nisa
from trnqc.sim.nki import language as nl

X = normal(33, 3, 4, 5)
OPS = {nl.add: np.sum, nl.multiply: np.prod, nl.maximum: np.max, nl.minimum: np.min}


@pytest.mark.parametrize(("axis", "axes"), [(3, (3,)), (-1, (3,)), ((2, 3), (2, 3)), ([1, 2, 3], (1, 2, 3))])
@pytest.mark.parametrize("op", OPS, ids=str)
def test_last_free_axes(op, axis, axes):
    want = OPS[op](X, axis=axes)
    want = want.reshape(33, -1)
    got = on_tiles(lambda x, out: nisa.tensor_reduce(out, op, x, axis), {"x": X}, {"out": (want.shape, nl.float32)})
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


def test_negation():
    got = on_tiles(
        lambda x, out: nisa.tensor_reduce(out, nl.maximum, x, (1, 2, 3), negate=True),
        {"x": X},
        {"out": ((33, 1), nl.float32)},
    )
    np.testing.assert_array_equal(got[:, 0], -X.max((1, 2, 3)))


def test_subtraction_runs_from_the_first_element():
    x = normal(5, 4)
    got = on_tiles(lambda x, out: nisa.tensor_reduce(out, nl.subtract, x, 1), {"x": x}, {"out": ((5, 1), nl.float32)})
    np.testing.assert_allclose(got[:, 0], x[:, 0] - x[:, 1:].sum(1), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("op", "fn"),
    [(nl.bitwise_or, np.bitwise_or), (nl.bitwise_and, np.bitwise_and), (nl.bitwise_xor, np.bitwise_xor)],
    ids=str,
)
def test_bits(op, fn):
    x = np.random.default_rng(0).integers(0, 255, (5, 7), np.uint8)
    got = on_tiles(lambda x, out: nisa.tensor_reduce(out, op, x, 1), {"x": x}, {"out": ((5, 1), nl.uint8)})
    np.testing.assert_array_equal(got[:, 0], fn.reduce(x, axis=1))
    with pytest.raises(SimulationError, match="negate is for arithmetic operators"):
        on_tiles(lambda x, out: nisa.tensor_reduce(out, op, x, 1, negate=True), {"x": x}, {"out": ((5, 1), nl.uint8)})


def test_strided_views_reduce_in_the_order_of_the_view():
    x = normal(5, 4, 6)
    got = on_tiles(
        lambda x, out: nisa.tensor_reduce(out, nl.add, x.permute((0, 2, 1)), 2), {"x": x}, {"out": ((5, 6), nl.float32)}
    )
    np.testing.assert_allclose(got, x.sum(1), rtol=1e-5, atol=1e-6)


def test_dst_of_the_wrong_size():
    with pytest.raises(SimulationError, match="tensor_reduce dst must have 33 partitions with 12 elements"):
        on_tiles(lambda x, out: nisa.tensor_reduce(out, nl.add, x, 3), {"x": X}, {"out": ((33, 3), nl.float32)})


PARTITIONS = {nl.add: np.sum, nl.maximum: np.max, nl.average: np.mean}


@pytest.mark.parametrize("op", PARTITIONS, ids=str)
def test_over_partitions(op):
    x = normal(128, 9)
    got = on_tiles(lambda x, out: nisa.tensor_partition_reduce(out, op, x), {"x": x}, {"out": ((1, 9), nl.float32)})
    np.testing.assert_allclose(got[0], PARTITIONS[op](x, axis=0), rtol=1e-5, atol=1e-5)
