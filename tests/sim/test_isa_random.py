import ml_dtypes
import numpy as np
import pytest

from tests.sim.tiles import normal, on_tiles
from trnqc.errors import SimulationError
from trnqc.sim.nki import isa as nisa
from trnqc.sim.nki import language as nl

SEED = np.array([[12345]], np.uint32)
XORWOW_START = [123456789, 362436069, 521288629, 88675123, 5783321, 6615241]


def test_gpsimd_generator_is_marsaglias_xorwow():
    got = on_tiles(
        lambda state, out: (nisa.rand_set_state(state), nisa.rng(out, engine=nisa.engine.gpsimd)),
        {"state": np.tile(np.array(XORWOW_START, np.uint32), (3, 1))},
        {"out": ((3, 5), nl.uint32)},
    )
    x, y, z, w, v, d = XORWOW_START
    want = []
    for _ in range(5):
        t = x ^ (x >> 2)
        x, y, z, w = y, z, w, v
        v = (v ^ (v << 4) ^ t ^ (t << 1)) & 0xFFFFFFFF
        d = (d + 362437) & 0xFFFFFFFF
        want.append((v + d) & 0xFFFFFFFF)
    np.testing.assert_array_equal(got, np.tile(want, (3, 1)))


def test_state_read_back_continues_the_sequence():
    first, state = on_tiles(
        lambda seed, first, state, rest: (
            nisa.rand_set_state(seed),
            nisa.rng(first[:, 0:4], engine=nisa.engine.gpsimd),
            nisa.rand_get_state(state),
            nisa.rng(first[:, 4:9], engine=nisa.engine.gpsimd),
        ),
        {"seed": np.arange(12, dtype=np.uint32).reshape(2, 6), "rest": normal(1, 1)},
        {"first": ((2, 9), nl.uint32), "state": ((2, 6), nl.uint32)},
    )
    again = on_tiles(
        lambda state, out: (nisa.rand_set_state(state), nisa.rng(out, engine=nisa.engine.gpsimd)),
        {"state": state},
        {"out": ((2, 5), nl.uint32)},
    )
    np.testing.assert_array_equal(again, first[:, 4:])


def bits(seed, dtype=nl.uint32, target="trn2"):
    return on_tiles(
        lambda seed, out: (nisa.set_rng_seed(seed), nisa.rng(out)), {"seed": seed}, {"out": ((128, 64), dtype)}, target
    )


@pytest.mark.parametrize("target", ["trn1", "trn2", "trn3"])
def test_same_seed_same_bits_other_seed_other_bits(target):
    np.testing.assert_array_equal(bits(SEED, target=target), bits(SEED, target=target))
    assert (bits(SEED, target=target) != bits(SEED + 1, target=target)).mean() > 0.99


def test_narrow_tiles_keep_the_low_bits():
    np.testing.assert_array_equal(bits(SEED, nl.uint8), bits(SEED).astype(np.uint8))


def test_bits_are_balanced():
    ones = np.unpackbits(bits(SEED).view(np.uint8)).mean()
    assert abs(ones - 0.5) < 5 * 0.5 / np.sqrt(128 * 64 * 32)


@pytest.mark.parametrize(("prob", "dropped"), [(0.0, 0.0), (1.0, 1.0), (0.3, 0.3)])
@pytest.mark.parametrize("dtype", [np.float32, ml_dtypes.bfloat16, np.int32])
def test_dropout_zeroes_the_asked_share_and_keeps_the_rest(prob, dropped, dtype):
    x = (np.arange(128 * 100).reshape(128, 100) % 100 + 1).astype(dtype)
    got = on_tiles(
        lambda seed, x, out: (nisa.set_rng_seed(seed), nisa.dropout(out, x, prob)),
        {"seed": SEED, "x": x},
        {"out": (x.shape, x.dtype)},
    )
    gone = got == 0
    assert abs(gone.mean() - dropped) <= 5 * np.sqrt(dropped * (1 - dropped) / x.size)
    np.testing.assert_array_equal(got[~gone], x[~gone])


def test_dropout_probability_of_each_partition():
    x, prob = np.ones((4, 2000), np.float32), np.array([[0.0], [1.0], [0.0], [1.0]], np.float32)
    got = on_tiles(lambda x, prob, out: nisa.dropout(out, x, prob), {"x": x, "prob": prob}, {"out": (x.shape, x.dtype)})
    np.testing.assert_array_equal(got.mean(1), 1 - prob[:, 0])


def test_rand2_is_uniform_between_its_bounds():
    low, high = np.array([[-1.0]] * 64, np.float32), np.linspace(1, 3, 64, dtype=np.float32)[:, None]
    got = on_tiles(
        lambda low, high, out: nisa.rand2(out, low, high),
        {"low": low, "high": high},
        {"out": ((64, 999), nl.float32)},
        "trn3",
    )
    unit = (got - low) / (high - low)
    assert unit.min() >= 0 and unit.max() <= 1
    assert abs(unit.mean() - 0.5) < 5 * np.sqrt(1 / 12 / unit.size)


@pytest.mark.parametrize(
    ("call", "target", "rule"),
    [
        (lambda out: nisa.rand2(out, 0.0, 1.0), "trn2", "rand2 needs trn3"),
        (lambda out: nisa.rand2(out, 1.0, 1.0), "trn3", "min must be below max"),
        (lambda out: nisa.rng(out), "trn2", "rng dst must be int8 or .* got float32"),
        (lambda out: nisa.rng(out, engine=nisa.engine.gpsimd), "trn1", "rng on the gpsimd engine needs trn2"),
        (lambda out: nisa.rand_get_state(out), "trn2", "dst must be uint32, got float32"),
    ],
)
def test_random_rules(call, target, rule):
    with pytest.raises(SimulationError, match=rule):
        on_tiles(lambda out: call(out), {}, {"out": ((4, 6), nl.float32)}, target)
