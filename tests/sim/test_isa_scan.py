import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sim.tiles import normal, on_tiles
from trnqc.errors import SimulationError
from trnqc.sim.nki import isa as nisa
from trnqc.sim.nki import language as nl

SAME = {
    nl.add: np.add,
    nl.subtract: np.subtract,
    nl.multiply: np.multiply,
    nl.maximum: np.maximum,
    nl.minimum: np.minimum,
}


@settings(max_examples=30, deadline=None)
@given(
    st.sampled_from(list(SAME)),
    st.sampled_from(list(SAME)),
    st.booleans(),
    st.booleans(),
    st.integers(1, 9),
    st.integers(0, 99),
)
def test_scan_is_the_loop(op0, op1, reverse0, reverse1, columns, seed):
    a, b = normal(3, columns, seed=seed), normal(3, columns, seed=seed + 1)
    got = on_tiles(
        lambda a, b, out: nisa.tensor_tensor_scan(out, a, b, 0.5, op0, op1, reverse0=reverse0, reverse1=reverse1),
        {"a": a, "b": b},
        {"out": (a.shape, nl.float32)},
    )
    state = np.full(3, 0.5, np.float32)
    for i in range(columns):
        state = SAME[op0](state, a[:, i]) if reverse0 else SAME[op0](a[:, i], state)
        state = SAME[op1](b[:, i], state) if reverse1 else SAME[op1](state, b[:, i])
        np.testing.assert_allclose(got[:, i], state, rtol=1e-6, atol=1e-6)


def test_scan_carries_fp32_into_a_bf16_tile():
    ones = np.ones((2, 600), np.float32)
    start = np.array([[0.25], [1000.0]], np.float32)
    got = on_tiles(
        lambda ones, start, out: nisa.tensor_tensor_scan(out, ones, ones, start, nl.multiply, nl.add),
        {"ones": ones, "start": start},
        {"out": (ones.shape, nl.bfloat16)},
    )
    exact = start + np.arange(1, 601)
    np.testing.assert_array_equal(got, exact.astype(ml_dtypes.bfloat16))


def test_scan_reads_one_operand_from_psum():
    with pytest.raises(SimulationError, match="data0 and data1 cannot both be in psum"):
        on_tiles(
            lambda a, b, out: nisa.tensor_tensor_scan(out, a, b, 0.0, nl.multiply, nl.add),
            {"psum:a": normal(2, 4), "psum:b": normal(2, 4)},
            {"out": ((2, 4), nl.float32)},
        )


@pytest.mark.parametrize(
    ("op", "fold"), [(nl.add, np.sum), (nl.multiply, np.prod), (nl.maximum, np.max), (nl.min, np.min)]
)
def test_tensor_scalar_reduce_gives_result_and_reduction(op, fold):
    x, factor = normal(33, 3, 5), normal(33, 1, seed=1)
    got, total = on_tiles(
        lambda x, factor, out, total: nisa.tensor_scalar_reduce(out, x, nl.multiply, factor, op, total),
        {"x": x, "factor": factor},
        {"out": (x.shape, nl.float32), "total": ((33, 1), nl.float32)},
    )
    want = x * factor[:, :, None]
    np.testing.assert_array_equal(got, want)
    np.testing.assert_allclose(total[:, 0], fold(want.reshape(33, -1), axis=1), rtol=1e-5, atol=1e-6)


def test_tensor_scalar_reduce_takes_a_unary_operator_and_negates_the_sum():
    x = normal(5, 7)
    got, total = on_tiles(
        lambda x, out, total: nisa.tensor_scalar_reduce(out, x, nl.abs, 0.0, nl.add, total, reduce_res_negate=True),
        {"x": x},
        {"out": (x.shape, nl.float32), "total": ((5, 1), nl.float32)},
    )
    np.testing.assert_array_equal(got, np.abs(x))
    np.testing.assert_allclose(total[:, 0], -np.abs(x).sum(1), rtol=1e-6)


