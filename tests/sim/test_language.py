"""nl functions of tiles against NumPy, and what of them does not run on the hardware."""

import ml_dtypes
import numpy as np
import pytest

from tests.sim.running import run
from tests.sim.tiles import normal
from trnqc.errors import SimulationError
from trnqc.sim.nki import isa as nisa
from trnqc.sim.nki import language as nl

X, Y = normal(9, 14), normal(9, 14, seed=1)
CUBE = normal(9, 4, 5)


def on_loaded(fn, *arrays):
    """``fn`` of SBUF tiles that hold the arrays, copied out through SBUF."""

    def body(*tensors):
        result = fn(*[nl.load(t) for t in tensors])
        if nl.is_psum(result.buffer):
            result = nl.copy(result)
        out = nl.ndarray(result.shape, result.dtype, nl.shared_hbm)
        nl.store(out, result)
        return out

    return run(body, *arrays)


UNARY = {
    "exp": np.exp,
    "tanh": np.tanh,
    "abs": np.abs,
    "square": np.square,
    "negative": np.negative,
    "sign": np.sign,
    "relu": lambda x: np.maximum(x, 0),
    "copy": lambda x: x,
    "reciprocal": np.reciprocal,
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
}


@pytest.mark.parametrize("name", UNARY)
def test_unary(name):
    np.testing.assert_allclose(on_loaded(getattr(nl, name), X), UNARY[name](X), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", ["sqrt", "log", "rsqrt"])
def test_unary_of_positive(name):
    want = {"sqrt": np.sqrt, "log": np.log, "rsqrt": lambda x: x**-0.5}[name]
    x = np.abs(X) + np.float32(0.5)
    np.testing.assert_allclose(on_loaded(getattr(nl, name), x), want(x), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("name", ["sin", "cos", "tan"])
def test_angles_outside_one_turn(name):
    x = np.linspace(-20, 20, 21, dtype=np.float32).reshape(3, 7)
    np.testing.assert_allclose(
        on_loaded(getattr(nl, name), x), getattr(np, name)(x.astype(float)), atol=1e-5, rtol=1e-4
    )


@pytest.mark.parametrize("name", ["floor", "ceil", "trunc"])
def test_rounding(name):
    x = np.array([[-2.5, -2.0, -0.5, -0.0, 0.5, 1.5, 2.0, 2.7, 3e6 + 0.5]], np.float32)
    np.testing.assert_array_equal(on_loaded(getattr(nl, name), x), getattr(np, name)(x))


def test_bits_and_truth():
    words = np.array([[0, -1, 5]], np.int32)
    np.testing.assert_array_equal(on_loaded(nl.invert, words), ~words)
    np.testing.assert_array_equal(on_loaded(lambda x: nl.bitwise_and(x, 4), words), words & 4)
    np.testing.assert_array_equal(on_loaded(nl.logical_not, np.array([[0, 1]], np.float32)), [[1, 0]])


BINARY = {"add": np.add, "subtract": np.subtract, "multiply": np.multiply, "maximum": np.maximum, "minimum": np.minimum}


@pytest.mark.parametrize("name", BINARY)
def test_binary(name):
    fn, ours = BINARY[name], getattr(nl, name)
    np.testing.assert_array_equal(on_loaded(ours, X, Y), fn(X, Y))
    np.testing.assert_array_equal(on_loaded(lambda x: ours(x, 1.5), X), fn(X, np.float32(1.5)))
    np.testing.assert_array_equal(on_loaded(lambda x: ours(1.5, x), X), fn(np.float32(1.5), X))


def test_dtype_of_results():
    got = on_loaded(lambda x, y: nl.add(x, y, dtype=nl.bfloat16), X, Y)
    np.testing.assert_array_equal(got, (X + Y).astype(ml_dtypes.bfloat16))
    narrow = X.astype(ml_dtypes.bfloat16)
    assert on_loaded(lambda x: nl.multiply(x, 2.0), narrow).dtype == ml_dtypes.bfloat16


REDUCTIONS = {"sum": np.sum, "max": np.max, "min": np.min, "mean": np.mean, "prod": np.prod}


@pytest.mark.parametrize(("axis", "axes"), [(2, (2,)), ([1, 2], (1, 2))])
@pytest.mark.parametrize("keepdims", [False, True])
@pytest.mark.parametrize("name", REDUCTIONS)
def test_reductions_stay_two_dimensional(name, axis, axes, keepdims):
    want = REDUCTIONS[name](CUBE, axis=axes, keepdims=keepdims)
    want = want.reshape(9, 1) if want.ndim == 1 else want
    got = on_loaded(lambda x: getattr(nl, name)(x, axis, keepdims=keepdims), CUBE)
    assert got.shape == want.shape
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-6)


def test_variance_keeps_its_axes():
    got = on_loaded(lambda x: nl.var(x, [1, 2]), CUBE)
    np.testing.assert_allclose(got, CUBE.var((1, 2), keepdims=True), rtol=1e-5)


def test_all():
    x = np.array([[1, 1, 1], [1, 0, 1]], np.float32)
    np.testing.assert_array_equal(on_loaded(lambda x: nl.all(x, 1), x), [[1], [0]])


def test_softmax_and_rms_norm():
    weights = np.exp(X - X.max(1, keepdims=True))
    np.testing.assert_allclose(on_loaded(nl.softmax, X), weights / weights.sum(1, keepdims=True), rtol=1e-5, atol=1e-7)
    want = X / np.sqrt((X**2).sum(1, keepdims=True) / 14 + 1e-6) * Y
    np.testing.assert_allclose(on_loaded(lambda x, w: nl.rms_norm(x, w, 1, 14), X, Y), want, rtol=1e-5, atol=1e-6)


def test_where_takes_the_chosen_side_only():
    x = X.copy()
    x[0, 0] = np.inf
    condition = (Y > 0).astype(np.float32)
    condition[0, 0] = 0
    np.testing.assert_array_equal(on_loaded(nl.where, condition, x, Y), np.where(condition, x, Y))
    np.testing.assert_array_equal(on_loaded(lambda c: nl.where(c, 1.0, -1.0), condition), np.where(condition, 1, -1))


def test_matmul_and_transpose_give_psum():
    a, b = normal(33, 7), normal(33, 11)
    np.testing.assert_allclose(
        on_loaded(lambda a, b: nl.matmul(a, b, transpose_x=True), a, b), a.T @ b, rtol=1e-5, atol=1e-5
    )
    np.testing.assert_array_equal(on_loaded(nl.transpose, a), a.T)


@pytest.mark.parametrize(
    ("old", "new"), [((9, 1), (9, 6)), ((1, 700), (33, 700)), ((1, 1, 5), (7, 4, 5)), ((9, 4), (9, 4))]
)
def test_broadcast_to(old, new):
    x = normal(*old)
    np.testing.assert_array_equal(on_loaded(lambda x: nl.broadcast_to(x, new), x), np.broadcast_to(x, new))


def test_moving_data():
    def body(x, i):
        out = nl.ndarray((14, 9), nl.float32, nl.shared_hbm)
        nl.store(out, nl.load_transpose2d(x))
        picked = nl.ndarray((9, 2), nl.float32, nl.shared_hbm)
        nl.store(picked, nl.gather_flattened(nl.load(x), nl.load(i)))
        assert nl.expand_dims(nl.load(x), 1).shape == (9, 1, 14)
        return out, picked

    index = np.random.default_rng(0).integers(0, 14, (9, 2)).astype(np.uint32)
    turned, picked = run(body, X, index)
    np.testing.assert_array_equal(turned, X.T)
    np.testing.assert_array_equal(picked, np.take_along_axis(X, index.astype(int), 1))


def test_random_numbers_are_uniform_and_repeat_with_their_seed():
    def body(seed):
        outs = []
        for _ in range(2):
            nl.random_seed(nl.load(seed))
            out = nl.ndarray((128, 100), nl.float32, nl.shared_hbm)
            nl.store(out, nl.rand((128, 100), nl.float32))
            outs.append(out)
        return tuple(outs)

    a, b = run(body, np.array([[7]], np.int32))
    np.testing.assert_array_equal(a, b)
    assert a.min() >= 0
    assert a.max() < 1
    assert abs(a.mean() - 0.5) < 5 / np.sqrt(12 * a.size)
    assert len(np.unique(a)) > 0.99 * a.size


def test_device_print(capsys):
    run(lambda x: nl.device_print("rows", x[0:1, 0:2]), np.ones((2, 2), np.float32))
    assert capsys.readouterr().out.startswith("rows [[1. 1.]]")


NOT_ON_HARDWARE = {
    "divide": (lambda x: nl.divide(x, x), "nl.divide does not run on the hardware; multiply by nl.reciprocal"),
    "mod": (lambda x: nl.mod(x, 2.0), "nl.mod does not run on the hardware"),
    "fmod": (lambda x: nl.fmod(x, 2.0), "nl.fmod does not run on the hardware"),
    "power": (lambda x: nl.power(x, 2.0), "nl.power with a scalar does not run on the hardware"),
    "matmul": (lambda x: nl.matmul(x, x), "only with transpose_x=True"),
    "broadcast": (lambda x: nl.add(x, x[:, 0:1]), "broadcasts nothing"),
    "mixed dtypes": (lambda x: nl.add(x, nl.copy(x, nl.bfloat16)), "nl.add of float32 and bfloat16 needs dtype="),
    "store from psum": (
        lambda x: nl.store(nl.ndarray((14, 9), nl.float32, nl.shared_hbm), nl.transpose(x)),
        r"nl.store value must be in \['sbuf'\], got psum",
    ),
    "rsqrt of psum": (lambda x: nl.rsqrt(nl.transpose(x)), r"nl.rsqrt x must be in \['sbuf'\], got psum"),
    "part of the axes": (lambda x: nl.sum(x, 0), "axis must be the last contiguous dim"),
    "two numbers": (lambda x: nl.add(1.0, 2.0), "needs at least one tile"),
    "marker": (lambda x: nl.bypass(x, x), "object is not callable"),
}


@pytest.mark.parametrize("case", NOT_ON_HARDWARE)
def test_refused(case):
    fn, message = NOT_ON_HARDWARE[case]
    with pytest.raises((SimulationError, TypeError), match=message):
        run(lambda x: fn(nl.load(x)), X)


def test_ranges_are_ranges():
    assert (
        list(nl.affine_range(1, 7, 2))
        == list(nl.sequential_range(1, 7, 2))
        == list(nl.static_range(1, 7, 2))
        == [1, 3, 5]
    )


def test_kernel_classes():
    class Config(nl.NKIObject):
        pass

    assert Config(rows=3).rows == 3
    assert nisa.vector_engine is nisa.engine.vector
