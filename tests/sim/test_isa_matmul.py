"""nc_matmul and nc_transpose: products, accumulation states of PSUM, PE tiling, formats, exact moves."""

import ml_dtypes
import numpy as np
import pytest

from tests.sim.running import run
from tests.sim.tiles import normal, on_tiles
from trnqc.errors import SimulationError
from trnqc.sim.nki import isa as nisa
from trnqc.sim.nki import language as nl

F32_ROUNDING = 2e-6  # relative to the sum of magnitudes: sums of up to 128 products in fp32


def product(a, b, target="trn2", dst=nl.float32, **options):
    def body(a, b, out):
        m, n = a.shape[-1], b.shape[-1]
        psum = nl.ndarray((m, n), dst, nl.psum)
        nisa.nc_matmul(psum, a, b, **options)
        nisa.tensor_copy(out, psum)

    return on_tiles(body, {"a": a, "b": b}, {"out": ((a.shape[-1], b.shape[-1]), dst)}, target)


@pytest.mark.parametrize(("k", "m", "n"), [(1, 1, 1), (128, 128, 512), (127, 33, 509), (5, 128, 1)])
def test_product(k, m, n):
    a, b = normal(k, m), normal(k, n, seed=1)
    assert np.all(np.abs(product(a, b) - a.T @ b) <= F32_ROUNDING * (np.abs(a).T @ np.abs(b)))


@pytest.mark.parametrize("left", [ml_dtypes.bfloat16, np.float16, ml_dtypes.float8_e4m3, ml_dtypes.float8_e5m2])
def test_narrow_operands_multiply_exactly(left):
    a, b = normal(16, 8, dtype=left), normal(16, 9, seed=1, dtype=ml_dtypes.bfloat16)
    want = a.astype(np.float64).T @ b.astype(np.float64)
    np.testing.assert_allclose(product(a, b), want, rtol=0, atol=1e-5)


def rounded_sum(a, b):
    """Sum over k of the products a[k, m] b[k, n], each rounded to bf16."""
    products = (a.astype(np.float64)[:, :, None] * b.astype(np.float64)[:, None]).astype(ml_dtypes.bfloat16)
    return products.astype(np.float64).sum(0)


@pytest.mark.parametrize(
    ("variable", "rounded", "exact"),
    [
        ("TRNQC_SIM_BF16_PRODUCTS", ml_dtypes.bfloat16, np.float32),
        ("TRNQC_SIM_FP32_PRODUCTS", np.float32, ml_dtypes.bfloat16),
    ],
)
def test_products_are_rounded_to_bf16_on_request(monkeypatch, variable, rounded, exact):
    """For the operands that the variable names, and for no others."""
    monkeypatch.setenv(variable, "rounded")
    a, b = normal(40, 8, dtype=rounded), normal(40, 9, seed=1, dtype=rounded)
    np.testing.assert_allclose(product(a, b), rounded_sum(a, b), rtol=0, atol=1e-5)
    assert np.abs(product(a, b) - a.astype(np.float64).T @ b.astype(np.float64)).max() > 1e-3
    a, b = a.astype(exact), b.astype(exact)
    np.testing.assert_allclose(product(a, b), a.astype(np.float64).T @ b.astype(np.float64), rtol=0, atol=1e-5)


def test_rounded_products_round_transposes_of_fp32_where_they_are_products(monkeypatch):
    """On trn1 the tensor engine transposes by a product with the identity; later generations move the data."""
    monkeypatch.setenv("TRNQC_SIM_FP32_PRODUCTS", "rounded")
    data = normal(20, 30)

    def body(data, out):
        psum = nl.ndarray((30, 20), nl.float32, nl.psum)
        nisa.nc_transpose(psum, data)
        nisa.tensor_copy(out, psum)

    turned = {t: on_tiles(body, {"data": data}, {"out": ((30, 20), nl.float32)}, t) for t in ("trn1", "trn2")}
    np.testing.assert_array_equal(turned["trn1"], data.T.astype(ml_dtypes.bfloat16).astype(np.float32))
    np.testing.assert_array_equal(turned["trn2"], data.T)


def test_an_unknown_rounding_of_products_is_refused(monkeypatch):
    monkeypatch.setenv("TRNQC_SIM_BF16_PRODUCTS", "truncated")
    with pytest.raises(
        SimulationError, match=r"TRNQC_SIM_BF16_PRODUCTS must be one of exact, rounded, got 'truncated'"
    ):
        product(normal(4, 4), normal(4, 4))


