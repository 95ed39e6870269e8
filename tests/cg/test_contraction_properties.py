"""Properties of symmetric contractions that hold for any operands and sizes, with the CPU's vectors and with AVX2."""

from __future__ import annotations

import platform
import shlex

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trnqc.cg.cpu.contraction_engine import NODES, ContractionEngine
from trnqc.cg.problem.contraction import contraction_problem
from trnqc.jit import find_compiler

# One, a prime, and numbers around those of a vector's lanes.
CHANNELS = st.sampled_from([1, 2, 3, 4, 5, 7, 8, 9, 16, 17])
# None, and numbers around the size of a group of nodes.
ATOMS = st.sampled_from([0, 1, 2, 5, NODES - 1, NODES, NODES + 1, 2 * NODES + 3])
SEEDS = st.integers(0, 2**32 - 1)
SIZES = (CHANNELS, ATOMS, st.integers(1, 4), SEEDS)
FEW = settings(max_examples=25, deadline=None)
# Rounding errors of sums of at most a hundred products of a few factors, relative to the largest result.
BOUND = 1e-12


@pytest.fixture(scope="module", params=["native", "avx2"])
def engine_of(request):
    """Return engines for a number of channels. Programs do not depend on it, so each is compiled once."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "avx2":
            if platform.machine() != "x86_64":
                pytest.skip("AVX2 is a feature of x86-64 CPUs")
            patch.setenv("CC", shlex.join((*find_compiler().command, "-mno-avx512f")))
            assert find_compiler().lanes(8) <= 4
        yield engine


def engine(channels: int, irreps: str = "0e+1o", correlation: int = 3) -> ContractionEngine:
    slots = "+".join(f"{channels}x{ir}" for ir in irreps.split("+"))
    return ContractionEngine(contraction_problem(slots, slots, correlation), "float64", 1)


def operands(engine: ContractionEngine, nodes: int, elements: int, seed: int):
    """Coefficients of random weights, three arrays of the shape of x, the gradient of B, and the elements."""
    rng, problem = np.random.default_rng(seed), engine.problem
    w = rng.standard_normal((elements, problem.weight_numel, problem.channels))
    rows = [rng.standard_normal((nodes, problem.dims[0], problem.channels)) for _ in range(3)]
    gb = rng.standard_normal((nodes, problem.dims[1], problem.channels))
    return np.einsum("tk,ekc->etc", problem.folding, w), *rows, gb, rng.integers(0, elements, nodes)


def assert_close(actual, expected, bound=BOUND):
    assert actual.shape == expected.shape
    assert np.abs(actual - expected).max(initial=0) <= bound * max(1.0, np.abs(expected).max(initial=0))


@FEW
@given(*SIZES)
def test_linear_in_weights_and_in_every_direction(engine_of, channels, nodes, elements, seed):
    engine = engine_of(channels)
    c, x, h, other, gb, e = operands(engine, nodes, elements, seed)
    c2 = np.roll(c, 1, axis=2)
    assert_close(engine.value(2 * c - c2, x, e), 2 * engine.value(c, x, e) - engine.value(c2, x, e))
    along = [engine.value(c, x, e, a) for a in (2 * h - other, h, other)]
    assert_close(along[0], 2 * along[1] - along[2])
    pulled = [engine.gradient(c, x, e, g) for g in (2 * gb - np.flip(gb, 1), gb, np.flip(gb, 1).copy())]
    assert_close(pulled[0], 2 * pulled[1] - pulled[2])
    assert_close(engine.value(c, x, e, h, other), engine.value(c, x, e, other, h))


@FEW
@given(*SIZES)
def test_derivatives_are_those_of_the_polynomial(engine_of, channels, nodes, elements, seed):
    """B(x + t h) is a cubic polynomial of t, which four values determine: finite differences without an error."""
    engine = engine_of(channels)
    c, x, h, other, gb, e = operands(engine, nodes, elements, seed)
    points = np.array([-1.0, 0.0, 1.0, 2.0])

    def derivatives(function):
        values = np.stack([function(x + t * h) for t in points])
        first, second = np.linalg.solve(np.vander(points, increasing=True), values.reshape(4, -1))[1:3]
        return first.reshape(values.shape[1:]), 2 * second.reshape(values.shape[1:])

    first, second = derivatives(lambda x: engine.value(c, x, e))
    assert_close(engine.value(c, x, e, h), first)
    assert_close(engine.value(c, x, e, h, h), second)
    assert_close((engine.gradient(c, x, e, gb) * h).sum((1, 2)), (gb * first).sum((1, 2)))
    of_gradient, _ = derivatives(lambda x: engine.gradient(c, x, e, gb))
    assert_close(engine.gradient(c, x, e, gb, h), of_gradient)
    assert_close((of_gradient * other).sum((1, 2)), (gb * engine.value(c, x, e, h, other)).sum((1, 2)))
    gx, gc = engine.gradients(c, x, e, gb)
    assert np.array_equal(gx, engine.gradient(c, x, e, gb))
    assert_close((gc * c).sum((1, 2)).sum(), (gb * engine.value(c, x, e)).sum())


@FEW
@given(*SIZES)
def test_nodes_and_channels_in_any_order(engine_of, channels, nodes, elements, seed):
    engine, rng = engine_of(channels), np.random.default_rng(seed)
    c, x, _, _, gb, e = operands(engine, nodes, elements, seed)
    moved, swapped = rng.permutation(nodes), rng.permutation(channels)
    b, (gx, gc) = engine.value(c, x, e), engine.gradients(c, x, e, gb)
    assert np.array_equal(engine.value(c, x[moved], e[moved]), b[moved])
    there = engine.gradients(c, x[moved], e[moved], gb[moved])
    assert np.array_equal(there[0], gx[moved])
    assert_close(there[1], gc)
    assert np.array_equal(engine.value(c[:, :, swapped], x[:, :, swapped], e), b[:, :, swapped])


@FEW
@given(*SIZES)
def test_elements_are_independent(engine_of, channels, nodes, elements, seed):
    """A node has the result of its element, and the gradient of an element's coefficients is a sum over its nodes."""
    engine = engine_of(channels)
    c, x, _, _, gb, e = operands(engine, nodes, elements, seed)
    b, (_, gc) = engine.value(c, x, e), engine.gradients(c, x, e, gb)
    for element in range(elements):
        own, none = e == element, np.zeros((e == element).sum(), np.int64)
        assert np.array_equal(engine.value(c[element : element + 1], x[own], none), b[own])
        _, alone = engine.gradients(c[element : element + 1], x[own], none, gb[own])
        assert np.array_equal(alone[0], gc[element])
    _, joined = engine.gradients(c, x, np.zeros_like(e), gb)
    assert_close(joined[0], gc.sum(0))


