import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sim.tiles import normal, on_tiles
from trnqc.errors import SimulationError
from trnqc.sim.nki import isa as nisa
from trnqc.sim.nki import language as nl

BF16 = ml_dtypes.bfloat16


@pytest.mark.parametrize("shape", [(1, 8), (128, 9), (7, 3, 5), (128, 16384)])
def test_max8_is_the_head_of_the_sorted_row(shape):
    x = normal(*shape)
    got = on_tiles(lambda x, top: nisa.max8(dst=top, src=x), {"x": x}, {"top": ((shape[0], 8), nl.float32)})
    np.testing.assert_array_equal(got, -np.sort(-x.reshape(shape[0], -1), axis=1)[:, :8])


@pytest.mark.parametrize(("columns", "message"), [(7, "7"), (16385, "16385")])
def test_max8_wants_8_to_16384_elements(columns, message):
    with pytest.raises(SimulationError, match=f"between 8 and 16384 elements per partition, got {message}"):
        on_tiles(lambda x, top: nisa.max8(dst=top, src=x), {"x": normal(1, columns)}, {"top": ((1, 8), nl.float32)})


@pytest.mark.parametrize("dtype", [nl.uint32, nl.uint16])
def test_find_index8_gives_first_places_and_all_ones_for_strangers(dtype):
    data = np.tile(np.array([5, 1, 4, 4, 9, 2, 6, 5, 3], np.float32), (33, 1))
    vals = np.tile(np.array([4, 4, 4, 5, 9, 77, 3, 1], np.float32), (33, 1))
    got = on_tiles(
        lambda data, vals, place: nisa.nc_find_index8(dst=place, data=data, vals=vals),
        {"data": data, "vals": vals},
        {"place": ((33, 8), dtype)},
    )
    absent = np.iinfo(got.dtype).max
    np.testing.assert_array_equal(got, np.tile([2, 3, absent, 0, 4, absent, 8, 1], (33, 1)))


def test_match_replace8_pairs_equal_values_from_the_last():
    data = np.array([[1, 2, 3, 4, 8, 8, 8, 8, 8, 8, 8]], np.float32)
    vals = np.array([[3, 8, 8, 8, 8, 8, 8, 8]], np.float32)
    replaced, place = on_tiles(
        lambda data, vals, out, place: nisa.nc_match_replace8(dst=out, data=data, vals=vals, imm=0.0, dst_idx=place),
        {"data": data, "vals": vals},
        {"out": ((1, 11), nl.float32), "place": ((1, 8), nl.uint32)},
    )
    np.testing.assert_array_equal(place, [[2, 10, 9, 8, 7, 6, 5, 4]])
    np.testing.assert_array_equal(replaced, [[1, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0]])


@settings(max_examples=25, deadline=None)
@given(st.integers(8, 40), st.integers(0, 2**32 - 1), st.integers(1, 6))
def test_replacing_removes_exactly_what_was_found(columns, seed, alphabet):
    rng = np.random.default_rng(seed)
    data = rng.integers(0, alphabet, (5, columns)).astype(np.float32)
    vals = rng.integers(0, alphabet + 2, (5, 8)).astype(np.float32)
    replaced, result = on_tiles(
        lambda data, vals, out, place: (
            nisa.nc_find_index8(dst=place, data=data, vals=vals),
            nisa.nc_match_replace8(dst=out, data=data, vals=vals, imm=-1.0),
        ),
        {"data": data, "vals": vals},
        {"out": ((5, columns), nl.float32), "place": ((5, 8), nl.uint32)},
    )
    for p in range(5):
        places = result[p][result[p] < columns]
        assert len(set(places.tolist())) == len(places)
        np.testing.assert_array_equal(np.flatnonzero(replaced[p] == -1), np.sort(places))


def test_topk_reads_sixteen_partitions_as_one_row():
    n, columns, k = 42, 3, 8
    values = np.random.default_rng(3).permutation(200)[: 2 * n].reshape(2, n).astype(BF16)
    src = np.zeros((32, columns), BF16)
    for group in range(2):
        for e in range(n):
            src[16 * group + e % 16, e // 16] = values[group, e]
    top, place = on_tiles(
        lambda src, top, place: nisa.topk(val_dst=top, idx_dst=place, src=src, n=n),
        {"src": src},
        {"top": ((32, k), nl.bfloat16), "place": ((32, k), nl.uint32)},
    )
    for p in range(32):
        row = values[p // 16].astype(np.float32)
        np.testing.assert_array_equal(top[p].astype(np.float32), np.sort(row)[-k:])
        np.testing.assert_array_equal(row[place[p]], top[p].astype(np.float32))


@pytest.mark.parametrize(
    ("rows", "n", "k", "rule"),
    [(15, 42, 8, "multiple of 16, got 15"), (16, 7, 4, "n must be"), (16, 49, 8, "3 columns"), (16, 42, 43, "K <= n")],
)
def test_topk_limits(rows, n, k, rule):
    with pytest.raises(SimulationError, match=rule):
        on_tiles(
            lambda src, top, place: nisa.topk(val_dst=top, idx_dst=place, src=src, n=n),
            {"src": np.zeros((rows, 3), BF16)},
            {"top": ((rows, k), nl.bfloat16), "place": ((rows, k), nl.uint32)},
        )


@pytest.mark.parametrize("dtype", [np.float32, np.int32])
def test_nonzero_with_count_touches_every_sixteenth_partition(dtype):
    x = (np.random.default_rng(5).random((49, 13)) < 0.4).astype(dtype)
    got = on_tiles(
        lambda x, out: (
            nisa.memset(dst=out, value=7),
            nisa.nonzero_with_count(dst=out, src=x, index_offset=100, padding_val=-9),
        ),
        {"x": x},
        {"out": ((49, 14), nl.int32)},
    )
    for p in range(49):
        places = np.flatnonzero(x[p]) + 100
        line = [*places, *[-9] * (13 - len(places)), len(places)] if p % 16 == 0 else [7] * 14
        np.testing.assert_array_equal(got[p], line)


def test_nonzero_with_count_needs_trn2():
    with pytest.raises(SimulationError, match=r"needs trn2 \(gen3\) or later, got trn1"):
        on_tiles(
            lambda x, out: nisa.nonzero_with_count(dst=out, src=x),
            {"x": np.ones((1, 8), np.int32)},
            {"out": ((1, 9), nl.int32)},
            target="trn1",
        )


def test_sequence_bounds_of_padded_segments():
    ids = np.array([[0, 1, 1, 2, 2, 2, 0, 3, 3]], np.int32)
    got = on_tiles(
        lambda ids, out: nisa.sequence_bounds(dst=out, segment_ids=ids), {"ids": ids}, {"out": ((1, 2, 9), nl.int32)}
    )
    np.testing.assert_array_equal(got[0], [[9, 1, 1, 3, 3, 3, 9, 7, 7], [-1, 3, 3, 6, 6, 6, -1, 9, 9]])


@pytest.mark.parametrize("ids", [[0], [4], [1, 1, 1], [0, 0]])
def test_sequence_bounds_of_one_segment(ids):
    n = len(ids)
    got = on_tiles(
        lambda ids, out: nisa.sequence_bounds(dst=out, segment_ids=ids),
        {"ids": np.array([ids], np.float32)},
        {"out": ((1, 2, n), nl.float32)},
    )
    np.testing.assert_array_equal(got[0], [[n] * n, [-1] * n] if ids[0] == 0 else [[0] * n, [n] * n])
