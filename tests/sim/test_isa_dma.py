"""DMA: copies, runtime offsets, gathers and scatters, sums and transposes."""

import ml_dtypes
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sim.running import run
from tests.sim.tiles import normal
from trnqc.errors import SimulationError
from trnqc.sim.nki import isa as nisa
from trnqc.sim.nki import language as nl

TABLE = normal(37, 24)


def out_like(x):
    return nl.ndarray(x.shape, x.dtype, nl.shared_hbm)


def test_shapes_may_differ_where_counts_agree():
    def body(x):
        tile, out = nl.ndarray((6, 4, 37), nl.float32), nl.ndarray((37 * 24,), nl.float32, nl.shared_hbm)
        nisa.dma_copy(tile, x)
        nisa.dma_copy(out, tile)
        return out

    np.testing.assert_array_equal(run(body, TABLE), TABLE.ravel())


def test_between_hbm_tensors():
    def body(x):
        out = out_like(x)
        nisa.dma_copy(out[1:37, ::2], x[0:36, ::2])
        nisa.dma_copy(out[0], x[36])
        return out

    got = run(body, TABLE)
    np.testing.assert_array_equal(got[1:, ::2], TABLE[:36, ::2])
    np.testing.assert_array_equal(got[0], TABLE[36])
    assert np.isnan(got[1:, 1::2]).all()


def moved(index, use):
    """Result of ``use(x, register, index_tile, out)`` with one runtime index."""

    def body(x, i):
        tile, register, out = nl.load(i), nisa.register_alloc(), nl.ndarray((5, 24), nl.float32, nl.shared_hbm)
        nisa.register_load(register, tile)
        use(x, register, tile, out)
        return out

    return run(body, TABLE, np.array([[index]], np.int32))


ROWS = {
    "register": lambda x, reg, tile, out: nisa.dma_copy(out, x.ap([[24, 5], [1, 24]], scalar_offset=reg)),
    "tile": lambda x, reg, tile, out: nisa.dma_copy(out, x.ap([[24, 5], [1, 24]], scalar_offset=tile)),
    "static part": lambda x, reg, tile, out: nisa.dma_copy(
        out[:, 2:24], x.ap([[24, 5], [1, 22]], offset=2, scalar_offset=reg, indirect_dim=0)
    ),
}


@pytest.mark.parametrize("use", ROWS)
@settings(max_examples=8, deadline=None)
@given(index=st.integers(0, 32))
def test_scalar_offset_counts_rows_of_the_tensor(use, index):
    got = moved(index, ROWS[use])
    want = TABLE[index : index + 5].copy()
    if use == "static part":
        want[:, :2] = np.nan
    np.testing.assert_array_equal(got, want)


@settings(max_examples=8, deadline=None)
@given(st.integers(0, 20))
def test_scalar_offset_counts_columns_with_indirect_dim_1(index):
    got = moved(
        index,
        lambda x, reg, tile, out: nisa.dma_copy(
            out[:, 0:4], x.ap([[24, 5], [1, 4]], scalar_offset=reg, indirect_dim=1)
        ),
    )
    np.testing.assert_array_equal(got[:, :4], TABLE[0:5, index : index + 4])


@pytest.mark.parametrize("index", [33, 37, -1])
def test_runtime_indices_outside_are_refused_or_skipped(index):
    def copy(mode):
        return lambda x, reg, tile, out: nisa.dma_copy(out, x.ap([[24, 5], [1, 24]], scalar_offset=reg), oob_mode=mode)

    with pytest.raises(SimulationError, match=f"Out-of-bound access for tensor `x`: runtime index {index}"):
        moved(index, copy(nisa.oob_mode.error))
    assert np.isnan(moved(index, copy(nisa.oob_mode.skip))).all()


def test_the_register_is_read_when_the_instruction_runs():
    def body(x):
        register, out = nisa.register_alloc(3), nl.ndarray((1, 24), nl.float32, nl.shared_hbm)
        row = x.ap([[24, 1], [1, 24]], scalar_offset=register)
        nisa.register_move(register, 7)
        nisa.dma_copy(out, row)
        return out

    np.testing.assert_array_equal(run(body, TABLE), TABLE[7:8])


def test_select_with_a_runtime_index():
    cube = normal(4, 5, 6)

    def body(x, i):
        tile, out = nl.load(i), nl.ndarray((5, 3), nl.float32, nl.shared_hbm)
        picked = x.select(0, tile)
        assert picked.is_indirect()
        assert picked.shape == (5, 6)
        nisa.dma_copy(out, picked[:, 1:4])
        return out

    np.testing.assert_array_equal(run(body, cube, np.array([[2]], np.int32)), cube[2][:, 1:4])


INDEX = np.array([[3], [36], [0], [3], [11]], np.int32)


def gathered(index, mode=nisa.oob_mode.error, select=False):
    def body(x, i):
        rows, tile, out = (
            nl.load(i),
            nl.zeros((len(INDEX), 24), nl.float32),
            nl.ndarray((5, 24), nl.float32, nl.shared_hbm),
        )
        view = x.vector_select(0, rows) if select else x.ap([[24, 5], [1, 24]], vector_offset=rows)
        nisa.dma_copy(tile, view, oob_mode=mode)
        nisa.dma_copy(out, tile)
        return out

    return run(body, TABLE, index)