def test_free_dimensions_are_flattened():
    a, b = normal(16, 2, 3), normal(16, 4, 5, seed=1)

    def body(a, b, out):
        psum = nl.ndarray((6, 20), nl.float32, nl.psum)
        nisa.nc_matmul(psum, a, b)
        nisa.tensor_copy(out, psum)

    got = on_tiles(body, {"a": a, "b": b}, {"out": ((6, 20), nl.float32)})
    np.testing.assert_allclose(got, a.reshape(16, 6).T @ b.reshape(16, 20), rtol=1e-5, atol=1e-6)


def test_double_row_contracts_256_rows():
    a, b = (normal(128, 2, n, seed=n, dtype=ml_dtypes.float8_e4m3) for n in (3, 5))
    wide = [x.astype(np.float32).reshape(256, -1) for x in (a, b)]
    got = product(a, b, perf_mode=nisa.matmul_perf_mode.double_row)
    np.testing.assert_allclose(got, wide[0].T @ wide[1], rtol=1e-5, atol=1e-5)


def test_pe_tiles_multiply_like_the_whole_array():
    a, b = normal(32, 32), normal(32, 40, seed=1)
    got = product(a, b, tile_size=(32, 32), tile_position=(64, 96))
    np.testing.assert_allclose(got, a.T @ b, rtol=1e-5, atol=1e-5)


def test_bf16_product_on_trn3():
    a, b = normal(64, 8), normal(64, 600, seed=1)
    got = product(a, b, target="trn3", dst=nl.bfloat16)
    np.testing.assert_array_equal(got.astype(np.float32), (a.T @ b).astype(ml_dtypes.bfloat16).astype(np.float32))


# -- accumulation -----------------------------------------------------------------------------------------------------

A, B = normal(128, 4), normal(128, 6, seed=1)
P = A.T @ B


def accumulated(steps, target="trn2"):
    """Read-out after ``steps(psum, a, b, out)``."""

    def body(a, b, out):
        steps(nl.ndarray((4, 6), nl.float32, nl.psum), a, b, out)

    return on_tiles(body, {"a": A, "b": B}, {"out": ((4, 6), nl.float32)}, target)


def times(count, **options):
    def steps(psum, a, b, out):
        for k in range(count):
            nisa.nc_matmul(psum, a, b, **{key: value(k) for key, value in options.items()})
        nisa.tensor_copy(out, psum)

    return steps


@pytest.mark.parametrize(
    ("steps", "factor"),
    [
        (times(3), 3),
        (times(3, accumulate=lambda k: k > 0), 3),
        (times(3, accumulate=lambda k: False), 1),
        (times(3, accumulate=lambda k: None if k == 0 else True), 3),
    ],
    ids=["inferred", "explicit", "overwriting", "mixed"],
)
def test_accumulation(steps, factor):
    np.testing.assert_allclose(accumulated(steps), factor * P, rtol=1e-5, atol=1e-5)


def after(prepare, **options):
    def steps(psum, a, b, out):
        prepare(psum, a, b, out)
        nisa.nc_matmul(psum, a, b, **options)
        nisa.tensor_copy(out, psum)

    return steps


def nothing(psum, a, b, out):
    pass


def fill(psum, a, b, out):
    nisa.memset(psum, 2.0)


def group(psum, a, b, out):
    nisa.nc_matmul(psum, a, b)


def drained(psum, a, b, out):
    nisa.nc_matmul(psum, a, b)
    nisa.tensor_copy(out, psum)


def drained_in_part(psum, a, b, out):
    nisa.nc_matmul(psum, a, b)
    nisa.tensor_copy(out[:, 0:1], psum[:, 0:1])


def refilled(psum, a, b, out):
    nisa.nc_matmul(psum, a, b)
    nisa.memset(psum, 2.0)


STATES = [
    # prepare, accumulate, target, factor of P (or the message), constant
    (nothing, None, "trn2", 1, 0),
    (nothing, True, "trn2", "where no matmul wrote yet; start the group with accumulate=False", 0),
    (nothing, True, "trn3", "where no matmul wrote yet", 0),
    (fill, None, "trn2", 1, 0),
    (fill, False, "trn2", 1, 0),
    (fill, True, "trn1", "written by something else than a matmul: undefined on trn1", 0),
    (fill, True, "trn2", "written by something else than a matmul: undefined on trn2", 0),
    (fill, True, "trn3", 1, 2),
    (group, True, "trn2", 2, 0),
    (drained, True, "trn2", 2, 0),
    (drained, False, "trn2", 1, 0),
    (drained, None, "trn2", "make a fresh PSUM tile for each group, or pass accumulate=", 0),
    (drained_in_part, None, "trn2", "make a fresh PSUM tile for each group", 0),
    (refilled, None, "trn2", "make a fresh PSUM tile for each group", 0),
    (refilled, True, "trn2", "written by something else than a matmul", 0),
]


