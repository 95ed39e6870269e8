"""Views against NumPy: chains of view operations select the same elements of a tensor as of an array."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.sim.running import dry, run
from trnqc.errors import SimulationError
from trnqc.sim.memory.views import reshape_strides, row_major
from trnqc.sim.nki import isa as nisa
from trnqc.sim.nki import language as nl


def counting(shape):
    return np.arange(np.prod(shape), dtype=np.int32).reshape(shape)


def on_chip(view, array):
    """``view(tensor)`` of an SBUF tile holding ``array``, brought back by DMA."""

    def body(x):
        tile = nl.ndarray(x.shape, nl.int32)
        nisa.dma_copy(tile, x)
        picked = view(tile)
        out = nl.ndarray(picked.shape, nl.int32, nl.shared_hbm)
        nisa.dma_copy(out, picked)
        return out

    return run(body, array)


def in_hbm(view, array):
    def body(x):
        picked = view(x)
        out = nl.ndarray(picked.shape, nl.int32, nl.shared_hbm)
        nisa.dma_copy(out, picked)
        return out

    return run(body, array)


SHAPES = st.lists(st.integers(1, 6), min_size=2, max_size=4).map(tuple)


@st.composite
def chains(draw, fixed_first):
    """A shape and a list of (method, arguments, the same on an array)."""
    shape = draw(SHAPES)
    steps, now = [], np.zeros(shape)
    first = 1 if fixed_first else 0
    for _ in range(draw(st.integers(1, 4))):
        kind = draw(st.sampled_from(["slice", "permute", "expand", "merge", "split", "broadcast"]))
        dim = draw(st.integers(first, now.ndim - 1))
        n = now.shape[dim]
        if kind == "slice":
            a = draw(st.integers(0, n - 1))
            b, c = draw(st.integers(a + 1, n)), draw(st.integers(1, 3))
            steps.append(("slice", (dim, a, b, c), lambda x, d=dim, s=slice(a, b, c): x[(slice(None),) * d + (s,)]))
        elif kind == "permute":
            order = (0,) * first + tuple(draw(st.permutations(range(first, now.ndim))))
            steps.append(("permute", (order,), lambda x, o=order: x.transpose(o)))
        elif kind == "expand" and now.ndim < 5:
            steps.append(("expand_dim", (dim,), lambda x, d=dim: np.expand_dims(x, d)))
        elif kind == "split" and now.ndim < 5:
            k = draw(st.sampled_from([k for k in range(1, n + 1) if n % k == 0]))
            steps.append(
                ("reshape_dim", (dim, (k, -1)), lambda x, d=dim, k=k: x.reshape(*x.shape[:d], k, -1, *x.shape[d + 1 :]))
            )
        elif kind == "merge" and dim + 1 < now.ndim and now.flags.c_contiguous and now.ndim > 2:
            steps.append(
                (
                    "flatten_dims",
                    (dim, dim + 1),
                    lambda x, d=dim: x.reshape(*x.shape[:d], x.shape[d] * x.shape[d + 1], *x.shape[d + 2 :]),
                )
            )
        elif kind == "broadcast" and n == 1:
            size = draw(st.integers(1, 3))
            steps.append(
                (
                    "broadcast",
                    (dim, size),
                    lambda x, d=dim, m=size: np.broadcast_to(x, (*x.shape[:d], m, *x.shape[d + 1 :])),
                )
            )
        else:
            continue
        now = steps[-1][2](now)
    return shape, steps


def follow(steps):
    def view(t):
        for method, args, _ in steps:
            t = getattr(t, method)(*args)
        return t

    return view


@settings(max_examples=60, deadline=None)
@given(chains(fixed_first=True))
def test_chains_of_views_on_chip(chain):
    shape, steps = chain
    want = counting(shape)
    for _, _, on_array in steps:
        want = on_array(want)
    np.testing.assert_array_equal(on_chip(follow(steps), counting(shape)), want)


@settings(max_examples=60, deadline=None)
@given(chains(fixed_first=False))
def test_chains_of_views_in_hbm(chain):
    shape, steps = chain
    want = counting(shape)
    for _, _, on_array in steps:
        want = on_array(want)
    np.testing.assert_array_equal(in_hbm(follow(steps), counting(shape)), want)


@settings(max_examples=100, deadline=None)
@given(SHAPES, st.data())
def test_reshape_agrees_with_numpy_on_what_needs_a_copy(shape, data):
    """A strided array reshapes to a view exactly where NumPy can do it without a copy."""
    order = data.draw(st.permutations(range(len(shape))))
    array = counting(shape).transpose(order)
    sizes = data.draw(st.permutations([p for n in shape for p in factors(n)]))
    cut = data.draw(st.integers(0, len(sizes)))
    new = (int(np.prod(sizes[:cut])), int(np.prod(sizes[cut:])))
    strides = reshape_strides(array.shape, [s // 4 for s in array.strides], new)
    reshaped = array.reshape(new)
    if strides is None:
        assert not np.shares_memory(reshaped, array)
    else:
        got = np.lib.stride_tricks.as_strided(array, new, [4 * s for s in strides])
        np.testing.assert_array_equal(got, reshaped)


def factors(n):
    return [p for p in (2, 3, 5) for _ in range(4) if n % p == 0 and (n := n // p)]


INDICES = {
    "slices": (np.s_[3:7, 1:5], (4, 4, 3)),
    "step": (np.s_[:, ::2], (11, 3, 3)),
    "negative bounds": (np.s_[:, -4:-1], (11, 3, 3)),
    "ellipsis": (np.s_[..., 1:2], (11, 6, 1)),
    "free integer": (np.s_[:, 2], (11, 3)),
    "last integer": (np.s_[:, :, -1], (11, 6)),
    "partition integer": (np.s_[4], (1, 6, 3)),
    "both free integers": (np.s_[:, 2, 1], (11, 1)),
    "all integers": (np.s_[4, 2, 1], (1, 1)),
}


@pytest.mark.parametrize("case", INDICES)
def test_indexing_on_chip_stays_two_dimensional(case):
    key, shape = INDICES[case]
    array = counting((11, 6, 3))
    got = on_chip(lambda t: t[key], array)
    assert got.shape == shape
    np.testing.assert_array_equal(got.ravel(), array[key].ravel())


@pytest.mark.parametrize("case", INDICES)
def test_indexing_in_hbm_is_numpy(case):
    key, _ = INDICES[case]
    array = counting((11, 6, 3))
    want = np.atleast_1d(array[key])
    np.testing.assert_array_equal(in_hbm(lambda t: t[key], array), want)


def test_ds_is_a_slice_of_fixed_size():
    array = counting((11, 6))
    np.testing.assert_array_equal(on_chip(lambda t: t[nl.ds(2, 3), nl.ds(1, 5)], array), array[2:5, 1:6])


@pytest.mark.parametrize(
    "key", [np.s_[12:], np.s_[:, 7], np.s_[:, 3:3], np.s_[:, -7], np.s_[:, :, :, 0], np.s_[:, None]]
)
def test_indices_outside_are_refused(key):
    with pytest.raises(SimulationError):
        on_chip(lambda t: t[key], counting((11, 6, 3)))


def test_views_share_storage():
    def body(x):
        tile = nl.zeros((8, 6), nl.float32)
        nisa.memset(tile.reshape((8, 2, 3))[:, 1, 0:2], 5.0)
        out = nl.ndarray((8, 6), nl.float32, nl.shared_hbm)
        nisa.dma_copy(out, tile)
        return out

    want = np.zeros((8, 6), np.float32)
    want[:, 3:5] = 5.0
    np.testing.assert_array_equal(run(body, want), want)


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_access_patterns_are_strided_reads_of_the_storage(data):
    rows, free = data.draw(st.integers(1, 7)), data.draw(st.integers(2, 40))
    array = counting((rows, free))
    pairs, left = [[free, data.draw(st.integers(1, rows))]], free - 1
    for _ in range(data.draw(st.integers(1, 3))):
        step = data.draw(st.integers(0, left))
        count = data.draw(st.integers(1, left // step + 1 if step else 4))
        pairs.append([step, count])
        left -= step * (count - 1)
    start = data.draw(st.integers(0, left))
    want = np.lib.stride_tricks.as_strided(array.ravel()[start:], [n for _, n in pairs], [4 * s for s, _ in pairs])
    np.testing.assert_array_equal(on_chip(lambda t: t.ap(pairs, offset=start), array), want)


def test_patterns_that_leave_the_tensor_may_be_made_but_not_used():
    def body(x, use):
        outside = x.ap([[8, 4], [1, 8]], offset=1)
        tile = nl.zeros((4, 8), nl.int32)
        if use:
            nisa.dma_copy(tile, outside)

    run(body, counting((4, 8)), False)
    for start in (run, dry):
        with pytest.raises(SimulationError, match=r"at offset 1 covers elements \[1, 32\] of 32"):
            start(body, counting((4, 8)), True)


def test_access_patterns_ignore_the_view_they_are_made_of():
    array = counting((4, 8))
    inherits = on_chip(lambda t: t[:, 2:4].ap([[8, 4], [1, 3]]), array)
    np.testing.assert_array_equal(inherits, array[:, 2:5])
    chained = on_chip(lambda t: t.ap([[8, 4], [2, 4]]).ap([[8, 4], [1, 2]], offset=1), array)
    np.testing.assert_array_equal(chained, array[:, 1:3])


def test_dtype_views_reinterpret_bytes():
    x = np.random.default_rng(0).standard_normal((5, 6)).astype(np.float32)

    def body(x):
        tile, half = nl.ndarray((5, 6), nl.float32), nl.ndarray((5, 12), nl.uint16, nl.shared_hbm)
        nisa.dma_copy(tile, x)
        assert tile.view(nl.bfloat16).shape == tile.ap([[12, 5], [1, 12]], dtype=nl.bfloat16).shape == (5, 12)
        nisa.dma_copy(half, tile.view(nl.uint16))
        return half

    np.testing.assert_array_equal(run(body, x), x.view(np.uint16))


@pytest.mark.parametrize(
    ("src", "dst", "sizes", "expected"),
    [
        (("b", ("h", "w")), ("b", "w", "h"), {"h": 4}, lambda a: a.reshape(7, 4, 6).transpose(0, 2, 1)),
        (("b", ("h", "w")), ("b", ("w", "h")), {"w": 24}, lambda a: a),
        (("p", "f"), ("p", "f"), None, lambda a: a),
    ],
)
def test_rearrange(src, dst, sizes, expected):
    array = counting((7, 24))
    np.testing.assert_array_equal(on_chip(lambda t: t.rearrange(src, dst, sizes), array), expected(array))


def test_rearrange_that_needs_a_copy_is_refused():
    with pytest.raises(SimulationError, match="needs a copy"):
        on_chip(lambda t: t.rearrange(("b", ("h", "w")), ("b", ("w", "h")), {"h": 4}), counting((7, 24)))


def test_queries():
    def body(x):
        tile = nl.ndarray((128, 64), nl.float32, name="a")
        part = tile.slice(dim=1, start=8, end=24)
        assert (part.get_pattern(), part.offset, part.strides) == ([[64, 128], [1, 16]], 8, (64, 1))
        assert (tile.name, tile.ndim, tile.size, tile.buffer) == ("a", 2, 8192, nl.sbuf)
        assert part.is_contiguous()
        assert not tile[:, ::2].is_contiguous()
        assert not tile.reshape((128, 8, 8)).permute((0, 2, 1)).is_contiguous()
        assert not tile.is_indirect()

    run(body, counting((1, 1)))


def test_row_major_strides():
    assert row_major((2, 3, 5)) == (15, 5, 1)
