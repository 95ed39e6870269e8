"""Symmetric contractions of JAX arrays, compared with their definition in JAX's own operations and with e3nn-jax."""

from __future__ import annotations

import numpy as np
import pytest

jax = pytest.importorskip("jax")

import jax.numpy as jnp  # noqa: E402

from trnqc.cg.jax import SymmetricContraction  # noqa: E402
from trnqc.errors import InputError, IrrepsError, OperandError, UnsupportedPrecision  # noqa: E402

ELEMENTS = np.array([1, 0, 2, 1, 1])
# Rounding errors of sums of at most a hundred products of a few factors, and of their derivatives.
BOUND = 1e-12
# Three channels fill no vector, eight fill those of double precision.
CASES = {"correlation 2": ("3x0e+3x1o+3x2e", "3x0e+3x2e", 2), "correlation 3": ("8x0e+8x1o", "8x0e+8x1o", 3)}
ALL = pytest.mark.parametrize("case", CASES.values(), ids=CASES)


@pytest.fixture(autouse=True)
def doubles():
    before = jax.config.jax_enable_x64
    jax.config.update("jax_enable_x64", True)
    yield
    jax.config.update("jax_enable_x64", before)


def operands(contraction, seed=0, samples=(), nodes=5):
    generator = np.random.default_rng(seed)
    channels, (dim, _) = contraction.problem.channels, contraction.problem.dims
    x = generator.normal(size=(*samples, nodes, channels, dim))
    return x, generator.normal(size=(*samples, 3, contraction.weight_numel, channels))


def definition(contraction):
    """B = sum_t C[t] m_t(x) without kernels, which JAX differentiates by itself."""
    problem = contraction.problem
    dim, degree = problem.dims[0], max(problem.correlation)
    # Factors of each monomial, filled up with the number of a column of ones; the component of each term.
    factors = np.array([(*m, *[dim] * (degree - len(m))) for _, m in problem.terms])
    components = np.array([component for component, _ in problem.terms])
    sums = (components[:, None] == np.arange(problem.dims[1])).astype(float)
    cuts = np.cumsum([slot.ir.dim for slot in problem.irreps_out])[:-1]

    def function(x, w):
        c = jnp.einsum("tk,ekc->etc", problem.folding, w)[ELEMENTS]
        filled = jnp.concatenate([x, jnp.ones((*x.shape[:2], 1))], axis=2)
        terms = c.swapaxes(1, 2)
        for column in factors.T:
            terms = terms * filled[:, :, column]
        return jnp.concatenate([part.reshape(len(x), -1) for part in jnp.split(terms @ sums, cuts, axis=2)], axis=1)

    return function


def both(case):
    contraction = SymmetricContraction(*case)
    return contraction, lambda x, w: contraction(x, ELEMENTS, w), definition(contraction)


def assert_close(actual, expected, tolerance=BOUND):
    for a, e in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        assert a.shape == e.shape
        assert np.abs(a - e).max() <= tolerance * np.abs(e).max()


@ALL
def test_values_and_gradients_to_second_order(case):
    contraction, ours, theirs = both(case)
    args, along = operands(contraction), operands(contraction, seed=1)

    def derivatives(f):
        first = jax.grad(lambda *args: jnp.tanh(f(*args)).sum(), (0, 1))
        second = jax.grad(lambda *args: sum((g * h).sum() for g, h in zip(first(*args), along)), (0, 1))
        return jax.jit(lambda *args: (f(*args), first(*args), second(*args)))

    assert_close(derivatives(ours)(*args), derivatives(theirs)(*args))


@ALL
def test_forward_mode_in_every_nesting(case):
    contraction, ours, theirs = both(case)
    args, h = operands(contraction), operands(contraction, seed=1)
    for outer in (jax.jacfwd, jax.jacrev):
        for inner in (jax.jacfwd, jax.jacrev):

            def second(f, outer=outer, inner=inner):
                return jax.jit(outer(inner(lambda t: jnp.tanh(f(*(a + t * b for a, b in zip(args, h)))).sum())))(0.3)

            assert_close(second(ours), second(theirs))


