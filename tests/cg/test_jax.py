"""Tensor products as functions of JAX arrays, compared with e3nn-jax, with the engine and with one another."""

from __future__ import annotations

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

from trnqc.cg import TPProblem  # noqa: E402
from trnqc.cg.cpu.engine import engine_for  # noqa: E402
from trnqc.cg.jax import TensorProduct, TensorProductConv  # noqa: E402
from trnqc.cg.problem.graph import EdgeGraph  # noqa: E402
from trnqc.errors import EdgeIndexError, OperandError, UnsupportedError, UnsupportedPrecision  # noqa: E402

UVU = TPProblem(
    "4x0e+4x1o",
    "0e+1o",
    "4x0e+4x1o",
    [(0, 0, 0, "uvu", True), (0, 1, 1, "uvu", True), (1, 1, 0, "uvu", False)],
    shared_weights=False,
)
UVW = TPProblem("4x0e+4x1o", "0e+1o", "3x0e", [(0, 0, 0, "uvw", True), (1, 1, 0, "uvw", True)])
NODES, EDGES = 4, 6
ROWS, COLS = np.array([0, 1, 2, 0, 3, 3]), np.array([1, 1, 0, 3, 2, 2])
ALL = pytest.mark.parametrize("problem", [UVU, UVW], ids=["uvu", "uvw"])
BOTH = pytest.mark.parametrize("convolution", [False, True], ids=["batch", "convolution"])


@pytest.fixture(autouse=True)
def doubles():
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


def operands(problem, convolution, seed=0, samples=()):
    generator = np.random.default_rng(seed)
    rows = {"x": NODES if convolution else EDGES, "y": EDGES, "w": EDGES}
    return tuple(generator.normal(size=(*samples, *problem.shape_of(name, n))) for name, n in rows.items())


def function(problem, convolution):
    if not convolution:
        return TensorProduct(problem)
    product = TensorProductConv(problem)
    return lambda x, y, w: product(x, y, w, ROWS, COLS)


def engine(problem, convolution, direction, *arrays):
    name, graph = (f"conv_{direction}", [EdgeGraph(ROWS, COLS, NODES)]) if convolution else (direction, [])
    return getattr(engine_for(problem, "float64", 1), name)(*arrays, *graph)


def assert_close(actual, expected, tolerance=1e-13):
    for a, e in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        assert a.shape == e.shape
        assert np.abs(a - e).max() <= tolerance * np.abs(e).max()


@BOTH
@ALL
def test_reverse_mode_to_second_order(problem, convolution):
    """The gradients of <gz, z>, and those of <gg, gradients>, are the engine's backward and double backward."""
    f, args = function(problem, convolution), operands(problem, convolution)
    gg = operands(problem, convolution, seed=1)
    gz = np.random.default_rng(2).normal(size=f(*args).shape)

    def gradients(gz, *args):
        z, pull = jax.vjp(f, *args)
        return z, pull(gz)

    def contracted(gz, *args):
        return sum((g * h).sum() for g, h in zip(gradients(gz, *args)[1], gg))

    z, first = jax.jit(gradients)(gz, *args)
    assert_close(z, engine(problem, convolution, "forward", *args), 0)
    assert_close(first, engine(problem, convolution, "backward", *args, gz))
    ggz, *second = jax.jit(jax.grad(contracted, (0, 1, 2, 3)))(gz, *args)
    assert_close((*second, ggz), engine(problem, convolution, "double_backward", *args, gz, *gg))


@BOTH
def test_forward_mode_in_every_nesting(convolution):
    """Derivatives along h, twice and three times, are those of the polynomial z(args + t h) in t."""
    f, args = function(UVU, convolution), operands(UVU, convolution)
    h = operands(UVU, convolution, seed=1)

    def along(t):
        return f(*(a + t * b for a, b in zip(args, h)))

    # z is a polynomial of degree 3 in t, so that four values determine all derivatives.
    points = np.array([-1.0, 0.0, 1.0, 2.0])
    values = np.stack([along(t) for t in points])
    _, first, second, third = np.linalg.solve(np.vander(points, increasing=True), values.reshape(4, -1))
    forward, reverse = jax.jacfwd, jax.jacrev
    for outer, inner in ((forward, forward), (forward, reverse), (reverse, forward), (reverse, reverse)):
        # Differentiate a sum with fixed factors: a Jacobian in reverse mode has a call for each element.
        factors = np.random.default_rng(3).normal(size=values[0].shape)
        scalar = inner(lambda t, factors=factors: (factors * along(t)).sum())
        expected = [(factors.ravel() * c).sum() for c in (first, 2 * second)]
        assert_close(
            jax.jit(lambda t, s=scalar, d=outer: (s(t), d(s)(t)))(0.0), tuple(map(np.asarray, expected)), 1e-11
        )
    thrice = jax.jit(jax.jacfwd(jax.jacfwd(jax.jacfwd(along))))(0.0)
    assert_close(thrice.ravel(), 6 * third, 1e-11)