@FEW
@given(CHANNELS, st.sampled_from([1, 5, NODES + 1]), st.booleans(), SEEDS)
def test_turns_commute_with_values_and_gradients(engine_of, channels, nodes, mirrored, seed):
    """For irreps of vectors and pseudovectors, whose matrices are R and det(R) R in the order y, z, x."""
    engine = engine_of(channels, "0e+0o+1o+1e", 2)
    c, x, _, _, gb, e = operands(engine, nodes, 2, seed)
    matrix, _ = np.linalg.qr(np.random.default_rng(seed).standard_normal((3, 3)))
    rotation = matrix * np.sign(np.linalg.det(matrix))
    sign = -1.0 if mirrored else 1.0
    turn = np.zeros((8, 8))
    turn[0, 0], turn[1, 1] = 1.0, sign
    turn[2:5, 2:5], turn[5:, 5:] = (factor * rotation[np.ix_([1, 2, 0], [1, 2, 0])] for factor in (sign, 1.0))

    def turned(a):
        return np.ascontiguousarray(np.einsum("ij,njc->nic", turn, a))

    assert_close(engine.value(c, turned(x), e), turned(engine.value(c, x, e)))
    (gx, gc), (gx_turned, gc_turned) = engine.gradients(c, x, e, gb), engine.gradients(c, turned(x), e, turned(gb))
    assert_close(gx_turned, turned(gx))
    # The gradients of the weights are invariant; those of single monomials are not.
    assert_close(*(np.einsum("tk,etc->ekc", engine.problem.folding, g) for g in (gc_turned, gc)))
