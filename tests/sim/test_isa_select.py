import numpy as np
import pytest

from tests.sim.tiles import normal, on_tiles
from trnqc.errors import SimulationError
from trnqc.sim.nki import isa as nisa
from trnqc.sim.nki import language as nl

LOWEST = float(np.finfo(np.float32).min)


@pytest.mark.parametrize("dtype", [nl.int32, nl.float32, nl.uint8])
def test_iota_runs_the_last_pair_fastest(dtype):
    got = on_tiles(
        lambda out: nisa.iota(dst=out, pattern=[[20, 2], [0, 3], [1, 5]], offset=7, channel_multiplier=3),
        {},
        {"out": ((5, 6, 5), dtype)},
    )
    p, a, _, c = np.ogrid[:5, :2, :3, :5]
    want = np.broadcast_to(7 + 3 * p + 20 * a + c, (5, 2, 3, 5)).reshape(5, 6, 5)
    np.testing.assert_array_equal(got, want)


def test_iota_wraps_in_32_bits():
    got = on_tiles(
        lambda out: nisa.iota(dst=out, pattern=[[2**14, 4]], offset=2**31 - 2**15), {}, {"out": ((1, 4), nl.int32)}
    )
    assert got.tolist() == [[2**31 - 2**15, 2**31 - 2**14, -(2**31), 2**14 - 2**31]]


@pytest.mark.parametrize("step", [2**15, -(2**15) - 1])
def test_iota_steps_have_16_bits(step):
    with pytest.raises(SimulationError, match=rf"steps have 16 bits, from -32768 to 32767; got {step}"):
        on_tiles(lambda out: nisa.iota(dst=out, pattern=[[step, 4]]), {}, {"out": ((1, 4), nl.int32)})
    edge = step - 1 if step > 0 else step + 1
    on_tiles(lambda out: nisa.iota(dst=out, pattern=[[edge, 4]]), {}, {"out": ((1, 4), nl.int32)})


def test_iota_pattern_must_fill_the_tile():
    with pytest.raises(SimulationError, match=r"as many elements as dst per partition \(30\), got 29"):
        on_tiles(lambda out: nisa.iota(dst=out, pattern=[[1, 29]]), {}, {"out": ((5, 30), nl.int32)})


@pytest.mark.parametrize(("compare", "keep"), [(nl.greater_equal, np.tril), (nl.less_equal, np.triu)])
def test_affine_select_cuts_a_triangle(compare, keep):
    x = normal(127, 127)
    got = on_tiles(
        lambda x, out: nisa.affine_select(
            dst=out, pattern=[[-1, 127]], channel_multiplier=1, on_true_tile=x, on_false_value=-5.0, cmp_op=compare
        ),
        {"x": x},
        {"out": ((127, 127), nl.float32)},
    )
    np.testing.assert_array_equal(got, np.where(keep(np.ones_like(x)) != 0, x, -5.0))


def test_affine_select_does_not_read_psum():
    with pytest.raises(SimulationError, match=r"on_true_tile must be in \['sbuf'\], got psum"):
        on_tiles(
            lambda x, out: nisa.affine_select(out, [[1, 4]], 0, x, 0.0),
            {"psum:x": normal(2, 4)},
            {"out": ((2, 4), nl.float32)},
        )


def ranged(x, low, high, target="trn2", **options):
    return on_tiles(
        lambda x, low, high, out, top: nisa.range_select(
            dst=out,
            on_true_tile=x,
            comp_op0=nl.greater_equal,
            comp_op1=nl.less,
            bound0=low,
            bound1=high,
            reduce_res=top,
            **options,
        ),
        {"x": x, "low": low, "high": high},
        {"out": (x.shape, nl.float32), "top": ((len(x), 1), nl.float32)},
        target,
    )


def test_range_select_keeps_a_window_of_each_row():
    x, start = normal(33, 71), 100
    low = np.arange(33, dtype=np.float32)[:, None] + start
    high = low + 5
    low[32], high[32] = 500, 600
    got, top = ranged(x, low, high, range_start=start)
    place = start + np.arange(71)
    want = np.where((place >= low) & (place < high), x, LOWEST)
    np.testing.assert_array_equal(got, want.astype(np.float32))
    np.testing.assert_array_equal(top[:, 0], want.max(1).astype(np.float32))


