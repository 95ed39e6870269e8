"""Packing and unpacking of sparse tensors, against dense arrays made element by element."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from trnqc.errors import MemoryLimit, OperandError
from trnqc.sparse.tensors.storage import Compressed, Dense, SparseTensor, from_coo, from_dense

LAYOUTS = ("dense", "compressed")


@st.composite
def elements(draw, values=True):
    """(shape, coordinates [ndim, n], values [n]) with duplicates, zeros and empty extents among them."""
    shape = tuple(draw(st.lists(st.integers(0, 5), max_size=4)))
    count = draw(st.integers(0, 12)) if 0 not in shape else 0
    rows = [draw(st.lists(st.integers(0, extent - 1), min_size=count, max_size=count)) for extent in shape if count]
    coordinates = np.array(rows, np.int64).reshape(len(shape), count)
    numbers = draw(st.lists(st.integers(-4, 4), min_size=count, max_size=count))
    return shape, coordinates, np.array(numbers, float)


@st.composite
def layouts(draw, ndim):
    order = draw(st.permutations(range(ndim)))
    return tuple(order), tuple(draw(st.sampled_from(LAYOUTS)) for _ in range(ndim))


def summed(shape, coordinates, values):
    dense = np.zeros(shape)
    for at, value in zip(map(tuple, coordinates.T), values, strict=True):
        dense[at] += value
    return dense


@settings(max_examples=120, deadline=None)
@given(st.data())
def test_packing_keeps_every_element_in_every_layout(data):
    shape, coordinates, values = data.draw(elements())
    order, kinds = data.draw(layouts(len(shape)))
    tensor = from_coo(shape, coordinates, values, order, kinds).check()
    assert (tensor.order, tensor.kinds) == (order, kinds)
    np.testing.assert_array_equal(tensor.to_dense(), summed(shape, coordinates, values))
    again = tensor.repack(*data.draw(layouts(len(shape)))).check()
    np.testing.assert_array_equal(again.to_dense(), tensor.to_dense())
    np.testing.assert_array_equal(summed(shape, *again.to_coo()), tensor.to_dense())
    assert len(again.to_coo()[1]) == again.nnz


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_a_map_is_the_set_of_its_coordinates(data):
    shape, coordinates, values = data.draw(elements())
    present = values > 0
    order, kinds = data.draw(layouts(len(shape)))
    tensor = from_coo(shape, coordinates, present, order, kinds).check()
    expected = summed(shape, coordinates[:, present], values[present]) > 0
    np.testing.assert_array_equal(tensor.to_dense(), expected)
    assert tensor.ones
    if kinds[-1:] == ("compressed",):
        assert tensor.values is None


@settings(max_examples=80, deadline=None)
@given(st.data())
def test_counts_of_distinct_coordinates(data):
    shape, coordinates, values = data.draw(elements())
    order, kinds = data.draw(layouts(len(shape)))
    tensor = from_coo(shape, coordinates, np.abs(values) + 1, order, kinds)
    for size in range(len(shape) + 1):
        for modes in itertools.combinations(range(len(shape)), size):
            expected = {tuple(at[list(modes)]) for at in coordinates.T}
            assert tensor.nonzeros(modes) == tensor.nonzeros(modes[::-1]) == len(expected)


def test_levels_of_a_small_matrix():
    tensor = from_coo((3, 4), [[2, 0, 2, 0], [3, 1, 0, 1]], [5.0, 1.0, 4.0, 2.0], kinds=("dense", "compressed"))
    rows, columns = tensor.levels
    assert rows == Dense(3)
    assert isinstance(columns, Compressed)
    assert columns.positions.tolist() == [0, 1, 1, 3]
    assert columns.coordinates.tolist() == [1, 0, 3]
    assert columns.positions.dtype == np.int64
    assert columns.coordinates.dtype == np.int32
    assert tensor.values.tolist() == [3, 4, 5]
    assert tensor.fill == 0.25
    assert tensor.bytes == 4 * 8 + 3 * 4 + 3 * 8


def test_explicit_zeros_stay_where_nothing_pads():
    tensor = from_coo((3, 4), [[0, 1], [1, 1]], [0.0, 2.0])
    assert tensor.nnz == 2
    assert tensor.repack((1, 0), ("dense", "compressed")).nnz == 2
    assert tensor.repack((0, 1), ("compressed", "dense")).nnz == 1


def test_values_of_one_coordinate_are_added_in_the_order_in_which_they_came():
    numbers = np.array([1e16, 1.0, -1e16, 3.0, 1.0])
    for n in (5, 500):
        at = np.zeros(n, int)
        at[5:] = np.arange(n - 5)[::-1] + 1
        values = np.concatenate((numbers, np.ones(n - 5)))
        assert from_coo((n,), at[None], values).to_dense()[0] == 1e16 + 1.0 - 1e16 + 3.0 + 1.0


def test_extents_whose_product_overflows():
    far = 2**62
    coordinates = np.array([[far - 1, 0, far - 1, 5], [7, far - 1, 7, 0], [1, 2, 1, far - 1]])
    tensor = from_coo((far,) * 3, coordinates, [1.0, 2.0, 3.0, 4.0]).check()
    assert tensor.levels[0].coordinates.dtype == np.int64
    result, values = tensor.to_coo()
    assert result.T.tolist() == [[0, far - 1, 2], [5, 0, far - 1], [far - 1, 7, 1]]
    assert values.tolist() == [2, 4, 4]
    assert tensor.nonzeros((0, 2)) == 3
    assert 0 < tensor.fill < 1e-50


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.uint64])
def test_coordinates_of_any_integers(dtype):
    tensor = from_coo((200, 300), np.array([[199, 3], [2, 255]], dtype), [1.0, 2.0], (1, 0))
    assert tensor.to_coo()[0].T.tolist() == [[199, 2], [3, 255]]


def test_a_dense_array_is_shared_in_its_own_order():
    array = np.arange(6.0).reshape(2, 3)
    tensor = from_dense(array).check()
    assert np.shares_memory(tensor.values, array)
    assert tensor.to_coo()[0].T.tolist() == [[0, 1], [0, 2], [1, 0], [1, 1], [1, 2]]
    np.testing.assert_array_equal(tensor.repack((1, 0), LAYOUTS).check().to_dense(), array)


def test_a_tensor_without_modes_is_a_number():
    for tensor in (from_dense(2.5), from_coo((), np.zeros((0, 2), int), [1.5, 1.0])):
        assert tensor.check().to_dense().shape == ()
        assert tensor.to_dense() == 2.5
        assert tensor.nnz == tensor.nonzeros(()) == 1


def test_numbers_that_are_not_finite_are_kept():
    array = np.array([[0.0, np.nan], [np.inf, 0.0]])
    tensor = from_dense(array, kinds=("compressed", "compressed"))
    assert tensor.nnz == 2
    np.testing.assert_array_equal(tensor.to_dense(), array)


@pytest.mark.parametrize("dtype", [np.int8, np.uint64, np.int64, np.float16, np.float32])
def test_real_numbers_become_float64(dtype):
    tensor = from_coo((3,), [[0, 2]], np.array([1, 3], dtype))
    assert tensor.values.dtype == np.float64
    assert tensor.to_dense().tolist() == [1, 0, 3]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: from_coo((3, 4), [[0], [4]], [1.0]), "mode 1 has the extent 4; found the coordinate 4"),
        (lambda: from_coo((3, 4), [[-1], [0]], [1.0]), "mode 0 has the extent 3; found the coordinate -1"),
        (lambda: from_coo((3, 4), [[0], [0]], [1.0, 2.0]), "1 coordinates need as many values"),
        (lambda: from_coo((3, 4), [[0]], [1.0]), r"must be \[2, elements\]"),
        (lambda: from_coo((3, 4), [[0.5], [0]], [1.0]), "must be integers; found dtype float64"),
        (lambda: from_coo((3, -1), [[], []], []), "must not be negative"),
        (lambda: from_coo((3,), [[0]], [b"1"]), r"real numbers of at most 64 bits, or complex .*; found dtype \|S1"),
        (lambda: from_coo((3,), [[0]], np.ones(1, np.longdouble)), "at most 64 bits"),
        (lambda: from_coo((3, 4), [[0], [0]], [1.0], order=(0, 0)), "each of 2 modes once"),
        (lambda: from_coo((3, 4), [[0], [0]], [1.0], kinds=("dense",)), "2 levels must be 'dense' or 'compressed'"),
        (lambda: from_dense(np.ones(2, np.clongdouble)), "found dtype c"),
    ],
)
def test_what_cannot_be_packed(call, message):
    with pytest.raises(OperandError, match=message):
        call()


def test_dense_levels_beyond_memory():
    far = 10**9
    with pytest.raises(MemoryLimit, match="GiB; this machine has"):
        from_coo((far, far), [[0], [0]], [1.0], kinds=("dense", "dense"))
    with pytest.raises(MemoryLimit, match="dense array"):
        from_coo((far, far), [[0], [0]], [1.0]).to_dense()


@pytest.mark.parametrize(
    "levels",
    [
        (Dense(2), Compressed(np.array([0, 1, 2]), np.array([0, 3], np.int32))),
        (Dense(2), Compressed(np.array([0, 2, 2]), np.array([1, 1], np.int32))),
        (Dense(2), Compressed(np.array([0, 2]), np.array([0, 1], np.int32))),
        (Dense(2), Compressed(np.array([0, 3, 2]), np.array([0, 1], np.int32))),
        (Dense(3), Compressed(np.array([0, 1, 2, 2]), np.array([0, 1], np.int32))),
    ],
)
def test_malformed_levels_are_found(levels):
    with pytest.raises(OperandError, match="malformed"):
        SparseTensor((2, 3), (0, 1), levels, np.ones(2)).check()


def test_a_tensor_describes_itself():
    text = str(from_coo((3, 4), [[2, 0], [3, 1]], None, (1, 0), ("dense", "compressed")))
    assert text == "SparseTensor 3x4, 2 elements (16.67%), levels (1:dense 0:compressed), 0/1 map, 48 B"