@BOTH
@ALL
def test_samples(problem, convolution):
    """vmap, inside and outside of derivatives, is a loop over samples."""
    f, args = function(problem, convolution), operands(problem, convolution, samples=(3,))

    def gradient(*args):
        return jax.grad(lambda *args: (f(*args) ** 3).sum(), (0, 1, 2))(*args)

    def total(*args):
        return (jax.vmap(f)(*args) ** 3).sum()

    single = jax.jit(lambda *args: (f(*args), gradient(*args)))
    loop = jax.tree.map(lambda *t: np.stack(t), *(single(*(a[n] for a in args)) for n in range(3)))
    assert_close(jax.jit(jax.vmap(lambda *args: (f(*args), gradient(*args))))(*args), loop, 1e-12)
    assert_close(jax.jit(jax.grad(total, (0, 1, 2)))(*args), loop[1], 1e-12)
    # One operand has samples, the others are common.
    common = jax.jit(jax.vmap(f, (1, None, None)))(np.moveaxis(args[0], 0, 1), args[1][0], args[2][0])
    assert_close(common, np.stack([f(args[0][n], args[1][0], args[2][0]) for n in range(3)]), 1e-13)


def test_transpose_in_one_operand():
    x, y, w = operands(UVU, False)
    gz = np.random.default_rng(2).normal(size=(EDGES, UVU.dims[2]))
    (gx,) = jax.linear_transpose(lambda x: TensorProduct(UVU)(x, y, w), x)(gz)
    assert_close(gx, engine(UVU, False, "backward", x, y, w, gz)[0])


def test_against_e3nn_jax():
    e3nn = pytest.importorskip("e3nn_jax")
    problem = TPProblem("2x1o", "1x2e", "2x1o+2x3o", [(0, 0, 0, "uvu", False), (0, 0, 1, "uvu", False)])
    generator = np.random.default_rng(0)
    x, y = generator.normal(size=(5, 6)), generator.normal(size=(5, 5))
    z = TensorProduct(problem)(x, y)
    theirs = e3nn.tensor_product(e3nn.IrrepsArray("2x1o", x), e3nn.IrrepsArray("1x2e", y), filter_ir_out=["1o", "3o"])
    for ours, irrep in zip((z[:, :6], z[:, 6:]), ("1o", "3o")):
        assert_close(ours, theirs.filter(irrep).array, 1e-6)


def test_float32_and_broadcasting():
    x, y, w = (a.astype(np.float32) for a in operands(UVU, False))
    z = TensorProduct(UVU)(x[:, None], y[None, :1], w[:1])
    assert z.dtype == jnp.float32
    assert_close(z[:, 0], TensorProduct(UVU)(x, y[:1], w[:1]), 0)


def test_graphs_without_edges():
    x, y, w = operands(UVU, True)
    none = np.zeros(0, np.int32)
    z, pull = jax.vjp(lambda x: TensorProductConv(UVU)(x, y[:0], w[:0], none, none), x)
    assert not z.any()
    assert not pull(jnp.ones_like(z))[0].any()


def test_compensated_sums():
    args = operands(UVU, True)
    assert_close(TensorProductConv(UVU, kahan=True)(*args, ROWS, COLS), function(UVU, True)(*args), 1e-14)
    with pytest.raises(UnsupportedError, match="uvu"):
        TensorProductConv(UVW, kahan=True)


def test_wrong_operands_are_named():
    x, y, w = operands(UVU, True)
    conv = TensorProductConv(UVU)
    with pytest.raises(OperandError, match="x: expected float64"):
        conv(x[:, 1:], y, w, ROWS, COLS)
    with pytest.raises(OperandError, match="w: expected 8 weights, found none"):
        conv(x, y, None, ROWS, COLS)
    with pytest.raises(OperandError, match="y: expected float16, as x has, found float64"):
        conv(x.astype(np.float16), y, w, ROWS, COLS)
    with pytest.raises(UnsupportedPrecision, match="float16 or bfloat16, found int64"):
        conv(x.astype(np.int64), y, w, ROWS, COLS)
    with pytest.raises(EdgeIndexError, match="rows"):
        conv(x, y, w, ROWS[:2], COLS)
    with pytest.raises(Exception, match=r"expected nodes 0 \.\. 3, found 9 at edge 0"):
        np.asarray(conv(x, y, w, ROWS + 9, COLS))
    with pytest.raises(OperandError, match="broadcast"):
        TensorProduct(UVU)(x[:3], y[:2], w[:2])


@BOTH
@ALL
@pytest.mark.parametrize(("dtype", "rounding"), [(jnp.bfloat16, 2**-8), (jnp.float16, 2**-11)])
def test_half_precision_is_computed_in_float32(problem, convolution, dtype, rounding):
    """Each result is that of float32 for the same operands, rounded once; under every transformation."""
    f = function(problem, convolution)
    halves = [jnp.asarray(a, dtype) for a in operands(problem, convolution)]
    singles = [a.astype(jnp.float32) for a in halves]

    def loss(*args):
        return jnp.sum(f(*args).astype(jnp.float32) ** 2)

    result, expected = jax.jit(f)(*halves), f(*singles)
    assert result.dtype == dtype
    np.testing.assert_array_equal(result, expected.astype(dtype))
    for gradient, exact in zip(jax.grad(loss, (0, 1, 2))(*halves), jax.grad(loss, (0, 1, 2))(*singles)):
        assert gradient.dtype == dtype
        # The gradient begins from the rounded result.
        assert_close(gradient.astype(jnp.float32), exact, 4 * rounding)
    along, exact = (jax.jvp(f, args, [jnp.ones_like(a) for a in args])[1] for args in (halves, singles))
    assert_close(along.astype(jnp.float32), exact, rounding)
    stacked = [jnp.stack([a, 2 * a]) for a in halves]
    np.testing.assert_array_equal(jax.vmap(f)(*stacked)[1], f(*(2 * a for a in halves)))
