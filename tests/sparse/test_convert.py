"""Tensors of SciPy and PyTorch and .tns files, there and back."""

from __future__ import annotations

import gzip

import numpy as np
import pytest
import scipy.sparse
from hypothesis import given, settings
from hypothesis import strategies as st

import trnqc
import trnqc.sparse
from trnqc.errors import InputError, OperandError, TensorFileError
from trnqc.sparse.tensors.convert import as_tensor, from_scipy, from_torch, read_tns
from trnqc.sparse.tensors.storage import from_coo

DENSE = np.array([[0.0, 1.5, 0.0, -2.0], [0.0, 0.0, 0.0, 0.0], [3.0, 0.0, 0.0, 4.0]])


@settings(max_examples=60, deadline=None)
@given(st.integers(1, 7), st.integers(1, 7), st.integers(0, 2**32 - 1), st.sampled_from(["csr", "csc", "coo", "lil"]))
def test_scipy_there_and_back(rows, columns, seed, layout):
    matrix = scipy.sparse.random_array((rows, columns), density=0.4, rng=seed).asformat(layout)
    tensor = as_tensor(matrix).check()
    np.testing.assert_array_equal(tensor.to_dense(), matrix.toarray())
    assert tensor.nnz == matrix.nnz
    back = tensor.repack((1, 0), ("dense", "compressed")).to_scipy()
    np.testing.assert_array_equal(back.tocsr().toarray(), matrix.toarray())


@pytest.mark.parametrize("kind", [scipy.sparse.csr_matrix, scipy.sparse.coo_matrix, scipy.sparse.bsr_array])
def test_every_class_of_scipy(kind):
    np.testing.assert_array_equal(from_scipy(kind(DENSE)).to_dense(), DENSE)
    assert from_scipy(kind(DENSE != 0)).values is None


def test_duplicates_and_zeros_of_scipy():
    matrix = scipy.sparse.coo_array(([1.0, 2.0, 0.0], ([1, 1, 0], [2, 2, 0])), shape=(2, 3))
    tensor = from_scipy(matrix)
    assert tensor.nnz == 2
    assert tensor.to_dense()[1, 2] == 3


def test_scipy_of_three_modes():
    tensor = from_coo((2, 3, 4), [[1, 0], [2, 2], [0, 3]], [5.0, 6.0], (2, 0, 1))
    back = tensor.to_scipy()
    np.testing.assert_array_equal(back.todense(), tensor.to_dense())
    np.testing.assert_array_equal(as_tensor(back).to_dense(), tensor.to_dense())


@pytest.mark.filterwarnings("ignore:Sparse CS. tensor support is in beta")
@pytest.mark.parametrize("layout", ["to_dense", "to_sparse_coo", "to_sparse_csr", "to_sparse_csc"])
def test_every_layout_of_torch(layout):
    torch = pytest.importorskip("torch")
    source = torch.from_numpy(DENSE)
    tensor = as_tensor(source if layout == "to_dense" else getattr(source, layout)())
    np.testing.assert_array_equal(tensor.check().to_dense(), DENSE)


def test_torch_there_and_back():
    pytest.importorskip("torch")
    tensor = from_coo((2, 3, 4), [[1, 0], [2, 2], [0, 3]], [5.0, 6.0], (2, 0, 1), ("dense", "compressed", "dense"))
    back = tensor.to_torch()
    assert back.is_coalesced()
    np.testing.assert_array_equal(back.coalesce().to_dense().numpy(), tensor.to_dense())
    np.testing.assert_array_equal(as_tensor(back).to_dense(), tensor.to_dense())


def test_torch_adds_duplicates_and_knows_maps():
    torch = pytest.importorskip("torch")
    at = torch.tensor([[0, 1, 1], [0, 2, 2]])
    values = torch.tensor([1.0, 2.0, 3.0], dtype=torch.bfloat16, requires_grad=True)
    with_gradient = torch.sparse_coo_tensor(at, values, (2, 3), check_invariants=True)
    with pytest.raises(OperandError, match="requires a gradient, which a SparseTensor does not carry"):
        from_torch(with_gradient)
    with torch.no_grad():
        assert from_torch(with_gradient).to_dense()[1, 2] == 5
    map_ = from_torch(torch.sparse_coo_tensor(at, torch.tensor([True, True, False]), (2, 3), check_invariants=True))
    assert map_.values is None
    assert map_.nnz == 2
    with pytest.raises(OperandError, match="no dense dimensions; found 1 of 3"):
        from_torch(torch.sparse_coo_tensor(at, torch.ones(3, 2), (2, 3, 2), check_invariants=True))


def test_arrays_and_tensors_of_ours():
    tensor = from_coo((3,), [[1]], [2.0])
    assert as_tensor(tensor) is tensor
    assert as_tensor([[1, 2], [3, 4]]).kinds == ("dense", "dense")
    assert as_tensor(2.5).to_dense() == 2.5
    with pytest.raises(OperandError, match="found dtype"):
        as_tensor("abc")


def test_a_file_of_elements(tmp_path):
    text = "# two modes\n1 2 1.5\n\n3 4 4e0 # the last\n1 4 -2\n3 1 3\n3 1 0\n"
    (tmp_path / "a.tns").write_text(text)
    with gzip.open(tmp_path / "a.tns.gz", "wt") as file:
        file.write(text)
    for name in ("a.tns", "a.tns.gz"):
        np.testing.assert_array_equal(read_tns(tmp_path / name).check().to_dense(), DENSE)
    assert read_tns(tmp_path / "a.tns", (5, 6), (1, 0)).shape == (5, 6)


