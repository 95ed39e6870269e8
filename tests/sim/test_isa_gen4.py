import numpy as np
import pytest

from tests.sim.tiles import normal, on_tiles
from trnqc.errors import SimulationError
from trnqc.sim.nki import isa as nisa
from trnqc.sim.nki import language as nl


def test_exponential_with_its_sum():
    x = normal(33, 17)
    top = x.max(1, keepdims=True)
    got, total = on_tiles(
        lambda x, top, out, total: nisa.exponential(out, x, top, total, nisa.reduce_cmd.reset_reduce),
        {"x": x, "top": top},
        {"out": (x.shape, nl.float32), "total": ((33, 1), nl.float32)},
        "trn3",
    )
    want = np.exp(x.astype(np.float64) - top)
    np.testing.assert_allclose(got, want, rtol=1e-6)
    np.testing.assert_allclose(total[:, 0], want.sum(1), rtol=1e-6)


def test_exponential_starts_from_a_given_sum_and_goes_on():
    x = normal(3, 8)
    (total,) = [
        on_tiles(
            lambda x, out, total: (
                nisa.exponential(out, x, reduce_cmd=nisa.reduce_cmd.load_reduce, reduce_init=100.0),
                nisa.exponential(out, x, reduce_res=total, reduce_cmd=nisa.reduce_cmd.reduce),
            ),
            {"x": x, "out": x},
            {"total": ((3, 1), nl.float32)},
            "trn3",
        )
    ]
    np.testing.assert_allclose(total[:, 0], 100 + 2 * np.exp(x).sum(1), rtol=1e-6)


@pytest.mark.parametrize(
    ("op0", "op1", "reverse", "stage"),
    [
        (nl.multiply, nl.add, (False, False), lambda x, a, b: x * a + b),
        (nl.multiply, nl.subtract, (False, True), lambda x, a, b: b - x * a),
        (nl.subtract, nl.bypass, (True, False), lambda x, a, b: a - x),
        (nl.bypass, nl.bypass, (False, False), lambda x, a, b: x),
    ],
)
def test_activate2_stages(op0, op1, reverse, stage):
    x, a = normal(7, 9), normal(7, 1, seed=1)
    got, top = on_tiles(
        lambda x, a, out, top: nisa.activate2(
            out,
            nl.square,
            x,
            a,
            0.75,
            op0,
            op1,
            reverse0=reverse[0],
            reverse1=reverse[1],
            reduce_op=nl.maximum,
            reduce_res=top,
            reduce_cmd=nisa.reduce_cmd.reset_reduce,
        ),
        {"x": x, "a": a},
        {"out": (x.shape, nl.float32), "top": ((7, 1), nl.float32)},
        "trn3",
    )
    want = stage(x, a, 0.75) ** 2
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(top[:, 0], want.max(1), rtol=1e-5, atol=1e-6)


def test_activate2_prelu_slope_of_each_partition():
    x, slope = normal(5, 9), normal(5, 1, seed=1)
    got = on_tiles(
        lambda x, slope, out: nisa.activate2(out, nl.prelu, x, 0.0, 0.0, nl.bypass, nl.bypass, relu_param=slope),
        {"x": x, "slope": slope},
        {"out": (x.shape, nl.float32)},
        "trn3",
    )
    np.testing.assert_array_equal(got, np.where(x > 0, x, x * slope))


@pytest.mark.parametrize(
    ("call", "target", "rule"),
    [
        (lambda x, out: nisa.exponential(out, x), "trn2", "exponential needs trn3"),
        (lambda x, out: nisa.exponential(out, x, reduce_init=1.0), "trn3", "reduce_init must be 0.0 unless"),
        (lambda x, out: nisa.activate2(out, nl.exp, x, 1.0, 1.0, nl.add, nl.multiply), "trn3", "must be one of"),
        (
            lambda x, out: nisa.activate2(out, nl.exp, x, 1.0, 1.0, nl.bypass, nl.bypass, reverse0=True),
            "trn3",
            "reverse0 needs op0 to be set",
        ),
    ],
)
def test_gen4_rules(call, target, rule):
    with pytest.raises(SimulationError, match=rule):
        on_tiles(call, {"x": normal(2, 8)}, {"out": ((2, 8), nl.float32)}, target)
