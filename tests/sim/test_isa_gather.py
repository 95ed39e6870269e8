import numpy as np
import pytest

from tests.sim.tiles import normal, on_tiles
from trnqc.errors import SimulationError
from trnqc.sim.nki import isa as nisa
from trnqc.sim.nki import language as nl


@pytest.mark.parametrize("shape", [(1, 1), (128, 513), (37, 5, 3)])
def test_n_gather_takes_along_the_flattened_row(shape):
    data = normal(*shape)
    flat = data.reshape(shape[0], -1)
    index = np.random.default_rng(1).integers(0, flat.shape[1], (shape[0], 11)).astype(np.uint32)
    got = on_tiles(
        lambda data, index, out: nisa.nc_n_gather(dst=out, data=data, indices=index),
        {"data": data, "index": index},
        {"out": ((shape[0], 11), nl.float32)},
    )
    np.testing.assert_array_equal(got, np.take_along_axis(flat, index.astype(int), axis=1))


def test_n_gather_index_must_exist():
    with pytest.raises(SimulationError, match="indices must be below 5, got 5"):
        on_tiles(
            lambda data, index, out: nisa.nc_n_gather(dst=out, data=data, indices=index),
            {"data": normal(2, 5), "index": np.array([[0], [5]], np.uint32)},
            {"out": ((2, 1), nl.float32)},
        )


def gathered(data, index, width, count, out_columns):
    return on_tiles(
        lambda data, index, out: nisa.local_gather(out, data, index, num_elem_per_idx=width, num_valid_indices=count),
        {"data": data, "index": index},
        {"out": ((len(data), out_columns), nl.float32)},
    )


@pytest.mark.parametrize(("width", "count"), [(1, None), (4, 60), (2, 1)])
def test_local_gather_reads_indices_down_the_columns_of_each_core(width, count):
    data = normal(48, 64)
    index = np.random.default_rng(2).integers(0, 64 // width, (48, 4)).astype(np.uint16) * width
    n = 64 if count is None else count
    got = gathered(data, index, width, count, n * width + 3)
    for core in range(3):
        group = slice(16 * core, 16 * core + 16)
        starts = index[group].flatten(order="F")[:n].astype(int)
        want = data[group][:, (starts[:, None] + np.arange(width)).reshape(-1)]
        np.testing.assert_array_equal(got[group, : n * width], want)
    assert not got[:, n * width :].any()


@pytest.mark.parametrize(
    ("rows", "width", "count", "columns", "rule"),
    [
        (24, 1, None, 64, "multiple of 16, got 24"),
        (16, 3, None, 192, "num_elem_per_idx must be one of"),
        (16, 1, 65, 65, "between 1 and 64"),
        (16, 2, None, 64, "must hold 64 x 2 elements"),
    ],
)
def test_local_gather_rules(rows, width, count, columns, rule):
    with pytest.raises(SimulationError, match=rule):
        gathered(normal(rows, 64), np.zeros((rows, 4), np.uint16), width, count, columns)


def test_stream_shuffle_permutes_each_quadrant_and_keeps_255():
    x, old = normal(128, 3, seed=1), normal(128, 3, seed=2)
    mask = [(7 * i + 3) % 32 for i in range(32)]
    mask[4] = mask[31] = 255
    got = on_tiles(
        lambda x, old: nisa.nc_stream_shuffle(dst=old, src=x, shuffle_mask=mask),
        {"x": x, "old": old},
        {"old": (x.shape, None)},
    )
    for p in range(128):
        row = old[p] if mask[p % 32] == 255 else x[p // 32 * 32 + mask[p % 32]]
        np.testing.assert_array_equal(got[p], row)


def test_stream_shuffle_spreads_one_partition_in_place():
    x = normal(32, 5)
    got = on_tiles(
        lambda x: nisa.nc_stream_shuffle(dst=x, src=x[0:1, :], shuffle_mask=[0] * 32), {"x": x}, {"x": (x.shape, None)}
    )
    np.testing.assert_array_equal(got, np.tile(x[:1], (32, 1)))


@pytest.mark.parametrize(
    ("start", "mask", "rule"),
    [
        (16, [0] * 32, "must start at partition 0, 32, 64, 96"),
        (0, [0] * 31, "list of 32 integers"),
        (0, [33] * 32, "within \\[0, 32\\) or 255"),
        (0, [9] * 32, "reads partition 9 of src, which has 8"),
    ],
)
def test_stream_shuffle_rules(start, mask, rule):
    with pytest.raises(SimulationError, match=rule):
        on_tiles(
            lambda x, out: nisa.nc_stream_shuffle(dst=out[start : start + 8, :], src=x, shuffle_mask=mask),
            {"x": normal(8, 4)},
            {"out": ((64, 4), nl.float32)},
        )