def test_registers_carry_a_sum_over_tiles_and_start_where_told():
    x, start = normal(6, 4, 5), normal(6, 1, seed=1)
    total, loaded = on_tiles(
        lambda x, start, out, total, loaded: (
            nisa.tensor_scalar_reduce(out, x[:, 0, :], nl.add, 0.0, nl.add),
            nisa.tensor_scalar_reduce(out, x[:, 1, :], nl.add, 0.0, nl.add, total, reduce_cmd=nisa.reduce_cmd.reduce),
            nisa.tensor_scalar_reduce(
                out, x[:, 2, :], nl.add, 0.0, nl.add, loaded, reduce_cmd=nisa.reduce_cmd.load_reduce, reduce_init=start
            ),
        ),
        {"x": x, "start": start, "out": normal(6, 5)},
        {"total": ((6, 1), nl.float32), "loaded": ((6, 1), nl.float32)},
    )
    np.testing.assert_allclose(total[:, 0], x[:, :2].sum((1, 2)), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(loaded[:, 0], x[:, 2].sum(1) + start[:, 0], rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("options", "rule"),
    [
        ({"reverse0": True}, "reverse0 must be False"),
        ({"reduce_init": 1.0}, "reduce_init goes with reduce_cmd.load_reduce"),
        ({"reduce_op": nl.subtract}, "reduce_op must be one of nl.add"),
        ({"op0": nl.bitwise_and}, "arithmetic operator"),
        ({"reduce_cmd": nisa.reduce_cmd.idle}, "reduce_cmd must be one of reduce, reset_reduce, load_reduce, got idle"),
    ],
)
def test_tensor_scalar_reduce_rules(options, rule):
    arguments = {"op0": nl.add, "operand0": 1.0, "reduce_op": nl.add} | options
    with pytest.raises(SimulationError, match=rule):
        on_tiles(
            lambda x, out: nisa.tensor_scalar_reduce(out, x, **arguments),
            {"x": normal(2, 4)},
            {"out": ((2, 4), nl.float32)},
        )


@pytest.mark.parametrize(
    ("op", "accumulate"),
    [
        (nl.add, np.add.accumulate),
        (nl.multiply, np.multiply.accumulate),
        (nl.maximum, np.maximum.accumulate),
        (nl.minimum, np.minimum.accumulate),
    ],
)
def test_tensor_scalar_cumulative_runs_along_the_row(op, accumulate):
    x = normal(17, 11)
    got = on_tiles(
        lambda x, out: nisa.tensor_scalar_cumulative(out, x, nl.add, op, 0.25), {"x": x}, {"out": (x.shape, nl.float32)}
    )
    np.testing.assert_allclose(got, accumulate(x + np.float32(0.25), axis=1), rtol=1e-6, atol=1e-6)


def test_tensor_scalar_cumulative_goes_on_in_the_next_tile():
    x = normal(3, 10)
    got = on_tiles(
        lambda x, out: (
            nisa.tensor_scalar_cumulative(
                out[:, 0:4], x[:, 0:4], nl.multiply, nl.add, 2.0, imm1=10.0, reduce_cmd=nisa.reduce_cmd.load_reduce
            ),
            nisa.tensor_scalar_cumulative(
                out[:, 4:10], x[:, 4:10], nl.multiply, nl.add, 2.0, reduce_cmd=nisa.reduce_cmd.reduce
            ),
        ),
        {"x": x},
        {"out": (x.shape, nl.float32)},
    )
    np.testing.assert_allclose(got, 10 + np.cumsum(2 * x, axis=1), rtol=1e-6, atol=1e-5)


def test_tensor_scalar_cumulative_refuses_32_bit_integers():
    with pytest.raises(SimulationError, match="src must not be a 32-bit integer tile, got int32"):
        on_tiles(
            lambda x, out: nisa.tensor_scalar_cumulative(out, x, nl.add, nl.add, 0.0),
            {"x": np.ones((2, 4), np.int32)},
            {"out": ((2, 4), nl.float32)},
        )


@pytest.mark.parametrize("columns", [1, 2, 7, 512])
def test_bn_stats_of_even_and_odd_elements(columns):
    x = normal(9, columns)
    got = on_tiles(lambda x, out: nisa.bn_stats(out, x), {"x": x}, {"out": ((9, 6), nl.float32)})
    for half in range(2):
        part = x[:, half::2].astype(np.float64)
        count = part.shape[1]
        want = np.zeros((9, 3))
        if count:
            want = np.stack([np.full(9, count), part.mean(1), part.var(1) * count], axis=1)
        np.testing.assert_allclose(got[:, 3 * half : 3 * half + 3], want, rtol=1e-5, atol=1e-5)


def test_bn_aggr_of_several_pieces_is_the_whole_row():
    x = normal(5, 1029) + 3
    got = on_tiles(
        lambda x, stats, out: (
            *(nisa.bn_stats(stats[:, 6 * n : 6 * n + 6], x[:, 512 * n : min(1029, 512 * n + 512)]) for n in range(3)),
            nisa.bn_aggr(out, stats),
        ),
        {"x": x, "stats": normal(5, 18)},
        {"out": ((5, 2), nl.float32)},
    )
    np.testing.assert_allclose(got, np.stack([x.mean(1, dtype=float), x.var(1, dtype=float)], axis=1), rtol=1e-5)


def test_bn_stats_limit():
    with pytest.raises(SimulationError, match="at most 512 elements per partition, got 513"):
        on_tiles(lambda x, out: nisa.bn_stats(out, x), {"x": normal(2, 513)}, {"out": ((2, 6), nl.float32)})