def test_a_file_without_elements(tmp_path):
    path = tmp_path / "empty.tns"
    path.write_text("# nothing\n")
    assert read_tns(path, (3, 2)).nnz == 0
    with pytest.raises(TensorFileError, match="has no elements"):
        read_tns(path)


@pytest.mark.parametrize(
    ("line", "fault"),
    [
        ("1 2", "expected 3 numbers, 2 coordinates and a value"),
        ("1 2 3 4", "expected 3 numbers, 2 coordinates and a value"),
        ("1 x 3", "expected numbers only"),
        ("1 0 3", "coordinate 2 must be a whole number from 1"),
        ("1.5 1 3", "coordinate 1 must be a whole number from 1"),
        ("nan 1 3", "coordinate 1 must be a whole number from 1"),
        ("-1 1 3", "coordinate 1 must be a whole number from 1"),
        ("1 1e300 3", "coordinate 2 must be at most 9007199254740992"),
    ],
)
def test_the_bad_line_of_a_file_is_named(tmp_path, line, fault):
    path = tmp_path / "bad.tns"
    path.write_text(f"# head\n1 1 1.0\n\n{line}\n2 2 2.0\n")
    with pytest.raises(TensorFileError, match=f"bad.tns, line 4: {fault}; found '{line}'"):
        read_tns(path)


@pytest.mark.parametrize(
    ("shape", "fault"),
    [((2, 2), "line 2: coordinate 2 must be at most 2"), ((2, 3, 1), "line 1: expected 4 numbers, 3 coordinates")],
)
def test_elements_outside_a_given_shape_are_named(tmp_path, shape, fault):
    path = tmp_path / "a.tns"
    path.write_text("1 1 1.0\n1 3 1.0\n")
    with pytest.raises(TensorFileError, match=fault):
        read_tns(path, shape)


@pytest.mark.parametrize("layout", ["csr", "csc"])
@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.int32])
def test_rows_of_scipy_are_read_in_place(layout, dtype):
    matrix = scipy.sparse.random_array((11, 7), density=0.3, format=layout, rng=np.random.default_rng(1))
    matrix = (matrix * 9).astype(dtype)
    tensor = as_tensor(matrix)
    np.testing.assert_array_equal(tensor.check().to_dense(), matrix.toarray())
    assert tensor.kinds == ("dense", "compressed") and tensor.dtype == (dtype if dtype != np.int32 else np.float64)
    assert np.shares_memory(tensor.levels[1].coordinates, matrix.indices)
    assert np.shares_memory(tensor.values, matrix.data) == (dtype == np.float64)


def test_rows_of_scipy_that_are_not_sorted_are_packed():
    """SciPy may believe them sorted, if the caller changed the arrays after it had looked."""
    matrix = scipy.sparse.csr_array(([1.0, 2.0, 3.0, 4.0], [2, 0, 1, 1], [0, 2, 4]), shape=(2, 3))
    assert "dense" not in as_tensor(matrix).kinds
    np.testing.assert_array_equal(as_tensor(matrix).to_dense(), [[2, 0, 1], [0, 7, 0]])
    matrix.has_canonical_format = True
    np.testing.assert_array_equal(as_tensor(matrix).to_dense(), [[2, 0, 1], [0, 7, 0]])
    for empty in ((0, 4), (4, 0), (0, 0), (3, 3)):
        np.testing.assert_array_equal(as_tensor(scipy.sparse.csr_array(empty)).to_dense(), np.zeros(empty))


class Coordinates:
    """What trnqc reads of a COO array of PyData, of whose package this pretends to come."""

    __module__ = "sparse.numba_backend._coo.core"

    def __init__(self, array, fill_value=0.0):
        self.coords, self.data, self.shape = np.array(array.nonzero()), array[array.nonzero()], array.shape
        self.dtype, self.ndim, self.fill_value = array.dtype, array.ndim, fill_value

    def __array__(self, *_, **__):
        raise RuntimeError("Cannot convert a sparse array to dense automatically.")


class Compressed:
    __module__ = "sparse.numba_backend._compressed.compressed"

    def __init__(self, array):
        self._coo, self.shape, self.dtype, self.fill_value = Coordinates(array), array.shape, array.dtype, 0.0

    def tocoo(self):
        return self._coo


@pytest.mark.parametrize("kind", [Coordinates, Compressed])
def test_sparse_arrays_of_pydata(kind):
    array, factor = np.zeros((3, 4, 2)), np.arange(20.0).reshape(4, 5)
    array[[0, 2, 2], [1, 0, 3], [1, 1, 0]] = 1.5, -2.0, 0.5
    result = trnqc.sparse.contract("abc,bd->acd", kind(array), factor, out="dense")
    np.testing.assert_array_equal(result, np.einsum("abc,bd->acd", array, factor))
    with pytest.raises(InputError, match=r"operand 0 is sparse .*; take trnqc.sparse.contract, or make it dense"):
        trnqc.einsum("abc,bd->acd", kind(array), factor)


def test_sparse_arrays_of_pydata_whose_background_is_not_zero():
    with pytest.raises(OperandError, match=r"operand 0: elements that are not stored must be 0; .* fill_value 2"):
        trnqc.sparse.contract("ab->a", Coordinates(np.eye(3), fill_value=2.0))