@pytest.mark.parametrize("select", [False, True])
def test_gather(select):
    np.testing.assert_array_equal(gathered(INDEX, select=select), TABLE[INDEX[:, 0]])


def test_gather_outside():
    index = INDEX.copy()
    index[1] = 37
    with pytest.raises(SimulationError, match="vector_offset of row 1 leaves the tensor"):
        gathered(index)
    want = TABLE[np.where(index < 37, index, 0)[:, 0]]
    want[1] = 0
    np.testing.assert_array_equal(gathered(index, nisa.oob_mode.skip), want)


def test_scatter():
    index = np.array([[3], [36], [0], [4], [11]], np.int32)

    def body(x, i):
        rows, tile, out = nl.load(i), nl.load(x[5:10]), out_like(x)
        nisa.dma_copy(out.ap([[24, 5], [1, 24]], vector_offset=rows), tile)
        return out

    got = run(body, TABLE, index)
    np.testing.assert_array_equal(got[index[:, 0]], TABLE[5:10])
    assert np.isnan(np.delete(got, index[:, 0], axis=0)).all()


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (
            lambda x, t: nl.zeros((8, 24), nl.float32).ap([[24, 5], [1, 24]], vector_offset=t),
            "needs indirect_dim 0 of an HBM",
        ),
        (lambda x, t: x.ap([[24, 6], [1, 24]], vector_offset=t), "has 5 indices for 6 rows"),
        (lambda x, t: x.ap([[24, 5], [1, 24]], vector_offset=t, scalar_offset=t), "at most one of"),
        (lambda x, t: x.ap([[24, 5], [1, 24]], scalar_offset=t), r"must be a register or a \(1, 1\) integer tensor"),
        (lambda x, t: x.ap([[24, 5], [1, 24]], scalar_offset=3), r"must be a register or a \(1, 1\) integer tensor"),
        (lambda x, t: x.vector_select(0, t).vector_select(0, t), "only one runtime index per tensor"),
        (lambda x, t: x.vector_select(0, t)[0:2], "takes part in indirect addressing"),
        (lambda x, t: x.vector_select(0, t).permute((1, 0)), "must keep the partition dimension first"),
        (lambda x, t: x.vector_select(0, t).view(nl.int32), "not available on an indirect view"),
    ],
)
def test_indirect_views_that_do_not_exist(make, message):
    with pytest.raises(SimulationError, match=message):
        run(lambda x, i: make(x, nl.load(i)), TABLE, INDEX)


def test_only_dma_reads_row_by_row():
    def body(x, i):
        nisa.tensor_copy(nl.ndarray((5, 24), nl.float32), x.vector_select(0, nl.load(i)))

    with pytest.raises(SimulationError, match=r"must be in \['sbuf','psum'\], got private_hbm"):
        run(body, TABLE, INDEX)


def test_sum_of_sources():
    def body(x):
        out = nl.ndarray(x.shape, nl.bfloat16, nl.shared_hbm)
        nisa.dma_compute(out, [x, x, x], nl.add)
        return out

    np.testing.assert_array_equal(run(body, TABLE), (TABLE + TABLE + TABLE).astype(ml_dtypes.bfloat16))


def test_sum_into_gathered_rows():
    index = np.array([[3], [36], [0], [4], [11]], np.int32)

    def body(x, i):
        rows, out = nl.load(i), out_like(x)
        nisa.dma_copy(out, x)
        view = out.ap([[24, 5], [1, 24]], vector_offset=rows)
        nisa.dma_compute(view, [view, nl.load(x[0:5])], nl.add)
        return out

    want = TABLE.copy()
    want[index[:, 0]] += TABLE[:5]
    np.testing.assert_array_equal(run(body, TABLE, index), want)


@pytest.mark.parametrize(
    ("shape", "axes"), [((37, 24), None), ((37, 24), (1, 0)), ((5, 6, 7), (2, 1, 0)), ((5, 6, 2, 7), (3, 1, 2, 0))]
)
def test_transposes(shape, axes):
    x = normal(*shape)
    order = axes or (1, 0)

    def body(x):
        tile = nl.ndarray([shape[a] for a in order], nl.float32)
        nisa.dma_transpose(tile, x, axes=axes)
        out = out_like(tile)
        nisa.dma_copy(out, tile)
        return out

    np.testing.assert_array_equal(run(body, x), x.transpose(order))


def test_hardware_descriptors_transpose_16_rows_of_two_bytes():
    def body(x):
        tile = nl.ndarray((x.shape[1], x.shape[0]), x.dtype)
        nisa.dma_transpose(tile, x, dge_mode=nisa.dge_mode.hwdge)
        out = out_like(tile)
        nisa.dma_copy(out, tile)
        return out

    x = normal(16, 100, dtype=ml_dtypes.bfloat16)
    np.testing.assert_array_equal(run(body, x), x.T)
    for wrong in (normal(16, 100), normal(15, 100, dtype=ml_dtypes.bfloat16)):
        with pytest.raises(SimulationError, match="needs a 2-byte dtype"):
            run(body, wrong)