def test_samples():
    """vmap, inside and outside of derivatives, with samples of one operand or of both."""
    contraction, ours, theirs = both(CASES["correlation 2"])
    x, w = operands(contraction, samples=(3,))

    def results(f, axes, args):
        gradients = jax.grad(lambda *a: (f(*a) ** 2).sum(), (0, 1))
        return jax.jit(jax.vmap(lambda *a: (f(*a), gradients(*a)), axes))(*args)

    for axes, args in (((0, 0), (x, w)), ((1, None), (np.moveaxis(x, 0, 1), w[0])), ((None, 0), (x[0], w))):
        assert_close(results(ours, axes, args), results(theirs, axes, args))
    totals = [jax.jit(jax.grad(lambda w, f=f: (jax.vmap(f, (0, None))(x, w) ** 2).sum()))(w[0]) for f in (ours, theirs)]
    assert_close(*totals)


@pytest.mark.parametrize("nodes", [0, 1])
def test_few_nodes(nodes):
    contraction, ours, _ = both(CASES["correlation 2"])
    x, w = operands(contraction)
    b, pull = jax.vjp(lambda x, w: contraction(x, ELEMENTS[:nodes], w), x[:nodes], w)
    assert np.array_equal(b, ours(x, w)[:nodes])
    gx, gw = pull(jnp.ones_like(b))
    assert gx.shape == (nodes, *x.shape[1:])
    assert not np.asarray(gw)[[0, 2]].any()


def test_squares_are_those_of_e3nn_jax():
    """Quadratic results of one channel are in the span of the paths of e3nn's tensor square."""
    e3nn = pytest.importorskip("e3nn_jax")
    contraction = SymmetricContraction("1x1o+1x2e", "1x2e", 2)
    degrees = [w.degree for w in contraction.problem.weights for _ in range(w.count)]
    x = np.random.default_rng(0).normal(size=(30, 1, 8))
    paths = e3nn.tensor_square(e3nn.IrrepsArray("1x1o+1x2e", x[:, 0])).filter("2e")
    basis = np.asarray(paths.array, float).reshape(30, -1, 5).transpose(0, 2, 1).reshape(150, -1)
    for number in np.flatnonzero(np.array(degrees) == 2):
        b = contraction(x, np.zeros(30, int), np.eye(len(degrees))[None, number, :, None])
        assert np.abs(b).max() > 0.1
        residual = b.ravel() - basis @ np.linalg.lstsq(basis, b.ravel())[0]
        assert np.abs(residual).max() < 1e-5 * np.abs(b).max()


def test_single_precision_and_int32():
    contraction, ours, _ = both(CASES["correlation 3"])
    x, w = operands(contraction)
    b = contraction(x.astype(np.float32), ELEMENTS.astype(np.int32), w.astype(np.float32))
    assert b.dtype == jnp.float32
    assert_close(b, ours(x, w), 1e-5)


@pytest.mark.parametrize("dtype", [jnp.bfloat16, jnp.float16])
def test_half_precision_is_computed_in_float32(dtype):
    contraction, _, _ = both(CASES["correlation 3"])
    x, w = (jnp.asarray(a, dtype) for a in operands(contraction))
    b = jax.jit(contraction)(x, ELEMENTS, w)
    exact = contraction(x.astype(jnp.float32), ELEMENTS, w.astype(jnp.float32))
    assert b.dtype == dtype
    np.testing.assert_array_equal(b, exact.astype(dtype))
    assert jax.grad(lambda x: contraction(x, ELEMENTS, w).astype(jnp.float32).sum())(x).dtype == dtype


def test_wrong_operands_are_named():
    contraction, _, _ = both(CASES["correlation 2"])
    x, w = operands(contraction)
    with pytest.raises(OperandError, match=r"x: expected \[nodes, 3, 9\]"):
        contraction(x[:, 1:], ELEMENTS, w)
    with pytest.raises(OperandError, match="elements: expected int32 or int64"):
        contraction(x, ELEMENTS[:2], w)
    with pytest.raises(OperandError, match="weight: expected float64"):
        contraction(x, ELEMENTS, w[:, 1:])
    with pytest.raises(OperandError, match="weight: expected float16, as x has, found float64"):
        contraction(x.astype(np.float16), ELEMENTS, w)
    with pytest.raises(UnsupportedPrecision, match="float16 or bfloat16, found int64"):
        contraction(x.astype(np.int64), ELEMENTS, w)
    with pytest.raises(Exception, match="elements: expected numbers from 0 to 2, found 3"):
        np.asarray(contraction(x, ELEMENTS + 1, w))
    with pytest.raises(IrrepsError):
        SymmetricContraction("3x0e+2x1o", "3x0e", 2)
    with pytest.raises(InputError):
        SymmetricContraction("3x0e", "3x0e", 0)