@pytest.mark.parametrize(
    ("target", "options", "rule"),
    [
        ("trn1", {}, "needs trn2"),
        ("trn2", {"on_false_value": 0.0}, "on_false_value must be"),
        ("trn2", {"reduce_op": nl.add}, "reduce_op must be one of nl.maximum"),
        ("trn2", {"range_start": 2**24}, "within 2\\^24"),
    ],
)
def test_range_select_rules(target, options, rule):
    with pytest.raises(SimulationError, match=rule):
        ranged(normal(2, 8), normal(2, 1), normal(2, 1), target, **options)


def test_range_select_bounds_are_fp32():
    with pytest.raises(SimulationError, match="bound0 tile must be float32, got int32"):
        ranged(normal(2, 8), np.zeros((2, 1), np.int32), normal(2, 1))


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("scalar", [False, True])
def test_select_reduce_chooses_and_takes_the_maximum(reverse, scalar):
    x, other = normal(31, 13, seed=1), normal(31, 1, seed=2)
    mask = np.random.default_rng(4).integers(0, 2, (31, 13)).astype(np.uint8)
    got, top = on_tiles(
        lambda x, mask, other, out, top: nisa.select_reduce(
            dst=out,
            predicate=mask,
            on_true=x,
            on_false=0.5 if scalar else other,
            reduce_res=top,
            reduce_cmd=nisa.reduce_cmd.reset_reduce,
            reverse_pred=reverse,
        ),
        {"x": x, "mask": mask, "other": other},
        {"out": ((31, 13), nl.float32), "top": ((31, 1), nl.float32)},
    )
    want = np.where((mask != 0) ^ reverse, x, np.float32(0.5) if scalar else other)
    np.testing.assert_array_equal(got, want)
    np.testing.assert_array_equal(top[:, 0], want.max(1))


def test_select_reduce_goes_on_from_the_tile_before():
    x, y = normal(5, 8, seed=1), normal(5, 8, seed=2)
    ones = np.ones((5, 8), np.int8)
    _, top = on_tiles(
        lambda x, y, ones, out, top: (
            nisa.select_reduce(out, ones, x, 0.0, reduce_cmd=nisa.reduce_cmd.reset_reduce),
            nisa.select_reduce(out, ones, y, 0.0, top, reduce_cmd=nisa.reduce_cmd.reduce),
        ),
        {"x": x, "y": y, "ones": ones},
        {"out": ((5, 8), nl.float32), "top": ((5, 1), nl.float32)},
    )
    np.testing.assert_array_equal(top[:, 0], np.maximum(x, y).max(1))


def test_select_reduce_refuses_wide_predicates():
    with pytest.raises(SimulationError, match="predicate must be int8 or uint8 or int16 or uint16, got int32"):
        on_tiles(
            lambda x, mask, out: nisa.select_reduce(out, mask, x, 0.0),
            {"x": normal(2, 8), "mask": np.ones((2, 8), np.int32)},
            {"out": ((2, 8), nl.float32)},
        )


@pytest.mark.parametrize("reverse", [False, True])
def test_tensor_copy_predicated_leaves_the_rest(reverse):
    x, old = normal(9, 5, seed=1), normal(9, 5, seed=2)
    mask = np.random.default_rng(4).integers(0, 3, (9, 5)).astype(np.uint32)
    got = on_tiles(
        lambda x, mask, old: nisa.tensor_copy_predicated(dst=old, src=x, predicate=mask, reverse_pred=reverse),
        {"x": x, "mask": mask, "old": old},
        {"old": ((9, 5), nl.float32)},
    )
    np.testing.assert_array_equal(got, np.where((mask != 0) ^ reverse, x, old))


@pytest.mark.parametrize(
    ("x", "mask", "rule"),
    [
        (normal(2, 4), np.ones((2, 4), np.int32), "predicate must be uint8 or uint16 or uint32, got int32"),
        (normal(2, 4).astype(np.float16), np.ones((2, 4), np.uint8), "same dtype, got float16 and float32"),
    ],
)
def test_tensor_copy_predicated_rules(x, mask, rule):
    with pytest.raises(SimulationError, match=rule):
        on_tiles(
            lambda x, mask, old: nisa.tensor_copy_predicated(dst=old, src=x, predicate=mask),
            {"x": x, "mask": mask, "old": normal(2, 4)},
            {"old": ((2, 4), nl.float32)},
        )


def test_tensor_copy_predicated_reads_one_operand_from_psum():
    with pytest.raises(SimulationError, match="src and predicate cannot both be in psum"):
        on_tiles(
            lambda x, mask, old: nisa.tensor_copy_predicated(dst=old, src=x, predicate=mask),
            {"psum:x": normal(2, 4), "psum:mask": np.ones((2, 4), np.uint32), "old": normal(2, 4)},
            {"old": ((2, 4), nl.float32)},
        )