@pytest.mark.parametrize(("prepare", "accumulate", "target", "outcome", "constant"), STATES)
def test_psum_states(prepare, accumulate, target, outcome, constant):
    steps = after(prepare, accumulate=accumulate)
    if isinstance(outcome, str):
        with pytest.raises(SimulationError, match=outcome):
            accumulated(steps, target)
    else:
        np.testing.assert_allclose(accumulated(steps, target), outcome * P + constant, rtol=1e-5, atol=1e-5)


def test_overlapping_windows_accumulate_per_element():
    """A convolution by shifted products: each window adds where another was, and overwrites where none was."""
    taps = 3

    def steps(psum, a, b, out):
        for t in range(taps):
            nisa.nc_matmul(psum[:, nl.ds(t, 4)], a, b[:, nl.ds(0, 4)])
        nisa.tensor_copy(out, psum)

    want = np.zeros((4, 6), np.float32)
    for t in range(taps):
        want[:, t : t + 4] += P[:, 0:4]
    np.testing.assert_allclose(accumulated(steps), want, rtol=1e-5, atol=1e-5)


def test_disjoint_groups_of_one_tile_are_independent():
    def steps(psum, a, b, out):
        for half in (0, 3):
            nisa.nc_matmul(psum[:, nl.ds(half, 3)], a, b[:, nl.ds(half, 3)])
            nisa.tensor_copy(out[:, nl.ds(half, 3)], psum[:, nl.ds(half, 3)])

    np.testing.assert_allclose(accumulated(steps), P, rtol=1e-5, atol=1e-5)


def test_a_device_loop_over_one_tile_must_start_its_groups():
    def body(a, b):
        left, right = nl.load(a), nl.load(b)
        psum, out = nl.ndarray((4, 6), nl.float32, nl.psum), nl.ndarray((4, 6), nl.float32)

        def step(i):
            nisa.nc_matmul(psum, left, right)
            nisa.tensor_copy(out, psum)

        nl.fori_loop(0, 2, step)

    with pytest.raises(SimulationError, match="make a fresh PSUM tile for each group"):
        run(body, A, B)


# -- transposes -------------------------------------------------------------------------------------------------------


def transposed(x, buffer=nl.psum, target="trn2", **options):
    rows, columns = x.shape[0], x.size // x.shape[0]

    def body(x, out):
        middle = nl.ndarray((columns, rows), x.dtype, buffer)
        nisa.nc_transpose(middle, x, **options)
        nisa.tensor_copy(out, middle)

    return on_tiles(body, {"x": x}, {"out": ((columns, rows), nl.float32)}, target)


@pytest.mark.parametrize("shape", [(1, 1), (128, 128), (3, 127), (128, 5)])
def test_tensor_engine_transposes(shape):
    x = normal(*shape)
    np.testing.assert_array_equal(transposed(x), x.T)


@pytest.mark.parametrize("buffer", [nl.sbuf, nl.psum])
def test_vector_engine_transposes_small_tiles(buffer):
    x = normal(32, 31)
    np.testing.assert_array_equal(transposed(x, buffer, engine=nisa.engine.vector), x.T)


def test_transposes_flatten_free_dimensions():
    x = normal(7, 3, 5)
    np.testing.assert_array_equal(transposed(x), x.reshape(7, 15).T)


def test_nan_spreads_in_transposes_of_trn1_only():
    x = normal(4, 5)
    x[2, 3] = np.nan
    np.testing.assert_array_equal(transposed(x, target="trn2"), x.T)
    assert np.isnan(transposed(x, target="trn1")[3]).all()


def test_matmul_as_a_transpose_moves_bits():
    x = normal(64, 32)
    x[0, 0] = np.inf
    got = product(x, np.eye(64, dtype=np.float32), is_transpose=True)
    np.testing.assert_array_equal(got, x.T)
    with pytest.raises(SimulationError, match="needs an identity"):
        product(x, normal(64, 64), is_transpose=True)


def test_transposed_bf16_may_stay_bf16():
    x = normal(64, 32, dtype=ml_dtypes.bfloat16)
    got = product(x, np.eye(64, dtype=ml_dtypes.bfloat16), dst=nl.bfloat16, is_transpose=True)
    np.testing.assert_array_equal(got.astype(np.float32), x.astype(np.float32).T)
